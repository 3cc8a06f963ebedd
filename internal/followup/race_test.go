package followup

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// decided checks that each pending reference has come to its end: those whose
// objects are there are pinned, the others are given up, and nothing is open.
func (w *world) decided(t tester) {
	t.Helper()
	s := w.state(t)
	given := map[place]int{}
	for _, g := range s.GivenUp {
		given[place{segment: g.Segment, offset: g.Offset, url: g.URL}]++
	}
	for _, p := range w.refs {
		err, known := w.objects.says[p.url]
		there, n := known && err == nil, given[place{segment: p.segment, offset: p.offset, url: p.url}]
		if there && (n != 0 || !w.objects.isPinned(w.top, p.url)) || !there && n != 1 {
			t.Errorf("%s at %s/%d: there %v, pinned %v, given up %d times", p.url, p.segment, p.offset, there, w.objects.isPinned(w.top, p.url), n)
		}
	}
	if len(s.Open) > 0 || int(s.GaveUp) != len(s.GivenUp) {
		t.Errorf("open: %+v, %d given up, %d are listed", s.Open, s.GaveUp, len(s.GivenUp))
	}
}

// untilDecided follows up until nothing is open.
func (w *world) untilDecided(t tester) {
	t.Helper()
	for n := 0; ; n++ {
		r := w.follow(t)
		if r.Next.IsZero() {
			return
		}
		if n > 2000 {
			t.Fatalf("it does not end: %+v", r)
		}
		<-time.After(max(time.Until(r.Next), time.Second))
	}
}

// TestCrash: a follower dies after every call of its first two passes. What the next
// one finds is complete: each reference is looked at until it is decided, and told
// once.
func TestCrash(t *testing.T) {
	for n := 0; ; n++ {
		over := false
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 2)
			live := w.live(t)
			w.commit(t, live[0].ID, "p.v")
			w.commit(t, live[0].ID, "vpp")
			w.commit(t, live[1].ID, "p")
			w.objects.say(nil, w.refs[1].url)
			ctx, f, calls := w.crashing(t.Context(), n)
			_, err := f.Topic(ctx, ctx, "orders")
			if err == nil {
				_, err = w.top.Edit(t.Context(), time.Now(), func(l topic.Layout) (topic.Edit, error) { return l.SplitWays(l.Live[0].ID, 2) })
				if err != nil {
					t.Fatal(err)
				}
				w.commit(t, w.first(t), "pp")
				bubble.Pass(DefaultRetryAfter)
				w.objects.say(nil, w.refs[0].url)
				_, err = f.Topic(ctx, ctx, "orders")
			}
			if crashed := calls.Load() > int64(n); crashed != (err != nil) {
				t.Fatalf("after %d of %d calls: error %v", n, calls.Load(), err)
			}
			over = err == nil
			w.untilDecided(t)
			w.decided(t)
			for _, p := range w.refs {
				if w.objects.looked(w.top, p.url) == 0 {
					t.Errorf("crash after call %d: %s was never looked at", n, p.url)
				}
			}
			if s := w.state(t); w.logged("is given up") != int(s.GaveUp) {
				t.Errorf("crash after call %d: %d given up, log:\n%s", n, s.GaveUp, w.log)
			}
		})
		if over {
			t.Logf("two passes make %d calls", n)
			return
		}
	}
}

// TestLostReplies: a save whose answer is lost counts once, whether it had its effect
// or not.
func TestLostReplies(t *testing.T) {
	for name, fault := range map[string]memfs.Fault{
		"after": {After: errors.New("lost")}, "before": {Before: errors.New("lost")}, "late": {Late: 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 1)
				w.commit(t, w.first(t), "ppp")
				w.objects.say(nil, w.refs[1].url)
				store := segment.NewStore(w.fs.Client("follower", func(op memfs.Op) memfs.Fault {
					if strings.HasSuffix(op.Path, "/refs.json") && op.N == 1 {
						return fault
					}
					return memfs.Fault{}
				}), "test")
				w.Follower = w.follower(store)
				w.untilDecided(t)
				w.fs.Settle()
				w.decided(t)
			})
		})
	}
}

// TestSideBySide: several follow up the same topic, on a slow filer, while records
// come and segments are split and merged. Each reference comes to its end, once.
func TestSideBySide(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd, steps := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			var mu sync.Mutex
			slow := func(memfs.Op) memfs.Fault {
				mu.Lock()
				defer mu.Unlock()
				return memfs.Fault{Delay: time.Duration(rnd.IntN(200)) * time.Millisecond, Hold: time.Duration(rnd.IntN(200)) * time.Millisecond}
			}
			w := newWorld(t, 2)
			var all sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for _, name := range []string{"a", "b", "c"} {
				f := w.follower(segment.NewStore(w.fs.Client(name, slow), "test"))
				f.Logger = w.Logger
				all.Go(func() {
					for ctx.Err() == nil {
						if _, err := f.Topic(t.Context(), ctx, "orders"); err != nil {
							t.Errorf("%s: %v", name, err)
						}
						select {
						case <-ctx.Done():
						case <-time.After(10 * time.Second):
						}
					}
				})
			}
			for range 20 {
				w.step(t, steps.IntN)
				bubble.Pass(time.Duration(steps.IntN(20)) * time.Second)
			}
			stop()
			all.Wait()
			w.untilDecided(t)
			w.decided(t)
			if s := w.state(t); w.logged("is given up") != int(s.GaveUp) {
				t.Errorf("%d given up, %d of them logged", s.GaveUp, w.logged("is given up"))
			}
			if problems := w.fs.Problems(); len(problems) > 0 {
				t.Error(problems)
			}
		})
	}
}

// TestSlower: who finds at the end of a round that somebody else was faster has done
// nothing, and goes on from there.
func TestSlower(t *testing.T) {
	for _, name := range []string{"Create", "Update"} {
		w := newWorld(t, 1)
		if name == "Update" {
			w.follow(t)
		}
		w.commit(t, w.first(t), "ppp")
		w.objects.say(nil, w.refs[0].url)
		w.objects.say(&ref.MismatchError{What: "etag"}, w.refs[1].url)
		slow := segment.NewStore(w.fs.Client("slow", func(op memfs.Op) memfs.Fault {
			if op.Name == name && strings.HasSuffix(op.Path, "/refs.json") && op.N == 1 {
				if r := w.follow(t); r.Resolved != 1 || r.GivenUp != 1 || r.Open != 1 {
					t.Errorf("the faster one: %+v", r)
				}
			}
			return memfs.Fault{}
		}), "test")
		f := w.follower(slow)
		r, err := f.Topic(t.Context(), t.Context(), "orders")
		if err != nil || r.Looked+r.Resolved+r.GivenUp != 0 || r.Open != 1 {
			t.Errorf("%s: the slower one: %+v, %v", name, r, err)
		}
		if s := w.state(t); s.GaveUp != 1 || w.logged("is given up") != 1 {
			t.Errorf("%s: %+v, log:\n%s", name, s, w.log)
		}
	}
}

// TestEditHalfDone: a planner dies after each call of a split. Whatever a pass sees
// of it, those that follow see the children, and what is pending in them.
func TestEditHalfDone(t *testing.T) {
	split := func(l topic.Layout) (topic.Edit, error) { return l.SplitWays(l.Live[0].ID, 2) }
	for n := 0; ; n++ {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), "p")
		w.follow(t)
		ctx, store, _ := w.dying(t.Context(), n)
		top, err := store.Topic(ctx, "orders")
		if err == nil {
			_, err = top.Edit(ctx, time.Now(), split)
		}
		w.follow(t)
		if _, err := w.top.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		live := w.live(t)
		for _, l := range live {
			w.commit(t, l.ID, ".p")
		}
		if r := w.follow(t); r.Looked != len(live) || r.Open != 1+len(live) {
			t.Errorf("dead after call %d, %d segments: %+v", n, len(live), r)
		}
		if err == nil {
			return
		}
	}
}

// step does something to the topic.
func (w *world) step(t tester, pick func(int) int) {
	t.Helper()
	live := w.live(t)
	i := pick(len(live))
	edit := func(plan func(l topic.Layout) (topic.Edit, error)) {
		if _, err := w.top.Edit(t.Context(), time.Now(), plan); err != nil {
			t.Fatal(err)
		}
	}
	switch op := pick(10); {
	case op < 5:
		wishes := make([]byte, 1+pick(5))
		for i := range wishes {
			wishes[i] = ".vpp"[pick(4)]
		}
		w.commit(t, live[i].ID, string(wishes))
	case op == 5 && len(live) < 5:
		edit(func(l topic.Layout) (topic.Edit, error) { return l.SplitWays(live[i].ID, 2) })
	case op == 6 && i+1 < len(live):
		edit(func(l topic.Layout) (topic.Edit, error) { return l.Merge(live[i].ID, live[i+1].ID) })
	case op == 7:
		edit(func(l topic.Layout) (topic.Edit, error) { return l.Roll(live[i].ID) })
	default:
		if len(w.refs) > 0 {
			w.objects.say(nil, w.refs[pick(len(w.refs))].url)
		}
	}
}

// TestAnyHistory: whatever is committed, edited and crashes in between, each pending
// reference comes to its end, and the state holds no more than what is live then.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, 1+rapid.IntRange(0, 2).Draw(t, "segments"))
		now := time.Now()
		w.Now = func() time.Time { return now }
		w.MaxOpen = rapid.SampledFrom([]int{1, 2, 5, MaxOpen}).Draw(t, "most open")
		pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
		for range rapid.IntRange(0, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "who") {
			case 0:
				w.follow(t)
			case 1:
				ctx, f, _ := w.crashing(t.Context(), rapid.IntRange(0, 40).Draw(t, "calls"))
				f.Now, f.MaxOpen = w.Now, w.MaxOpen
				_, _ = f.Topic(ctx, ctx, "orders") // it may die
			default:
				w.step(t, pick)
			}
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
		}
		for n := 0; ; n++ {
			r := w.follow(t)
			if r.Next.IsZero() {
				break
			}
			if n > 2000 {
				t.Fatalf("it does not end: %+v", r)
			}
			now = now.Add(max(r.Next.Sub(now), time.Second))
		}
		w.decided(t)
		live := w.live(t)
		s := w.state(t)
		if len(s.Segments) != len(live) || slices.ContainsFunc(s.Segments, func(m Watermark) bool {
			return !slices.ContainsFunc(live, func(l topic.Live) bool { return l.ID == m.Segment })
		}) {
			t.Errorf("the state knows %+v, live is %v", s.Segments, live)
		}
	})
}
