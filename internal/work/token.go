package work

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Tokens takes the tokens that a filter matches. Safe for concurrent use, in any
// number of processes: each token goes to one of them.
type Tokens struct {
	consumer jetstream.Consumer
	filter   string
}

// Tokens opens the durable consumer of a filter, one that ends in "*" or ">", and
// makes it if it is missing. A work queue gives each token to one consumer, so the
// filters of two must not overlap, and each filter has one consumer, whose name
// follows from it: "plan" for "spillway.work.plan.*". It is never changed, since a
// consumer whose filter is widened skips tokens; one with another filter, or that
// gives up on tokens, is a [*MismatchError], as is a filter that overlaps. Callers
// retry other errors.
func (q *Queue) Tokens(ctx context.Context, filter string) (*Tokens, error) {
	if err := check(filter, true); err != nil {
		return nil, err
	}
	name := durable(filter)
	c, err := q.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: filter, Description: "Spillway: takes " + filter,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.ackWait,
		MaxDeliver:    -1,
		MaxAckPending: -1, // tokens that were put off count too
	})
	if errors.Is(err, jetstream.ErrConsumerExists) { // with other settings: an operator has changed it
		c, err = q.stream.Consumer(ctx, name)
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == notUnique || api.ErrorCode == multipleUnfiltered) {
		err = &MismatchError{"stream " + Stream, []string{fmt.Sprintf("another consumer takes some of %s", filter)}}
	}
	if err != nil {
		return nil, fmt.Errorf("open consumer %s of the work queue: %w", name, err)
	}
	if reasons := unfitConsumer(c.CachedInfo().Config, filter); len(reasons) > 0 {
		return nil, &MismatchError{fmt.Sprintf("consumer %s of stream %s", name, Stream), reasons}
	}
	return &Tokens{c, filter}, nil
}

// The server's codes for a consumer of a work queue that would share tokens with
// another one.
const (
	multipleUnfiltered jetstream.ErrorCode = 10099
	notUnique          jetstream.ErrorCode = 10100
)

// durable names the consumer of a filter.
func durable(filter string) string {
	var parts []string
	for part := range strings.SplitSeq(strings.TrimPrefix(filter, prefix), ".") {
		if part != "*" && part != ">" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "+")
}

func unfitConsumer(c jetstream.ConsumerConfig, filter string) []string {
	var r []string
	if c.FilterSubject != filter || len(c.FilterSubjects) > 0 {
		r = append(r, fmt.Sprintf("it takes %q, want %q", append(c.FilterSubjects, c.FilterSubject), filter))
	}
	if c.AckPolicy != jetstream.AckExplicitPolicy {
		r = append(r, "its tokens need not be acknowledged each")
	}
	if c.MaxDeliver > 0 {
		r = append(r, "it gives up on tokens")
	}
	return r
}

// pullWait is how long one request for a token waits at the server.
const pullWait = 30 * time.Second

// Next waits for a token, and takes it. Until it is [Token.Done], it is handed out
// again after [DefaultAckWait] without [Token.Progress]. When ctx ends, its cause
// is the error; one token may then be on its way to here, and is handed out again
// too. Other errors are those of a server or consumer that is away: callers retry
// with a pause.
func (t *Tokens) Next(ctx context.Context) (*Token, error) {
	for {
		pull, cancel := context.WithTimeout(ctx, pullWait)
		m, err := t.consumer.Next(jetstream.FetchContext(pull))
		cancel()
		switch {
		case err == nil:
			return newToken(m)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded):
			// None came.
		case errors.Is(err, jetstream.ErrInvalidOption):
			// The deadline is now, and ctx is about to notice.
		default:
			return nil, fmt.Errorf("take work of %s: %w", t.filter, err)
		}
	}
}

// Token is a piece of work that was taken. Its methods try once.
type Token struct {
	Subject string
	// Tries is how often this token was handed out, this time included. Above 1,
	// somebody began it and did not finish, or put it off.
	Tries uint64

	msg jetstream.Msg
}

func newToken(m jetstream.Msg) (*Token, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, fmt.Errorf("token %s: %w", m.Subject(), err)
	}
	return &Token{Subject: m.Subject(), Tries: meta.NumDelivered, msg: m}, nil
}

// Parts is what the subject names after its kind: the topic, of a token to plan.
func (t *Token) Parts() []string {
	parts := strings.Split(strings.TrimPrefix(t.Subject, prefix), ".")
	return parts[1:]
}

// Done removes the token. On nil it is gone, and is not handed out again, but for
// one of the same subject that was put since. After an error it may be.
func (t *Token) Done(ctx context.Context) error {
	if err := t.msg.DoubleAck(ctx); err != nil {
		return fmt.Errorf("finish %s: %w", t.Subject, err)
	}
	return nil
}

// Later puts the token off: it is handed out again after a delay, by the server's
// clock. A token of the same subject that is put meanwhile takes its place, without
// the delay.
func (t *Token) Later(delay time.Duration) error {
	if err := t.msg.NakWithDelay(delay); err != nil {
		return fmt.Errorf("put %s off: %w", t.Subject, err)
	}
	return nil
}

// Progress shows that the token is being worked on, so that it is not handed out
// to another for the next [DefaultAckWait].
func (t *Token) Progress() error {
	if err := t.msg.InProgress(); err != nil {
		return fmt.Errorf("show progress of %s: %w", t.Subject, err)
	}
	return nil
}
