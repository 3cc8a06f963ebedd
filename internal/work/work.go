// Package work hands out work as tokens in a JetStream work queue. A token's
// subject says all that there is to know: "spillway.work.plan.orders" means that
// somebody should plan the topic orders. Whoever thinks that something is to be
// done puts a token, and whoever does it takes it:
//
//	q, err := work.Open(ctx, js)
//	err = q.Put(ctx, work.Subject(work.Plan, "orders"))
//
//	tokens, err := q.Tokens(ctx, work.Filter(work.Plan, 1))
//	token, err := tokens.Next(ctx)
//	… // work, calling token.Progress every few seconds if it takes long
//	err = token.Done(ctx)
//
// Tokens are hints. The queue holds one of a subject: a newer one takes the place
// of one that waits, and one that is put while its predecessor is being worked on
// is handed out again, at once, so two may be at the same work. A token that
// nobody takes is gone after an hour, and all are gone with the NATS server. What
// must be done is therefore found without tokens too, by sweeps, and done safely
// by any number at once.
package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Stream is the name of the JetStream stream.
const Stream = "spillway-work"

// The kinds of tokens.
const (
	// Plan asks for a topic to be planned: "spillway.work.plan.<topic>".
	Plan = "plan"
	// Refs asks for the pending references of a topic to be followed up:
	// "spillway.work.refs.<topic>".
	Refs = "refs"
	// Backfill asks for a topic's open backfill jobs to be worked on, and for its
	// schedules to be looked at: "spillway.work.backfill.<topic>".
	Backfill = "backfill"
	// Compact asks for a topic's sealed segments to be compacted:
	// "spillway.work.compact.<topic>".
	Compact = "compact"
)

const (
	prefix = "spillway.work."
	// waitMax is after how long a token that nobody took is gone.
	waitMax = time.Hour
	// maxBytes is room for a token of each of 100,000 topics.
	maxBytes = 16 << 20
	// maxSubject bounds a token's subject: several names of topics and groups.
	maxSubject = 512
)

// Subject is where tokens of a kind go, with what they are about, such as the name
// of a topic. Kind and parts are names of ours, of a-z, 0-9, '-' and '_'.
func Subject(kind string, parts ...string) string {
	return prefix + strings.Join(append([]string{kind}, parts...), ".")
}

// Filter matches the tokens of a kind with so many parts. It is good as the
// filter of [Queue.Tokens].
func Filter(kind string, parts int) string {
	return prefix + kind + strings.Repeat(".*", parts)
}

// ErrSubject says that something is no subject of a token, or no filter of tokens.
var ErrSubject = errors.New("not a subject of work")

// MismatchError tells that a stream or consumer of ours exists with settings under
// which it would lose or double work. Nothing but an operator can put this right.
type MismatchError struct {
	Name    string // of the stream, or of stream and consumer
	Reasons []string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s is not fit to hand out work: %s", e.Name, strings.Join(e.Reasons, "; "))
}

// Queue is the work queue of a NATS account. Safe for concurrent use.
type Queue struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	// ackWait is after how long without a sign of life a token is handed out
	// again, of consumers that are made now.
	ackWait time.Duration
}

// DefaultAckWait is after how long a token is handed out again whose taker showed
// no sign of life.
const DefaultAckWait = 30 * time.Second

// Open makes the queue's stream if it is missing, and otherwise takes it as it is:
// replicas and sizes are the operator's choice. A stream that cannot be the queue
// gives a [*MismatchError]. Callers retry other errors; any number may race.
func Open(ctx context.Context, js jetstream.JetStream) (*Queue, error) {
	s, err := js.CreateStream(ctx, config())
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		s, err = js.Stream(ctx, Stream)
	}
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == subjectsOverlap {
		err = &MismatchError{Stream, []string{fmt.Sprintf("another stream has its subjects, %s", prefix+">")}}
	}
	if err != nil {
		return nil, fmt.Errorf("open the work queue: %w", err)
	}
	if reasons := unfit(s.CachedInfo().Config); len(reasons) > 0 {
		return nil, &MismatchError{"stream " + Stream, reasons}
	}
	return &Queue{js, s, DefaultAckWait}, nil
}

// subjectsOverlap is the server's code for a stream whose subjects another one has.
const subjectsOverlap jetstream.ErrorCode = 10065

func config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              Stream,
		Description:       "Spillway: work to be done, one token of each kind and thing",
		Subjects:          []string{prefix + ">"},
		Retention:         jetstream.WorkQueuePolicy,
		Storage:           jetstream.FileStorage,
		MaxMsgsPerSubject: 1,
		Discard:           jetstream.DiscardOld,
		MaxAge:            waitMax,
		MaxMsgSize:        4 << 10,
		MaxBytes:          maxBytes,
	}
}

// unfit lists why a stream cannot be the queue.
func unfit(c jetstream.StreamConfig) []string {
	var r []string
	bad := func(is bool, why string) {
		if is {
			r = append(r, why)
		}
	}
	want := config()
	bad(!slices.Equal(c.Subjects, want.Subjects), fmt.Sprintf("its subjects are %q, want %q", c.Subjects, want.Subjects))
	bad(c.Retention != want.Retention, "it is no work queue, so tokens would stay once they are done")
	bad(c.MaxMsgsPerSubject != 1, "it keeps more than one token of a subject")
	bad(c.Discard != want.Discard || c.DiscardNewPerSubject, "it refuses new tokens rather than dropping old ones")
	bad(c.NoAck, "it does not acknowledge")
	bad(c.Sealed, "it is sealed")
	bad(c.Mirror != nil || len(c.Sources) > 0, "it copies another stream")
	bad(c.SubjectTransform != nil, "it transforms subjects")
	return r
}

// Put puts a token, in place of one of the same subject that waits. On nil the
// queue has it. An error leaves that unknown; since tokens are hints, callers
// forget it or put again. [ErrSubject] is about the subject. Without a deadline in
// ctx it gives up after 5 s, the default of nats.go.
func (q *Queue) Put(ctx context.Context, subject string) error {
	if err := check(subject, false); err != nil {
		return err
	}
	if _, err := q.js.Publish(ctx, subject, nil, jetstream.WithExpectStream(Stream)); err != nil {
		return fmt.Errorf("put %s: %w", subject, err)
	}
	return nil
}

// check tells whether a subject is one of tokens, or, with wild, a filter of them:
// "*" may stand for a part, and ">" for all that follow.
func check(subject string, wild bool) error {
	bad := func(why string) error { return fmt.Errorf("%.100q: %w: %s", subject, ErrSubject, why) }
	rest, ok := strings.CutPrefix(subject, prefix)
	switch {
	case !ok:
		return bad("it does not begin with " + prefix)
	case len(subject) > maxSubject:
		return bad(fmt.Sprintf("it has %d bytes, at most %d are allowed", len(subject), maxSubject))
	}
	parts := strings.Split(rest, ".")
	for i, part := range parts {
		switch {
		case wild && i > 0 && (part == "*" || part == ">" && i == len(parts)-1):
		case part == "":
			return bad("a part is empty")
		case strings.ContainsFunc(part, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		}):
			return bad("its parts may have a-z, 0-9, '-' and '_'")
		}
	}
	return nil
}
