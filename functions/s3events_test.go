package functions

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/s3event"
)

func TestRelayFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRelayWorld(t)
		w.hist.put("before")
		bubble.Pass(time.Second)
		r := w.relay(S3EventsOptions{})
		bubble.Pass(time.Second)
		w.hist.put("a")
		w.hist.touch("a")
		w.hist.put("b")
		w.hist.put("a")
		w.hist.remove("b")
		removal := w.hist.all[len(w.hist.all)-1]
		bubble.Pass(time.Second)
		want := []string{"w2", "w3", "w4", fmt.Sprintf("%016X", removal.Sequencer)}
		if got := w.lane.published(); !slices.Equal(got, want) {
			t.Errorf("published %q, want %q", got, want)
		}
		r.end(t)
		if r.sum.Published != 4 || r.sum.Found != 0 || r.state != r.saved || r.state.Position < removal.Sequencer {
			t.Errorf("%+v, %+v", r.sum, r.state)
		}

		// The next one goes on where this one ended.
		w.hist.put("c")
		r = w.relay(S3EventsOptions{})
		bubble.Pass(time.Second)
		r.end(t)
		if got := w.lane.published(); !slices.Equal(got, append(want, "w5")) {
			t.Errorf("published %q", got)
		}
	})
}

// TestRelayCrashes: the filer loses events that were followed, that were not, and
// that were touched since. What was published is known, and what was not is found.
func TestRelayCrashes(t *testing.T) {
	for name, silent := range map[string]bool{"idle": false, "without a word": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRelayWorld(t)
				w.hist.silent = silent
				r := w.relay(S3EventsOptions{})
				bubble.Pass(time.Minute)
				w.hist.put("followed")
				w.hist.put("pinned")
				bubble.Pass(time.Second)
				w.hist.touch("pinned")
				w.hist.crash(3) // all of these
				w.hist.put("lost")
				w.hist.put("lost and pinned")
				w.hist.touch("lost and pinned")
				w.hist.put("lost and gone")
				w.hist.remove("lost and gone")
				w.hist.crash(5)
				w.hist.put("told")
				bubble.Pass(time.Minute)
				r.end(t)
				got := w.lane.published()
				slices.Sort(got)
				if want := []string{"w1", "w2", "w3", "w4", "w6"}; !slices.Equal(got, want) {
					t.Errorf("published %q, want %q", got, want)
				}
				if r.sum.Found != 2 {
					t.Errorf("%+v\n%s", r.sum, &w.log)
				}
			})
		})
	}
}

// TestRelayMisses: what a crash loses while the bucket is listed, and while the log
// is read for what it has lost, is found as well.
func TestRelayMisses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRelayWorld(t)
		first := true
		w.hist.listing = func() {
			if first {
				first = false
				w.hist.put("while listing")
				w.hist.crash(1)
			}
		}
		w.hist.put("a")
		r := w.relay(S3EventsOptions{Since: time.Hour})
		bubble.Pass(time.Minute)
		r.end(t)
		got := w.lane.published()
		if slices.Sort(got); !slices.Equal(got, []string{"w1", "w2"}) {
			t.Errorf("published %q", got)
		}
	})
}

// TestRelayWaits: while the lane takes nothing the relay waits, the cursor does not
// move, and no more is kept than fits into the window.
func TestRelayWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRelayWorld(t)
		w.lane.delay = time.Millisecond
		r := w.relay(S3EventsOptions{})
		bubble.Pass(time.Second)
		w.lane.set(true)
		before := w.hist.put("a").Sequencer
		for i := range 5000 {
			w.hist.put(fmt.Sprint("k", i))
		}
		bubble.Pass(10 * time.Minute)
		if saved, _, err := r.file.Load(t.Context()); err != nil || saved.Position >= before {
			t.Errorf("saved %+v, %v", saved, err)
		}
		if err := r.deps.Health.Err(); err == nil {
			t.Error("it says that all is well")
		}
		w.lane.set(false)
		bubble.Pass(time.Minute)
		if err := r.deps.Health.Err(); err != nil {
			t.Error(err)
		}
		r.end(t)
		if w.lane.most > relayWindow {
			t.Errorf("%d were on their way", w.lane.most)
		}
		if got := w.lane.published(); len(got) != 5001 || got[0] != "w1" {
			t.Errorf("%d published", len(got))
		}
	})
}

// TestRelayOrder: what is tried again does not overtake, of one object.
func TestRelayOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRelayWorld(t)
		w.lane.faulty, w.lane.delay = 0.5, time.Millisecond
		r := w.relay(S3EventsOptions{})
		bubble.Pass(time.Second)
		var want []string
		for i := range 100 {
			w.hist.put("a")
			want = append(want, fmt.Sprint("w", i+1))
		}
		bubble.Pass(10 * time.Minute)
		r.end(t)
		if got := w.lane.published(); !slices.Equal(slices.Compact(got), want) {
			t.Errorf("published %q", got)
		}
	})
}

// TestRelayCursor: it never goes back, whoever saves.
func TestRelayCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRelayWorld(t)
		dir, at := "/buckets/store/x", time.Now().UnixNano()
		load := func(r *relay) relayState {
			if err := r.load(t.Context(), dir); err != nil {
				t.Fatal(err)
			}
			return r.state
		}
		save := func(r *relay, position, checked int64) {
			r.state.Position, r.state.Checked = position, checked
			if err := r.save(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		a, b := w.idle(S3EventsOptions{Since: time.Hour}).relay, w.idle(S3EventsOptions{}).relay
		first := load(a)
		if want := at - int64(time.Hour); first.Position != want || first.Checked != want || first.Bucket != "bkt" {
			t.Errorf("begins with %+v", first)
		}
		if s := load(b); s != first {
			t.Errorf("the second begins with %+v", s)
		}
		save(a, at+5, at+1)
		save(b, at+3, at+3)
		c := w.idle(S3EventsOptions{}).relay
		if s := load(c); s.Position != at+5 || s.Checked != at+3 {
			t.Errorf("saved %+v", s)
		}
		c.state.Position = at + 9 // not saved
		if s := load(c); s.Position != at+9 || c.seen != at+9 || c.saved.Position != at+5 {
			t.Errorf("loaded %+v", s)
		}
		if err := w.fs.Client("test", nil).Delete(t.Context(), c.file.Path(), ""); err != nil {
			t.Fatal(err)
		}
		if s := load(c); s.Position != at+9 {
			t.Errorf("made anew %+v", s)
		}
	})
}

func TestRelayOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRelayWorld(t)
		w.hist.put("a")
		bubble.Pass(time.Minute)
		w.hist.put("lost")
		w.hist.crash(1)
		bubble.Pass(2 * time.Second) // which it takes longer to be there again
		once := func(o S3EventsOptions) S3EventsSummary {
			o.Once = true
			r := w.relay(o)
			if err := <-r.done; err != nil {
				t.Fatal(err)
			}
			bubble.Pass(2 * time.Second)
			return r.sum
		}
		if sum := once(S3EventsOptions{Since: time.Hour}); sum.Published != 2 || sum.Found != 1 {
			t.Errorf("%+v", sum)
		}
		if sum := once(S3EventsOptions{}); sum.Found != 0 || len(w.lane.published()) != 2 {
			t.Errorf("%+v, %q", sum, w.lane.published())
		}
		w.hist.remove("a")
		w.hist.put("b")
		if sum := once(S3EventsOptions{}); sum.Found != 0 || len(w.lane.published()) != 4 {
			t.Errorf("%+v, %q", sum, w.lane.published())
		}
		w.lane.set(true)
		w.hist.put("c")
		r := w.relay(S3EventsOptions{Once: true})
		if err := <-r.done; ExitCode(err) != ExitRetry || r.sum.Retries == 0 {
			t.Errorf("%v, %+v", err, r.sum)
		}
	})
}

// TestRelayOfTheGone: a topic, or a bucket, that is not there is told at once, and a
// filer that does not answer is waited for.
func TestRelayOfTheGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newRelayWorld(t)
		tries := 0
		w.hist.refuse = func(int64, bool) error {
			if tries++; tries < 5 {
				return errors.New("not now")
			}
			return nil
		}
		r := w.relay(S3EventsOptions{})
		bubble.Pass(time.Minute)
		w.hist.put("a")
		bubble.Pass(time.Second)
		if got := w.lane.published(); len(got) != 1 || tries < 5 {
			t.Errorf("published %q after %d tries", got, tries)
		}
		if err := w.fs.Client("test", nil).DeleteTree(t.Context(), "/buckets/bkt"); err != nil {
			t.Fatal(err)
		}
		w.hist.crash(0)
		if err := <-r.done; ExitCode(err) != ExitConfig {
			t.Error(err)
		}
		if err := w.fs.Client("test", nil).DeleteTree(t.Context(), "/buckets/store/topics/t"); err != nil {
			t.Fatal(err)
		}
		if err := <-w.relay(S3EventsOptions{}).done; ExitCode(err) != ExitConfig {
			t.Error(err)
		}
	})
}

// TestRelayHistories has random things happen, to the bucket, the filer, the lane,
// and one or two relays, and then holds what was published against what happened.
func TestRelayHistories(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { relayHistory(t, rand.New(rand.NewPCG(seed, 7))) })
		})
		if t.Failed() {
			break
		}
	}
}

func relayHistory(t *testing.T, rng *rand.Rand) {
	w := newRelayWorld(t)
	w.lane.rng = rand.New(rand.NewPCG(rng.Uint64(), 7))
	w.lane.faulty, w.lane.delay = []float64{0, 0.3}[rng.IntN(2)], time.Duration(rng.IntN(20))*time.Millisecond
	o := S3EventsOptions{Reconcile: []time.Duration{time.Minute, time.Hour}[rng.IntN(2)]}
	relays := []*running{w.relay(o)}
	if rng.IntN(4) == 0 {
		relays = append(relays, w.relay(o))
	}
	away := false
	again := false // a relay began that does not know what the last one published
	bubble.Pass(time.Second)
	for range 80 {
		key := fmt.Sprint("k", rng.IntN(8))
		switch n := rng.IntN(20); {
		case n < 8:
			w.hist.put(key)
		case n < 11:
			w.hist.touch(key)
		case n < 13:
			w.hist.remove(key)
		case n < 14:
			w.hist.crash(rng.IntN(10))
		case n < 15:
			i := rng.IntN(len(relays))
			if again = true; rng.IntN(2) == 0 {
				relays[i].kill()
			} else {
				relays[i].end(t)
			}
			bubble.Pass(time.Duration(rng.IntN(3)) * time.Second)
			if rng.IntN(3) == 0 {
				w.hist.put(key)
				w.hist.crash(rng.IntN(3))
			}
			relays[i] = w.relay(o)
		case n < 16:
			away = !away
			w.lane.set(away)
		default:
			bubble.Pass(time.Duration(rng.ExpFloat64() * float64(3*time.Second)))
		}
	}
	w.lane.set(false)
	bubble.Pass(10 * time.Minute)
	for _, r := range relays {
		r.end(t)
	}
	w.check(again || len(relays) > 1)
	if t.Failed() {
		t.Log(w.log.String())
	}
}

// check holds what was published against what happened.
func (w *relayWorld) check(twice bool) {
	sequencers := map[string]map[string]bool{}
	for _, e := range w.lane.sent {
		name := e.ETag
		if e.Kind == s3event.Removed {
			name = e.Sequencer
		}
		if sequencers[name] == nil {
			sequencers[name] = map[string]bool{}
		}
		sequencers[name][e.Sequencer] = true
	}
	for _, e := range w.hist.all {
		name := nameOf(e.ETag, e.Sequencer)
		there := w.hist.entries[e.Object.Key].ETag == e.ETag && e.Kind == seaweed.Created
		told := len(sequencers[name])
		if told == 0 && (there || !w.hist.lost[name]) {
			w.t.Errorf("%s %s of %s was not published (lost: %v, there: %v)", e.Name, name, e.Object.Key, w.hist.lost[name], there)
		}
		if told > 1 && !twice {
			w.t.Errorf("%s of %s was published with sequencers %v", name, e.Object.Key, sequencers[name])
		}
	}
}
