package followup

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestSweep: active topics are swept, those at rest if they are known to wait, and
// with all every one.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), "p")
		w.create(t, "empty", 1)
		sweep := func(all bool) Summary {
			sum, err := w.Sweep(t.Context(), t.Context(), all)
			if err != nil {
				t.Fatal(err)
			}
			return sum
		}
		if sum := sweep(false); sum.Topics != 2 || sum.Open != 1 || sum.Looked != 1 {
			t.Errorf("%+v", sum)
		}
		bubble.Pass(time.Hour)
		for m, err := range w.store.Active(t.Context()) {
			if err == nil {
				err = w.store.Rest(t.Context(), m)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if sum := sweep(false); sum.Topics != 1 || sum.Looked != 1 {
			t.Errorf("at rest: %+v", sum)
		}
		bubble.Pass(time.Hour)
		broken, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Topic(broken, broken, "orders"); err == nil {
			t.Error("no error without a context")
		}
		if sum := sweep(false); sum.Topics != 1 || sum.Looked != 1 {
			t.Errorf("at rest, after a fault: %+v", sum)
		}
		w.Follower = w.follower(w.store) // which knows nothing
		if sum := sweep(false); sum.Topics != 0 {
			t.Errorf("one that knows nothing: %+v", sum)
		}
		if sum := sweep(true); sum.Topics != 2 || sum.Open != 1 {
			t.Errorf("all: %+v", sum)
		}
		stop, end := context.WithCancel(t.Context())
		end()
		if sum, err := w.Sweep(t.Context(), stop, true); err != nil || sum.Left != 2 {
			t.Errorf("stopped: %+v, %v", sum, err)
		}
	})
}

// TestRun: a resident one finds by itself what came, at rest or not, and ends when
// it is told to.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), "p")
		for m, err := range w.store.Active(t.Context()) {
			if err == nil {
				err = w.store.Rest(t.Context(), m)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		time.AfterFunc(3*time.Minute, func() { w.objects.say(nil, w.refs[0].url) })
		stop, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var sweeps []Summary
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(t.Context(), stop, DefaultPeriod, func(s Summary, err error) {
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				sweeps = append(sweeps, s)
			})
		}()
		bubble.Pass(DefaultPeriod + time.Second)
		synctest.Wait()
		mu.Lock()
		if !w.objects.isPinned(w.top, w.refs[0].url) || len(sweeps) != 2 {
			t.Errorf("not pinned after %d sweeps: %+v", len(sweeps), sweeps)
		}
		mu.Unlock()
		bubble.Pass(FullSweep)
		cancel()
		<-done
		looked := 0
		for _, s := range sweeps[2:] {
			looked += s.Topics
		}
		if looked != 1 {
			t.Errorf("a topic at rest was looked at %d times in an hour, want once: %+v", looked, sweeps)
		}
	})
}

// TestNames: what cannot be a topic is none.
func TestNames(t *testing.T) {
	w := newWorld(t, 1)
	var bad *topic.NameError
	if _, err := w.Topic(t.Context(), t.Context(), "../x"); !errors.As(err, &bad) {
		t.Errorf("error %v", err)
	}
	if _, err := w.Topic(t.Context(), t.Context(), "none"); !errors.Is(err, segment.ErrNoTopic) {
		t.Errorf("error %v", err)
	}
}
