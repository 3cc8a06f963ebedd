package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// NoGapError says that a gap cannot be accepted, because messages that would be
// given up are there, or may come yet.
type NoGapError struct {
	Lane   string
	Reason string
}

func (e *NoGapError) Error() string { return fmt.Sprintf("lane %s: %s", e.Lane, e.Reason) }

// Repair is a lane whose state somebody mends by hand. All it does is audited
// beside the lane's checkpoint, before it takes effect.
type Repair struct {
	NATS  *nats.Conn
	Store *segment.Store
	ID    lane.ID
	By    string // who does it
}

// open looks the lane and its checkpoint up.
func (r Repair) open(ctx context.Context) (l *JetStream, s State, c segment.Checkpoint, err error) {
	js, err := jetstream.New(r.NATS)
	if err != nil {
		return nil, s, c, err
	}
	info, err := lane.Open(ctx, js, r.ID)
	if err != nil {
		return nil, s, c, err
	}
	l = newJetStream(r.NATS, js, info)
	s = State{Incarnation: info.Incarnation, First: info.First, Last: info.Last}
	c, _, err = r.Store.CheckpointFile(r.ID.Source(info.Incarnation)).Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		err = fmt.Errorf("lane %s: %w", r.ID, ErrNoCheckpoint)
	}
	if err != nil {
		return l, s, c, err
	}
	// Asked again: were it older than the checkpoint, a lane that a worker is at
	// work on would look as if it had lost its last messages.
	now, err := l.State(ctx)
	if err == nil && now.Incarnation != s.Incarnation {
		err = fmt.Errorf("lane %s was reset just now", r.ID)
	}
	return l, now, c, err
}

// AcceptGap gives up the messages above the checkpoint up to one: they were
// removed before they were committed, and no worker goes on without being told
// (rule 18). The checkpoint moves to it, and the next worker reads what follows.
// It must be proven that none of them is there (*NoGapError), and the lane must
// not have gone back otherwise (*LaneBackError; see Reset). It returns the
// checkpoint before.
func (r Repair) AcceptGap(ctx context.Context, to uint64) (from uint64, err error) {
	l, state, c, err := r.open(ctx)
	if err != nil {
		return 0, err
	}
	if err := checkWitness(ctx, l, r.ID, state, c); err != nil {
		return 0, err
	}
	none := func(format string, a ...any) error { return &NoGapError{r.ID.String(), fmt.Sprintf(format, a...)} }
	next, err := l.firstFrom(ctx, c.Sequence+1)
	switch {
	case errors.Is(err, ErrNoMessage):
		next = state.Last + 1
	case err != nil:
		return 0, err
	}
	switch {
	case next <= c.Sequence+1:
		return 0, none("there is no gap: message %d, the first one above the checkpoint, is not missing", c.Sequence+1)
	case to <= c.Sequence:
		return 0, none("%d is not above the checkpoint, %d", to, c.Sequence)
	case to >= next:
		return 0, none("messages %d to %d are missing; %d is not one of them", c.Sequence+1, next-1, to)
	}
	source := r.ID.Source(state.Incarnation)
	event := Event{At: time.Now(), By: r.By, What: EventGap, From: c.Sequence, To: to, Detail: fmt.Sprintf("%d messages are given up", to-c.Sequence)}
	if err := addEvent(ctx, r.Store, source, event); err != nil {
		return 0, err
	}
	return c.Sequence, r.skip(ctx, source, c, to)
}

// skip moves the checkpoint over messages that are not there.
func (r Repair) skip(ctx context.Context, source string, seen segment.Checkpoint, to uint64) error {
	file := r.Store.CheckpointFile(source)
	c, version, err := file.Load(ctx)
	if err != nil {
		return err
	}
	if c.Sequence != seen.Sequence {
		return &NoGapError{r.ID.String(), fmt.Sprintf("the checkpoint has moved from %d to %d: a worker goes on", seen.Sequence, c.Sequence)}
	}
	c.Sequence, c.Gap = to, true
	_, err = file.Save(ctx, c, version)
	return err
}

// firstFrom is the first message at or above a sequence number that the lane
// holds. ErrNoMessage: it holds none.
func (l *JetStream) firstFrom(ctx context.Context, sequence uint64) (uint64, error) {
	s, err := l.js.Stream(ctx, l.ID.Stream())
	if err != nil {
		return 0, err
	}
	m, err := s.GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, fmt.Errorf("from %d on: %w", sequence, ErrNoMessage)
	}
	if err != nil {
		return 0, err
	}
	return m.Sequence, nil
}
