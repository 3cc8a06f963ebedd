package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// ErrNotBack says that a lane shows everything that was committed from it.
var ErrNotBack = errors.New("the lane did not go back: it shows what was committed from it, and needs no reset")

// ResetReport is what a reset did.
type ResetReport struct {
	Lane     string `json:"lane"`
	Reason   string `json:"reason"`   // how it is known that the lane went back
	Was      string `json:"was"`      // incarnation
	Is       string `json:"is"`       // incarnation
	Finished uint64 `json:"finished"` // messages above the old checkpoint that were committed first
	First    uint64 `json:"first"`    // the first message that is read in the new incarnation
	Messages uint64 `json:"messages"` // that are to be read now
	Missing  uint64 `json:"missing"`  // numbers above the old checkpoint that the lane has lost, if that can be told
	// Twice, if not 0, is a message up to which some segments have taken in, under
	// the old incarnation, what is now read again.
	Twice uint64 `json:"twice,omitempty"`
}

// Reset gives a lane that went back a new incarnation (rule 17). What it holds is
// divided by the last message that is known to be committed, the one that the
// checkpoint or a segment's position stands on and that the lane still shows:
//
//   - Messages up to its time are committed, and are not read again.
//   - If some of them lie above the checkpoint, they are committed in some
//     segments only. They are read once more in the old incarnation, in which
//     each segment knows what it has.
//   - Everything newer is read under the new incarnation. None of it can be what
//     was committed before the loss, since that is older.
//
// A worker may have gone on after the loss, in segments that had nothing to
// compare, until it met one that had. What these took in then is taken in again:
// nothing is lost, and the report says up to which message records may be there
// twice.
//
// Beyond that it relies on the server's clock not having been set back to before the last
// committed message. A batch that a segment took in above the checkpoint, that
// the lane then lost, and that its producer sent again, is taken in twice: the
// number by which it would be known was in the lane alone. Batches up to the
// checkpoint are recognised.
//
// Producers and workers may run. ErrNotBack: there is nothing to mend.
func (r Repair) Reset(ctx context.Context) (ResetReport, error) {
	l, state, c, back, err := r.examine(ctx)
	if err != nil {
		return ResetReport{}, err
	}
	rep := ResetReport{Lane: r.ID.String(), Was: state.Incarnation, Is: lane.Token()}
	rep.Reason, rep.Twice = back.reason, back.newest
	known := c
	if back.agreed > c.Sequence {
		rep.Finished = back.agreed - c.Sequence
		if known, err = r.finish(ctx, l, state, back); err != nil {
			return rep, err
		}
	}
	next, err := r.successor(ctx, l, state, known, rep.Is)
	if err != nil {
		return rep, err
	}
	rep.First, rep.Messages = next.Sequence+1, state.Last-min(next.Sequence, state.Last)
	if back.highest > state.Last {
		rep.Missing = back.highest - state.Last
	}
	return rep, r.renew(ctx, l, rep, c, next)
}

// examine opens the lane and diagnoses it. While a worker goes on, it moves the
// checkpoint and then trims what the old one stood on, which looks like a loss to
// whoever compares the lane with that; so what was found counts only if the
// checkpoint has not moved since.
func (r Repair) examine(ctx context.Context) (l *JetStream, state State, c segment.Checkpoint, back setback, err error) {
	for {
		if l, state, c, err = r.open(ctx); err != nil {
			return l, state, c, back, err
		}
		if back, err = r.diagnose(ctx, l, state, c); err != nil {
			return l, state, c, back, err
		}
		now, _, err := r.Store.CheckpointFile(c.Source).Load(ctx)
		if err != nil || now.Sequence == c.Sequence {
			return l, state, c, back, err
		}
	}
}

// finish commits the messages up to the last one on which lane and segments
// agree, in the old incarnation, and returns its checkpoint.
func (r Repair) finish(ctx context.Context, l *JetStream, state State, b setback) (segment.Checkpoint, error) {
	w := NewWorker(Options{
		Lane: &partOfLane{JetStream: l, last: b.agreed, times: b.times}, ID: r.ID, Store: r.Store,
		Once: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err := w.Run(ctx, ctx); err != nil {
		return segment.Checkpoint{}, fmt.Errorf("commit what the lane still has of its old incarnation: %w", err)
	}
	c, _, err := r.Store.CheckpointFile(r.ID.Source(state.Incarnation)).Load(ctx)
	if err == nil && c.Sequence < b.agreed {
		err = fmt.Errorf("lane %s: the checkpoint got to %d, not to %d", r.ID, c.Sequence, b.agreed)
	}
	return c, err
}

// successor makes the first checkpoint of the new incarnation: it stands on the
// last message that is not newer than the last committed one.
func (r Repair) successor(ctx context.Context, l *JetStream, state State, c segment.Checkpoint, incarnation string) (segment.Checkpoint, error) {
	next := segment.Checkpoint{Source: r.ID.Source(incarnation), Witness: c.Witness, Producers: []segment.Producer{}, Marks: []segment.Mark{}}
	first, err := l.firstAfter(ctx, c.Witness)
	switch {
	case errors.Is(err, ErrNoMessage):
		next.Sequence = state.Last
	case err != nil:
		return next, err
	default:
		next.Sequence = first - 1
	}
	if next.Sequence > 0 {
		at, err := l.TimeOf(ctx, next.Sequence)
		switch {
		case err == nil:
			next.Witness = at.UTC()
		case errors.Is(err, ErrNoMessage):
			next.Gap = true
		default:
			return next, err
		}
	}
	for _, p := range c.Producers { // what they sent is committed, whatever its number was
		p.At = min(p.At, next.Sequence)
		next.Producers = append(next.Producers, p)
	}
	next.Objects = c.Objects.Until(next.Sequence) // and so are these events
	return next, nil
}

// renew puts the new incarnation in force: its checkpoint, the audit, the lane.
func (r Repair) renew(ctx context.Context, l *JetStream, rep ResetReport, was, next segment.Checkpoint) error {
	if _, err := r.Store.CheckpointFile(next.Source).Create(ctx, next); err != nil {
		return err
	}
	event := Event{At: time.Now(), By: r.By, What: EventReset, From: was.Sequence, To: next.Sequence, Successor: rep.Is, Detail: rep.Reason}
	if err := addEvent(ctx, r.Store, was.Source, event); err != nil {
		return err
	}
	_, err := lane.Renew(ctx, l.js, r.ID, rep.Is)
	return err
}

// firstAfter is the first message that was stored after a time. ErrNoMessage:
// there is none.
func (l *JetStream) firstAfter(ctx context.Context, t time.Time) (uint64, error) {
	if t.IsZero() {
		return l.firstFrom(ctx, 1)
	}
	from := t.Add(time.Nanosecond)
	c, err := l.js.CreateConsumer(ctx, l.ID.Stream(), jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &from,
		AckPolicy: jetstream.AckNonePolicy, InactiveThreshold: time.Minute, MemoryStorage: true,
	})
	if err != nil {
		return 0, fmt.Errorf("first message of lane %s after %s: %w", l.ID, t, err)
	}
	defer l.js.DeleteConsumer(context.WithoutCancel(ctx), l.ID.Stream(), c.CachedInfo().Name) //nolint:errcheck // it vanishes by itself
	if c.CachedInfo().NumPending == 0 {
		return 0, fmt.Errorf("after %s: %w", t, ErrNoMessage)
	}
	batch, err := c.Fetch(1, jetstream.FetchMaxWait(5*time.Second))
	if err != nil {
		return 0, err
	}
	m, ok := <-batch.Messages()
	if !ok {
		return 0, fmt.Errorf("first message of lane %s after %s: %w", l.ID, t, errors.Join(batch.Error(), context.DeadlineExceeded))
	}
	meta, err := m.Metadata()
	if err != nil {
		return 0, err
	}
	return meta.Sequence.Stream, nil
}

// partOfLane is a lane as it was, up to a message. What segments have taken in
// above that, and the lane has lost, is shown as it was.
type partOfLane struct {
	*JetStream
	last  uint64
	times map[uint64]time.Time
}

// State ends the lane at the last message.
func (p *partOfLane) State(ctx context.Context) (State, error) {
	s, err := p.JetStream.State(ctx)
	s.Last = min(s.Last, p.last)
	return s, err
}

// TimeOf answers for lost messages from what segments know.
func (p *partOfLane) TimeOf(ctx context.Context, sequence uint64) (time.Time, error) {
	if t, ok := p.times[sequence]; ok && sequence > p.last {
		return t, nil
	}
	return p.JetStream.TimeOf(ctx, sequence)
}

// Read ends at the last message.
func (p *partOfLane) Read(ctx context.Context, from uint64) (Reader, error) {
	r, err := p.JetStream.Read(ctx, from)
	return &partReader{r, p.last}, err
}

// Announce does nothing: the incarnation is about to end.
func (p *partOfLane) Announce(context.Context, string, uint64) error { return nil }

// Trim does nothing.
func (p *partOfLane) Trim(context.Context, uint64) error { return nil }

type partReader struct {
	Reader
	last uint64
}

func (r *partReader) Next(ctx context.Context) (Message, error) {
	m, err := r.Reader.Next(ctx)
	if err == nil && m.Sequence > r.last {
		<-ctx.Done()
		return Message{}, ctx.Err()
	}
	return m, err
}
