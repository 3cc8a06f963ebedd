package functions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/planner"
)

// backlogs asks lanes and checkpoints how far ingest is behind. Many topics share
// a group, so what was found is good for a moment, and so is that there was no
// answer. Safe for concurrent use.
type backlogs struct {
	js    jetstream.JetStream
	store *segment.Store

	mu    sync.Mutex
	found map[string]*found // by group
}

// found is the last answer for a group.
type found struct {
	mu   sync.Mutex // one asks, the others wait for it
	at   time.Time
	list []planner.Backlog
	err  error
}

// backlogGood is for how long an answer is good, and backlogWait how long one may
// take: a planner does much else that does not need it.
const (
	backlogGood = 2 * time.Second
	backlogWait = 5 * time.Second
)

// NewLanes tells planners how far the lanes of a group are behind.
func NewLanes(js jetstream.JetStream, store *segment.Store) planner.Lanes {
	return &backlogs{js: js, store: store, found: map[string]*found{}}
}

// Backlogs lists the lanes of a group in which messages wait. A group that does
// not exist has none.
func (b *backlogs) Backlogs(ctx context.Context, group string) ([]planner.Backlog, error) {
	f := b.of(group)
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) < backlogGood {
		return f.list, f.err
	}
	ask, cancel := context.WithTimeout(ctx, backlogWait)
	defer cancel()
	list, err := b.ask(ask, group)
	if ctx.Err() != nil {
		return nil, ctx.Err() // which says nothing to others
	}
	f.at, f.list, f.err = time.Now(), list, err
	return list, err
}

func (b *backlogs) of(group string) *found {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.found[group]
	if f == nil {
		f = &found{}
		b.found[group] = f
	}
	return f
}

func (b *backlogs) ask(ctx context.Context, group string) ([]planner.Backlog, error) {
	list := []planner.Backlog{}
	first, err := lane.Look(ctx, b.js, lane.ID{Group: group})
	if errors.Is(err, lane.ErrNoLane) {
		return list, nil
	}
	if err != nil {
		return nil, err
	}
	for n := range min(max(1, first.Lanes), lane.MaxLanes) {
		waits, err := b.lane(ctx, lane.ID{Group: group, N: n})
		if err != nil {
			return nil, err
		}
		if waits.Messages > 0 {
			list = append(list, waits)
		}
	}
	return list, nil
}

// lane compares what a lane has with its checkpoint. Without a checkpoint nobody
// reads it, and all of it waits.
func (b *backlogs) lane(ctx context.Context, id lane.ID) (planner.Backlog, error) {
	out := planner.Backlog{Lane: id.String()}
	s, err := b.js.Stream(ctx, id.Stream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("lane %s: %w", id, err)
	}
	info := s.CachedInfo() // fetched just now
	c, _, err := b.store.CheckpointFile(id.Source(info.Config.Metadata[lane.MetadataIncarnation])).Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		err = nil
	}
	if err != nil || info.State.LastSeq <= c.Sequence {
		return out, err
	}
	// The next that there is: the lane may be trimmed, or have a gap.
	oldest, err := s.GetMsg(ctx, max(c.Sequence+1, info.State.FirstSeq), jetstream.WithGetMsgSubject(">"))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return out, nil // committed and trimmed meanwhile
	}
	if err != nil {
		return out, fmt.Errorf("lane %s: %w", id, err)
	}
	out.Messages, out.Lag = info.State.LastSeq-oldest.Sequence+1, max(0, time.Since(oldest.Time))
	return out, nil
}
