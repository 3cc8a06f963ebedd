package segment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// drama is hours of a topic that sleeps and wakes, in virtual time: writers that
// append a record now and then, planners that roll what holds records and let the
// topic rest, both two at once, slow, killed in the middle, with replies that are
// lost and requests that arrive late.
type drama struct {
	*testing.T
	mu    sync.Mutex
	rand  *rand.Rand
	fs    *memfs.FS
	rests int
	wakes int
}

func (d *drama) span(limit time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rand.Int64N(int64(limit)))
}

func (d *drama) chance(percent time.Duration) bool { return d.span(100) < percent }

// hook makes the calls of a process slow, by up to several seconds, and breaks
// some. All calls of an append take far less than RestAfter, which is what is asked
// of them.
func (d *drama) hook() memfs.Hook {
	slow := []time.Duration{10 * time.Millisecond, time.Second, 9 * time.Second}[d.span(3)]
	return func(op memfs.Op) memfs.Fault { return d.fault(op, slow) }
}

func (d *drama) fault(op memfs.Op, slow time.Duration) memfs.Fault {
	f := memfs.Fault{Delay: d.span(slow)}
	writes := op.Name == "Create" || op.Name == "Update" || op.Name == "Delete"
	switch what := d.span(100); {
	case what < 3:
		f.Before = errors.New("unavailable")
	case what < 6:
		f.Hold = d.span(8 * time.Second)
	case what < 14 && writes:
		f.After = errors.New("connection lost")
	case what < 18 && writes:
		f.Late = d.span(time.Minute)
	}
	return f
}

// act does something again and again, each time as a new process, some of which
// are killed.
func (d *drama) act(rests time.Duration, end time.Time, do func(context.Context, *Store) error) {
	for time.Now().Before(end) {
		time.Sleep(d.span(rests))
		life := time.Hour
		if d.chance(25) {
			life = d.span(20 * time.Second)
		}
		ctx, kill := context.WithTimeout(d.Context(), life)
		client := d.fs.Client("c", d.hook())
		stop := context.AfterFunc(ctx, client.Kill)
		err := do(ctx, NewStore(client, "test"))
		if err != nil && ctx.Err() == nil && !errors.Is(err, ErrSealed) && !errors.Is(err, filer.ErrConflict) {
			d.Errorf("a process stopped: %v", err)
		}
		stop()
		kill()
	}
}

func (d *drama) write(source string) func(context.Context, *Store) error {
	sequence := uint64(0)
	return func(ctx context.Context, s *Store) error {
		sequence++
		top, err := s.Topic(ctx, "orders")
		if err != nil {
			return err
		}
		l, err := top.Finish(ctx)
		if err != nil {
			return err
		}
		seg, err := top.Segment(ctx, l.Live[0].ID)
		if err == nil {
			_, err = seg.Append(ctx, input(d.T, source, sequence, sequence))
		}
		if err == nil {
			d.mu.Lock()
			d.wakes++
			d.mu.Unlock()
		}
		return err
	}
}

// plan is a planner's sweep: it reads the marks, then looks, then acts.
func (d *drama) plan(ctx context.Context, s *Store) error {
	for m, err := range s.Active(ctx) {
		if err != nil {
			return err
		}
		rest, err := atRest(ctx, s)
		switch {
		case err != nil:
			return err
		case !rest && d.chance(50):
			top, err := s.Topic(ctx, "orders")
			if err == nil {
				_, err = top.Edit(ctx, time.Now(), rollFirst)
			}
			return err
		case rest && m.MayRest(time.Now()):
			if err := s.Rest(ctx, m); err != nil {
				return err
			}
			d.mu.Lock()
			d.rests++
			d.mu.Unlock()
		}
	}
	return nil
}

// run plays and then looks: what is not at rest has a mark, so planners, once left
// alone, get the topic to rest, and its mark with it.
func (d *drama) run() error {
	if _, err := testStore(d.fs, nil).CreateTopic(d.Context(), orders, 1, time.Now()); err != nil {
		return err
	}
	end := time.Now().Add(4 * time.Hour)
	var wg sync.WaitGroup
	for i := range 2 {
		write := d.write(fmt.Sprintf("lane-%d", i))
		wg.Go(func() { d.act(40*time.Minute, end, write) })
		wg.Go(func() { d.act(6*time.Minute, end, d.plan) })
	}
	wg.Wait()
	d.fs.Settle()
	s := testStore(d.fs, nil)
	if err := checkAwake(d.Context(), s); err != nil {
		return err
	}
	for range 40 {
		bubble.Pass(RestAfter / 2)
		if err := d.plan(d.Context(), s); err != nil {
			return err
		}
	}
	if rest, err := atRest(d.Context(), s); err != nil || !rest {
		return fmt.Errorf("after hours of planning: at rest %v, error %w", rest, err)
	}
	if _, err := s.MarkOf(d.Context(), "orders"); !errors.Is(err, filer.ErrNotFound) {
		return fmt.Errorf("at rest, and with a mark: %w", err)
	}
	return nil
}

func TestTopicsSleepAndWake(t *testing.T) {
	rests, wakes := 0, 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			d := &drama{T: t, rand: rand.New(rand.NewPCG(seed, 1)), fs: memfs.New()}
			if err := d.run(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			rests, wakes = rests+d.rests, wakes+d.wakes
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d times the topic went to rest, %d times records came", rests, wakes)
	if rests < 200 || wakes < 500 {
		t.Error("too little happened for this to prove anything")
	}
}
