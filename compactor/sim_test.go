package compactor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Two compactors that know nothing of each other and meet faults and crashes, beside a
// planner that edits, a writer, and readers that start anywhere and pause: what is read
// has no gap and nothing twice, and in the end each row is once in the table.
func TestSimulation(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) { simulate(t, uint64(seed)) })
	}
}

// sim is one run.
type sim struct {
	*world
	mu  sync.Mutex
	rnd *rand.Rand
}

func (s *sim) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func simulate(t *testing.T, seed uint64) {
	s := &sim{world: newWorld(t, 2), rnd: rand.New(rand.NewPCG(seed, 7))}
	ctx, over := context.WithCancel(t.Context())
	var g, others errgroup.Group
	g.Go(func() error { s.write(t); return nil })
	for range 2 {
		others.Go(func() error { s.compactors(ctx); return nil })
		others.Go(func() error { return s.read(ctx, t) })
	}
	_ = g.Wait()
	<-time.After(time.Duration(s.n(5)) * time.Second) // virtual time
	over()
	if err := others.Wait(); err != nil {
		t.Fatal(err)
	}
	s.catalog.Arrive()
	s.fs.Settle()
	s.finish(t)
}

// write appends and edits.
func (s *sim) write(t *testing.T) {
	for range 12 {
		<-time.After(time.Duration(s.n(2000)) * time.Millisecond) // virtual time
		live := s.live(t)
		for range s.n(4) {
			kinds := make([]byte, 1+s.n(5))
			for i := range kinds {
				kinds[i] = "..nlrxbem"[s.n(9)]
			}
			s.add(t, live[s.n(len(live))], string(kinds))
		}
		s.edit(t)
		s.pass(time.Duration(s.n(60)) * time.Minute)
	}
}

func (s *sim) edit(t *testing.T) {
	_, err := s.top.Edit(t.Context(), s.clock(), func(l topic.Layout) (topic.Edit, error) {
		at := l.Live[s.n(len(l.Live))]
		switch s.n(3) {
		case 0:
			if at.Range.Size() > 4 && len(l.Live) < 5 {
				return l.SplitWays(at.ID, 2)
			}
		case 1:
			if len(l.Live) > 1 {
				i := s.n(len(l.Live) - 1)
				return l.Merge(l.Live[i].ID, l.Live[i+1].ID)
			}
		}
		return l.Roll(at.ID)
	})
	must(t, err)
}

// compactors are one after the other, each with its faults and its end.
func (s *sim) compactors(ctx context.Context) {
	for ctx.Err() == nil {
		life, kill := context.WithCancel(ctx)
		c := New(s.options(
			func(memfs.Op) memfs.Fault { return s.fileFault(kill) },
			func(tabletest.Op) tabletest.Fault { return s.callFault(kill) },
		))
		c.FileBytes = int64(20+s.n(100)) << 10
		for life.Err() == nil && s.n(5) > 0 {
			_, _ = c.Topic(life, life, "orders")
			pause(life, time.Duration(s.n(1000))*time.Millisecond)
		}
		kill()
		pause(ctx, time.Duration(s.n(500))*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (s *sim) fileFault(kill func()) memfs.Fault {
	switch s.n(60) {
	case 0:
		return memfs.Fault{After: memfs.ErrLost}
	case 1:
		return memfs.Fault{Late: time.Duration(s.n(3000)) * time.Millisecond}
	case 2:
		return memfs.Fault{Before: errCrashed}
	case 3, 4, 5, 6:
		return memfs.Fault{Delay: time.Duration(s.n(200)) * time.Millisecond}
	case 7:
		return memfs.Fault{Hold: time.Duration(s.n(2000)) * time.Millisecond}
	case 8:
		if s.n(3) == 0 {
			kill()
		}
	}
	return memfs.Fault{}
}

func (s *sim) callFault(kill func()) tabletest.Fault {
	switch s.n(20) {
	case 0:
		return tabletest.Fault{After: tabletest.ErrLost}
	case 1:
		return tabletest.Fault{Before: tabletest.ErrDown}
	case 2:
		return tabletest.Fault{Late: true}
	case 3:
		s.catalog.Arrive()
	case 4:
		kill()
	}
	return tabletest.Fault{}
}

// read reads all there is over and over, from a position that it keeps.
func (s *sim) read(ctx context.Context, t *testing.T) error {
	r, err := s.top.Read(t.Context(), nil)
	if err != nil {
		return err
	}
	next := map[topic.SegmentID]uint64{}
	for ctx.Err() == nil {
		if err := s.some(ctx, t, r, next); err != nil {
			return err
		}
		pause(ctx, time.Duration(s.n(3000))*time.Millisecond)
		if s.n(3) == 0 { // as after a restart
			if r, err = s.top.Read(t.Context(), r.Position()); err != nil {
				return err
			}
		}
	}
	return s.some(t.Context(), t, r, next)
}

// some reads a few records, with a pause among them.
func (s *sim) some(ctx context.Context, t *testing.T, r *segment.Reader, next map[topic.SegmentID]uint64) error {
	most := 1 + s.n(20)
	for it, err := range r.Next(t.Context()) {
		if err != nil {
			return err
		}
		if it.Offset != next[it.Segment] {
			return fmt.Errorf("segment %s: offset %d comes where %d was to be", it.Segment, it.Offset, next[it.Segment])
		}
		next[it.Segment]++
		s.world.mu.Lock()
		want := s.want[it.Segment]
		s.world.mu.Unlock()
		if it.Offset < uint64(len(want)) && want[it.Offset] != dump(&it.Record) {
			return fmt.Errorf("segment %s, offset %d: %s, want %s", it.Segment, it.Offset, dump(&it.Record), want[it.Offset])
		}
		if s.n(10) == 0 {
			pause(ctx, time.Duration(s.n(5000))*time.Millisecond)
		}
		if most--; most == 0 {
			return nil
		}
	}
	return nil
}
