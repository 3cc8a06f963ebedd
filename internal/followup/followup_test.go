package followup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// TestLooksOnlyAtPending: of all records only pending ones are looked at, each
// once, and what came is not looked at again.
func TestLooksOnlyAtPending(t *testing.T) {
	w := newWorld(t, 2)
	live := w.live(t)
	w.commit(t, live[0].ID, "..v")
	w.commit(t, live[0].ID, "p.vrp")
	w.commit(t, live[1].ID, "pv")
	for _, p := range w.refs {
		w.objects.say(nil, p.url)
	}
	r := w.follow(t)
	if want := (Report{Looked: 3, Resolved: 3}); r != want {
		t.Errorf("%+v, want %+v", r, want)
	}
	if len(w.objects.looks) != 3 || len(w.objects.pinned) != 3 {
		t.Errorf("looked at %v", w.objects.looks)
	}
	if r := w.follow(t); r != (Report{}) {
		t.Errorf("again: %+v", r)
	}
	w.commit(t, live[1].ID, ".p")
	w.objects.say(nil, w.refs[3].url)
	if r := w.follow(t); r.Looked != 1 || r.Resolved != 1 {
		t.Errorf("with one more: %+v", r)
	}
	want := State{Epoch: 0, Segments: []Watermark{{live[0].ID, 2, 8}, {live[1].ID, 2, 4}}, Open: []Open{}, GivenUp: []GivenUp{}}
	if diff := cmp.Diff(want, w.state(t)); diff != "" {
		t.Error(diff)
	}
}

// TestComesLate: an object that comes after 3 minutes is found by the look that is
// due next, with looks at growing distances until then.
func TestComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), "p")
		url := w.refs[0].url
		time.AfterFunc(3*time.Minute, func() { w.objects.say(nil, url) })
		start := time.Now()
		var at []time.Duration
		for {
			r := w.follow(t)
			at = append(at, time.Since(start))
			if r.Next.IsZero() {
				break
			}
			if r.Open != 1 || w.objects.isPinned(w.top, url) {
				t.Fatalf("%+v, pinned: %v", r, w.objects.isPinned(w.top, url))
			}
			o := w.state(t).Open[0]
			if o.State != ref.Missing || o.Tries != len(at) || !o.Since.Equal(start) || !strings.Contains(o.Reason, "no such object") {
				t.Errorf("open: %+v", o)
			}
			bubble.Pass(time.Until(r.Next))
		}
		if want := []time.Duration{0, 30 * time.Second, 90 * time.Second, 210 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("looked at %v, want %v", at, want)
		}
		if s := w.state(t); !w.objects.isPinned(w.top, url) || len(s.Open)+len(s.GivenUp) != 0 {
			t.Errorf("pinned: %v; %+v", w.objects.isPinned(w.top, url), s)
		}
	})
}

// TestNeverComes: after a day of answers that it is not there an object is given
// up; the state and one line of the log say so.
func TestNeverComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), ".pv")
		start, looks := time.Now(), 0
		for r := w.follow(t); !r.Next.IsZero(); r = w.follow(t) {
			if looks++; looks > 100 {
				t.Fatal("it does not end")
			}
			bubble.Pass(time.Until(r.Next))
		}
		if took := time.Since(start); took < DefaultGiveUp || took > DefaultGiveUp+DefaultRetryAtMost {
			t.Errorf("given up after %s", took)
		}
		s := w.state(t)
		if len(s.Open) != 0 || len(s.GivenUp) != 1 || s.GaveUp != 1 {
			t.Fatalf("%+v", s)
		}
		g := s.GivenUp[0]
		if g.Segment != w.first(t) || g.Offset != 1 || g.URL != w.refs[0].url || g.State != ref.Missing || !g.At.Equal(time.Now().UTC().Truncate(time.Second)) {
			t.Errorf("%+v", g)
		}
		w.objects.say(nil, g.URL)
		if r := w.follow(t); r.Looked != 0 || w.logged("a pending reference is given up") != 1 {
			t.Errorf("looked again: %+v, log:\n%s", r, w.log)
		}
	})
}

// TestWrong: what cannot become right is given up at once; what may is not.
func TestWrong(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		state ref.State
		over  bool
	}{
		"another object": {&ref.MismatchError{What: "size", Want: "1", Got: "2"}, ref.Changed, true},
		"not allowed":    {&verdict.NotAllowedError{Topic: "orders"}, ref.Pending, true},
		"no URL":         {&ref.ParseError{URL: "x", Reason: "y"}, ref.Missing, true},
		"deleted":        {fmt.Errorf("head: %w", object.ErrDeleted), ref.Deleted, false},
		"no bucket":      {object.ErrNoBucket, ref.Missing, false},
		"no rights":      {object.ErrForbidden, ref.Pending, false},
		"silence":        {errDown, ref.Pending, false},
		"read-only":      {filer.ErrReadOnly, ref.Pending, false},
		"control\x00":    {errors.New("a\x00b\xff" + strings.Repeat("<", 1000)), ref.Pending, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			w.commit(t, w.first(t), "p")
			w.objects.say(c.err, w.refs[0].url)
			w.follow(t)
			s := w.state(t)
			if c.over {
				if len(s.Open) != 0 || len(s.GivenUp) != 1 || s.GivenUp[0].State != c.state {
					t.Errorf("%+v", s)
				}
				return
			}
			if len(s.Open) != 1 || len(s.GivenUp) != 0 || s.Open[0].State != c.state || len(s.Open[0].Reason) > 300 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestSilence: while nobody answers, few are asked, nothing is forgotten, and
// nothing is given up, however long it lasts. The day begins with the first answer.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		const n = 300
		w.commit(t, w.first(t), strings.Repeat("p", n))
		w.objects.fail(errDown)
		for end := time.Now().Add(3 * DefaultGiveUp); time.Now().Before(end); {
			r := w.follow(t)
			if r.Silent == nil || r.GivenUp != 0 || r.Looked > silence+DefaultParallel {
				t.Fatalf("%+v", r)
			}
			bubble.Pass(max(time.Until(r.Next), time.Hour))
		}
		w.objects.fail(nil)
		if r := w.follow(t); r.Looked != n || r.Open != n || r.Silent != nil {
			t.Fatalf("when there are answers: %+v", r)
		}
		bubble.Pass(DefaultGiveUp - time.Hour)
		if r := w.follow(t); r.GivenUp != 0 {
			t.Fatalf("before a day has passed: %+v", r)
		}
		for _, p := range w.refs {
			w.objects.say(nil, p.url)
		}
		bubble.Pass(DefaultRetryAtMost)
		if r := w.follow(t); r.Resolved != n || r.Open != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestSilenceAfterAnAnswer: an outage gives nothing up either when it comes after the
// first answer; the next answer decides.
func TestSilenceAfterAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), "p")
		w.follow(t)
		first := w.state(t).Open[0]
		w.objects.fail(errDown)
		for end := time.Now().Add(2 * DefaultGiveUp); time.Now().Before(end); {
			if r := w.follow(t); r.GivenUp != 0 || r.Open != 1 {
				t.Fatalf("%+v", r)
			}
			bubble.Pass(DefaultRetryAtMost)
		}
		if o := w.state(t).Open[0]; o.Tries != 1 || !o.Since.Equal(first.Since) || o.State != ref.Pending {
			t.Errorf("%+v", o)
		}
		w.objects.fail(nil)
		if r := w.follow(t); r.GivenUp != 1 {
			t.Errorf("%+v", r)
		}
	})
}

// TestSomeSilent: answers in between show that the endpoint is there.
func TestSomeSilent(t *testing.T) {
	w := newWorld(t, 1)
	const n, each = 100, 5
	w.commit(t, w.first(t), strings.Repeat("p", n))
	for i, p := range w.refs {
		w.objects.say(map[bool]error{true: errDown}[i%each == 0], p.url)
	}
	if r := w.follow(t); r.Looked != n || r.Open != n/each || r.Silent != nil {
		t.Errorf("%+v", r)
	}
}

// TestOneSilent: one object about which there is no answer keeps nobody from the
// others.
func TestOneSilent(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(t, w.first(t), "pppp")
	w.objects.say(errDown, w.refs[0].url)
	w.objects.say(nil, w.refs[1].url, w.refs[2].url, w.refs[3].url)
	if r := w.follow(t); r.Resolved != 3 || r.Open != 1 || r.Silent != nil {
		t.Errorf("%+v", r)
	}
}

// TestSilenceAmongUnasked: what is decided without a look is no answer, and does not
// hide that nobody answers.
func TestSilenceAmongUnasked(t *testing.T) {
	w := newWorld(t, 1)
	w.Parallel = 1
	w.slots = make(chan struct{}, 1)
	w.commit(t, w.first(t), strings.Repeat("p", 100))
	for i, p := range w.refs {
		w.objects.say([]error{errDown, &verdict.NotAllowedError{Topic: "orders"}}[i%2], p.url)
	}
	if r := w.follow(t); r.Silent == nil || r.Looked > 2*silence || r.GivenUp != r.Looked/2 {
		t.Errorf("%+v", r)
	}
}

// TestElsewhere: a topic whose objects are at another endpoint is left to those
// who follow up there, as it is.
func TestElsewhere(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(t, w.first(t), "pp")
	for _, err := range []error{&verdict.ElsewhereError{Topic: "orders"}, verdict.ErrNoEndpoint} {
		w.objects.fail(err)
		if r := w.follow(t); !errors.Is(r.Elsewhere, err) || !r.Next.IsZero() || r.Open != 0 {
			t.Errorf("%+v", r)
		}
	}
	if _, err := Load(t.Context(), w.store, w.top); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("something was saved: %v", err)
	}
	w.objects.fail(nil)
	if r := w.follow(t); r.Open != 2 {
		t.Errorf("there: %+v", r)
	}
}

// TestParallel: looks run side by side, and never more than so many, over all
// topics.
func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), strings.Repeat("p", 50))
		first := w.top
		w.top = w.create(t, "others", 1)
		w.commit(t, w.first(t), strings.Repeat("p", 50))
		w.objects.wait = make(chan struct{})
		done := make(chan error)
		go func() {
			_, err := w.Sweep(t.Context(), t.Context(), false)
			done <- err
		}()
		synctest.Wait()
		if w.objects.now != DefaultParallel {
			t.Errorf("%d looks at a time", w.objects.now)
		}
		close(w.objects.wait)
		if err := <-done; err != nil || w.objects.most != DefaultParallel {
			t.Errorf("%v, at most %d looks at a time", err, w.objects.most)
		}
		w.top = first
		if s := w.state(t); len(s.Open) != 50 {
			t.Errorf("%d are open", len(s.Open))
		}
	})
}

// TestSlowLook: a look that takes too long is silence, and the next pass tries again.
func TestSlowLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), "p")
		w.objects.wait = make(chan struct{})
		start := time.Now()
		r := w.follow(t)
		if took := time.Since(start); took != DefaultTimeout || r.Open != 1 {
			t.Errorf("%+v after %s", r, took)
		}
		if o := w.state(t).Open[0]; o.Tries != 0 || o.State != ref.Pending {
			t.Errorf("%+v", o)
		}
	})
}

// TestStop: told to stop, a pass begins no more looks, and saves what it has.
func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), strings.Repeat("p", 100))
		w.objects.wait = make(chan struct{})
		stop, cancel := context.WithCancel(t.Context())
		done := make(chan Report)
		go func() {
			r, err := w.Topic(t.Context(), stop, "orders")
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(w.objects.wait)
		r := <-done
		if r.Looked != DefaultParallel || r.Open != DefaultParallel || !r.Cut {
			t.Errorf("%+v", r)
		}
		if s := w.state(t); len(s.Open) != DefaultParallel || s.Segments[0].Offset != DefaultParallel {
			t.Errorf("%d are open, and the watermark is at %d", len(s.Open), s.Segments[0].Offset)
		}
		if r := w.follow(t); r.Open != 100 || r.Looked != 100-DefaultParallel || r.Cut {
			t.Errorf("the next pass: %+v", r)
		}
	})
}

// TestFull: when as many are open as can be, what is pending beyond them waits, in
// the middle of a chunk too, and none is forgotten.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.GiveUp = 2 * time.Hour
		live := w.live(t)
		const n = 20_000
		w.commit(t, live[0].ID, strings.Repeat("p", 15_000))
		w.commit(t, live[1].ID, strings.Repeat(".p", 5_000))
		r := w.follow(t)
		if r.Looked != MaxOpen || r.Open != MaxOpen || !r.Full {
			t.Fatalf("%+v", r)
		}
		w.commit(t, live[0].ID, "p")
		if r := w.follow(t); r.Looked != 0 || !r.Full {
			t.Fatalf("%+v", r)
		}
		for i, p := range w.refs {
			if i%2 == 0 {
				w.objects.say(nil, p.url)
			}
		}
		for rounds := 0; ; rounds++ {
			r := w.follow(t)
			if s := w.state(t); len(s.Open) > MaxOpen {
				t.Fatalf("%d are open", len(s.Open))
			}
			if r.Next.IsZero() {
				break
			}
			if rounds > 200 {
				t.Fatal("it does not end")
			}
			bubble.Pass(max(time.Until(r.Next), time.Minute))
		}
		s := w.state(t)
		if pinned := len(w.objects.pinned); pinned != n/2+1 || len(s.Open) != 0 || s.GaveUp != n/2 || len(s.GivenUp) != MaxGivenUp {
			t.Errorf("%d pinned, %d open, %d given up, of which %d are listed", pinned, len(s.Open), s.GaveUp, len(s.GivenUp))
		}
	})
}
