package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// Times of a held message.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = 500 * time.Millisecond
	holdNote  = 30 * time.Second // between two notes about one message
	// maxSkew is how much later than the message that waits for it a message may
	// seem to have been stored, on servers whose clocks differ. One that seems
	// later still was not there when its number was written down.
	maxSkew = time.Minute
)

// others is a lane that knows the other lanes of its server.
type others interface{ Other(id lane.ID) Lane }

// holdback holds a message back until what it must come after is committed: what
// its producer had put into the lanes that it has left ([lane.HeaderAfter]). So
// records of one key keep their order when their topic moves to other lanes.
//
// It holds the reader and not the flush that is being filled, which goes its way;
// what was read before is committed meanwhile, and may be what another lane waits
// for. Since messages wait only for messages that were stored before them, lanes
// cannot wait for each other in a ring; see passed for headers that lie. It is
// used by one goroutine.
type holdback struct {
	id    lane.ID
	lane  Lane
	store *segment.Store
	log   *slog.Logger
	known map[string]uint64 // checkpoints as last read, by source
}

func (s *session) holdback() *holdback {
	return &holdback{id: s.ID, lane: s.Lane, store: s.Store, log: s.Logger, known: map[string]uint64{}}
}

// await returns when m may be taken in, or when ctx ends, or with a fault of the
// filer or the server, on which the caller starts again.
func (h *holdback) await(ctx context.Context, m Message) error {
	afters, err := aftersOf(m.Header)
	if err != nil {
		return nil //nolint:nilerr // take rejects the message for it
	}
	for _, a := range afters {
		if err := h.hold(ctx, m, a); err != nil {
			return fmt.Errorf("message %d of lane %s waits for %s: %w", m.Sequence, h.id, a, err)
		}
	}
	return nil
}

// aftersOf reads what a message must come after.
func aftersOf(header map[string][]string) ([]lane.After, error) {
	text, err := single(header, lane.HeaderAfter)
	if err != nil || header[lane.HeaderAfter] == nil {
		return nil, err
	}
	return lane.ParseAfters(text)
}

func (h *holdback) hold(ctx context.Context, m Message, a lane.After) error {
	start, noted := time.Now(), time.Now()
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		passed, err := h.passed(ctx, m, a)
		if passed || err != nil {
			if took := time.Since(start); took > time.Second {
				h.log.Info("what the lane waited for is committed", "message", m.Sequence, "after", a.String(), "seconds", took.Seconds())
			}
			return err
		}
		if time.Since(noted) > holdNote {
			noted = time.Now()
			h.log.Warn("the lane waits until another one has committed", "message", m.Sequence, "topic", m.Topic, "after", a.String(), "seconds", time.Since(start).Seconds())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// passed tells whether m need not wait for a any longer: it is committed, or it
// never will be and so comes before nothing. The latter is so when its lane is
// gone, has lost the message, or never had it when m was stored, whatever m's
// header says: such a wait might never end.
func (h *holdback) passed(ctx context.Context, m Message, a lane.After) (bool, error) {
	source := a.Lane.Source(a.Incarnation)
	if h.known[source] >= a.Sequence {
		return true, nil
	}
	c, _, err := h.store.CheckpointFile(source).Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		return h.giveUp(m, a, "there is no such lane")
	}
	if err != nil {
		return false, err
	}
	if h.known[source] = c.Sequence; c.Sequence >= a.Sequence {
		return true, nil
	}
	if a.Lane == h.id {
		return h.giveUp(m, a, "it is in the same lane")
	}
	server, ok := h.lane.(others)
	if !ok {
		return false, nil
	}
	return h.settled(ctx, m, a, server.Other(a.Lane))
}

// settled asks the lane itself about a message that is not known to be committed.
func (h *holdback) settled(ctx context.Context, m Message, a lane.After, other Lane) (bool, error) {
	state, err := other.State(ctx)
	if errors.Is(err, lane.ErrNoLane) {
		return h.giveUp(m, a, "the lane is gone")
	}
	if err != nil {
		return false, err
	}
	latest := m.Time.Add(maxSkew)
	if state.Incarnation != a.Incarnation {
		// The lane was reset. If it still has the message, with its number, the
		// new incarnation commits it.
		latest = m.Time
		c, _, err := h.store.CheckpointFile(a.Lane.Source(state.Incarnation)).Load(ctx)
		if err == nil && c.Sequence >= a.Sequence || errors.Is(err, filer.ErrNotFound) {
			return h.giveUp(m, a, "the lane was reset")
		}
		if err != nil {
			return false, err
		}
	}
	if state.Last < a.Sequence {
		return h.giveUp(m, a, "the lane does not have it")
	}
	at, err := other.TimeOf(ctx, a.Sequence)
	switch {
	case errors.Is(err, ErrNoMessage):
		return false, nil // being trimmed, or a gap, at which that lane's worker stops
	case err != nil:
		return false, err
	case at.After(latest):
		return h.giveUp(m, a, "the lane got it later")
	}
	return false, nil
}

func (h *holdback) giveUp(m Message, a lane.After, why string) (bool, error) {
	h.log.Warn("a message does not wait for what its header names", "message", m.Sequence, "topic", m.Topic, "after", a.String(), "why", why)
	return true, nil
}
