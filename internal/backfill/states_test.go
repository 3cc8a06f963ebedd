package backfill

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// do makes a transition out of a call.
type do = func(*State) error

// TestPhases: every transition from every phase.
func TestPhases(t *testing.T) {
	transitions := map[string]do{
		"pause":     func(s *State) error { return s.Pause("night") },
		"resume":    func(s *State) error { return s.Resume() },
		"cancel":    func(s *State) error { return s.Cancel(dawn, "wrong file") },
		"finish":    func(s *State) error { return s.Finish(dawn, "r", Progress{}) },
		"stop":      func(s *State) error { s.Stop(dawn, "r", "rejects", Progress{}); return nil },
		"claim":     func(s *State) error { return s.Claim(dawn, "r", "h") },
		"summarise": func(s *State) error { s.Summarise(Progress{}); return nil },
	}
	want := map[Phase]map[string]Phase{ // absent: refused
		Open:      {"pause": Paused, "resume": Open, "cancel": Cancelled, "finish": Done, "stop": Stopped, "claim": Open, "summarise": Open},
		Paused:    {"pause": Paused, "resume": Open, "cancel": Cancelled, "finish": Done, "stop": Paused, "summarise": Paused},
		Stopped:   {"resume": Open, "cancel": Cancelled, "finish": Done, "stop": Stopped, "summarise": Stopped},
		Cancelled: {"cancel": Cancelled, "stop": Cancelled, "summarise": Cancelled},
		Done:      {"finish": Done, "stop": Done, "summarise": Done},
	}
	for from, outcomes := range want {
		for name, transition := range transitions {
			s := NewState(goldenJob())
			s.Phase = from
			before := s.clone()
			err := transition(&s)
			to, ok := outcomes[name]
			var refused *PhaseError
			switch {
			case ok && (err != nil || s.Phase != to):
				t.Errorf("%s when %s: %s, %v", name, from, s.Phase, err)
			case !ok && (!errors.As(err, &refused) || refused.Phase != from || s.Phase != before.Phase):
				t.Errorf("%s when %s: %s, %v, want it refused", name, from, s.Phase, err)
			}
			if s.Phase.Final() != (s.Phase == Done || s.Phase == Cancelled) || s.Phase.Final() && from != s.Phase && s.Ended != dawn {
				t.Errorf("%s when %s: ended %s", name, from, s.Ended)
			}
			if s.Phase == Open && s.Summary != nil {
				t.Errorf("%s when %s: an open job has a summary", name, from)
			}
		}
	}
}

// TestRunners: one run has the job at a time, unless it gives no sign of life; the
// time that runs worked is counted up to their last one.
func TestRunners(t *testing.T) {
	s := NewState(goldenJob())
	steps := []struct {
		after  time.Duration
		do     func(now time.Time) error
		held   bool
		runner string
		runs   uint64
		worked time.Duration
	}{
		{0, func(n time.Time) error { return s.Claim(n, "a", "h1") }, false, "a", 1, 0},
		{10 * time.Second, func(n time.Time) error { return s.Claim(n, "b", "h2") }, true, "a", 1, 0},
		{10 * time.Second, func(n time.Time) error { return s.Renew(n, "a") }, false, "a", 1, 20 * time.Second},
		{1500 * time.Millisecond, func(n time.Time) error { return s.Claim(n, "a", "h1") }, false, "a", 1, 21500 * time.Millisecond},
		{29 * time.Second, func(n time.Time) error { return s.Claim(n, "b", "h2") }, true, "a", 1, 21500 * time.Millisecond},
		{time.Second, func(n time.Time) error { return s.Claim(n, "b", "h2") }, false, "b", 2, 21500 * time.Millisecond},
		{time.Second, func(n time.Time) error { return s.Renew(n, "a") }, true, "b", 2, 21500 * time.Millisecond},
		{0, func(n time.Time) error { s.Release(n, "a"); return nil }, false, "b", 2, 21500 * time.Millisecond},
		{time.Second, func(n time.Time) error { s.Release(n, "b"); return nil }, false, "", 2, 23500 * time.Millisecond},
		{0, func(n time.Time) error {
			if err := s.Renew(n, "b"); !errors.Is(err, ErrNoRunner) {
				return err
			}
			return nil
		}, false, "", 2, 23500 * time.Millisecond},
		{time.Second, func(n time.Time) error { return s.Claim(n, "c", "h3") }, false, "c", 3, 23500 * time.Millisecond},
		// A clock that steps back: nothing is taken off, and nobody waits for long.
		{-time.Hour, func(n time.Time) error { return s.Renew(n, "c") }, false, "c", 3, 23500 * time.Millisecond},
		{-time.Hour, func(n time.Time) error { return s.Claim(n, "d", "h3") }, false, "d", 4, 23500 * time.Millisecond},
	}
	now := dawn
	for i, step := range steps {
		now = now.Add(step.after)
		err := step.do(now)
		if held := errors.As(err, new(*HeldError)); held != step.held || !held && err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		runner := ""
		if s.Runner != nil {
			runner = s.Runner.ID
		}
		if runner != step.runner || s.Runs != step.runs || time.Duration(s.Worked) != step.worked || s.Started != dawn {
			t.Fatalf("step %d: %+v, runner %q", i, s, runner)
		}
	}
}

func TestTooMany(t *testing.T) {
	share := func(n uint32) Limits { return Limits{MaxRejects: &n} }
	for _, c := range []struct {
		l              Limits
		rejected, rows uint64
		want           bool
	}{
		{Limits{}, 1 << 40, 1 << 40, false},
		{share(0), 0, 1 << 40, false},
		{share(0), 1, 1 << 40, true},
		{share(0), 1, 1, true},
		{share(50_000), 50, 50, false}, // 5 % of a thousand
		{share(50_000), 51, 51, true},
		{share(50_000), 500, 10_000, false},
		{share(50_000), 501, 10_000, true},
		{share(1_000_000), 5000, 5000, false},
	} {
		if got := c.l.TooMany(c.rejected, c.rows); got != c.want {
			t.Errorf("%d of %d: %v", c.rejected, c.rows, got)
		}
	}
	if share(1_000_001).Validate() == nil {
		t.Error("more than all")
	}
}

// TestUpdatesRace: all changes land.
func TestUpdatesRace(t *testing.T) {
	d := newDesk(t)
	made, err := d.Create(t.Context(), draft(3, 1))
	d.ok(err)
	d.ok(d.store.Filer.Delete(t.Context(), d.stateFile(made.ID).Path(), "")) // is made again by one of them
	var g errgroup.Group
	for i := range 20 {
		g.Go(func() error {
			_, err := d.jobs(nil).Update(t.Context(), made.ID, func(s *State) error {
				s.Runs++
				s.Limits.Rows += uint64(i)
				return nil
			})
			return err
		})
	}
	d.ok(g.Wait())
	s, err := d.State(t.Context(), made.ID)
	if err != nil || s.Runs != 20 || s.Limits.Rows != 190 {
		t.Errorf("%+v, %v", s, err)
	}
	v := d.version(made.ID)
	if _, err := d.Update(t.Context(), made.ID, func(s *State) error { return s.Resume() }); err != nil || d.version(made.ID) != v {
		t.Errorf("a change of nothing: %v", err)
	}
	if _, err := d.Update(t.Context(), made.ID, func(s *State) error { s.Runs = 0; return errCrashed }); !errors.Is(err, errCrashed) || d.version(made.ID) != v {
		t.Errorf("a change that fails: %v", err)
	}
	for _, id := range []string{"nobody", "No Id"} {
		_, err := d.Update(t.Context(), id, func(*State) error { return nil })
		if !errors.Is(err, ErrNoJob) && !errors.As(err, new(*IDError)) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func (d *desk) version(id string) string {
	d.Helper()
	e, err := d.store.Filer.Lookup(d.Context(), d.stateFile(id).Path())
	d.ok(err)
	return e.ID
}

// TestUpdateCrashes: an update that dies at any call leaves the state as it was, or
// as it was to be.
func TestUpdateCrashes(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for at := 1; ; at++ {
			d := newDesk(t)
			made, err := d.Create(t.Context(), draft(3, 1))
			d.ok(err)
			ctx, kill := context.WithCancel(t.Context())
			c := &crash{n: at, lost: lost, kill: kill}
			_, err = d.jobs(c.hook).Update(ctx, made.ID, func(s *State) error { return s.Pause("") })
			kill()
			if !c.dead {
				d.ok(err)
				break
			}
			s, err := d.State(t.Context(), made.ID)
			if err != nil || s.Phase != Open && s.Phase != Paused {
				t.Fatalf("call %d: %+v, %v", at, s, err)
			}
		}
	}
}

// TestList: a list needs no job's file, and tells of jobs that nobody may work on.
func TestList(t *testing.T) {
	d := newDesk(t)
	for l, err := range d.List(t.Context()) {
		t.Errorf("of none: %+v, %v", l, err)
	}
	var ids []string
	for i := range 1100 { // more than a page
		job := draft(2, 1)
		job.ID, job.Origin = fmt.Sprintf("job%05d", i), fmt.Sprint(i)
		_, err := d.Create(t.Context(), job)
		d.ok(err)
		ids = append(ids, job.ID)
	}
	f := d.store.Filer
	d.ok(f.Delete(t.Context(), d.jobPath(ids[3]), ""))
	d.ok(f.Delete(t.Context(), d.stateFile(ids[4]).Path(), ""))
	d.ok(d.fs.Corrupt(d.jobPath(ids[5]))) // is not read
	d.ok(d.spoil(d.stateFile(ids[6]).Path()))
	d.ok(f.Create(t.Context(), path.Join(d.dir(), "No Id", "x"), filer.File{ID: "x"}))
	d.ok(d.fs.Corrupt(d.jobPath(ids[7])))
	d.ok(f.Delete(t.Context(), d.stateFile(ids[7]).Path(), ""))

	var got []string
	bad := map[string]error{}
	reads := 0
	counting := d.jobs(func(op memfs.Op) memfs.Fault {
		if op.Name == "Open" {
			reads++
		}
		return memfs.Fault{}
	})
	for l, err := range counting.List(t.Context()) {
		d.ok(err)
		if l.Err != nil {
			bad[l.ID] = l.Err
			continue
		}
		got = append(got, l.ID)
		if l.State.Job.Origin == "" || l.State.Job.Objects != 2 {
			t.Errorf("%s: %+v", l.ID, l.State)
		}
	}
	if len(got) != 1097 || !slices.IsSorted(got) || reads != 0 {
		t.Errorf("%d jobs, %d reads", len(got), reads)
	}
	if len(bad) != 4 || !errors.Is(bad[ids[3]], ErrNoJob) || !errors.Is(bad[ids[6]], filer.ErrCorrupt) ||
		!errors.As(bad["No Id"], new(*IDError)) || !errors.As(bad[ids[7]], new(*FrozenError)) {
		t.Errorf("bad ones: %v", bad)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range d.List(ctx) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// spoil puts something else in a file's place.
func (d *desk) spoil(p string) error {
	e, err := d.store.Filer.Lookup(d.Context(), p)
	if err != nil {
		return err
	}
	return d.store.Filer.Update(d.Context(), p, e.ID, filer.File{ID: filer.NewID(), Content: []byte("{")})
}

func TestProgress(t *testing.T) {
	d := newDesk(t)
	job := draft(0, 1)
	job.Sources = []Source{{Objects: []Object{
		{Bucket: "box", Key: "a", ETag: "a", Size: 1000}, {Bucket: "box", Key: "b", ETag: "b", Size: 3000}, {Bucket: "box", Key: "c", ETag: "c", Size: 500},
	}}, {Objects: []Object{{Bucket: "box", Key: "d", ETag: "d", Size: 0}}}}
	made, err := d.Create(t.Context(), job)
	d.ok(err)
	at := func() Progress {
		t.Helper()
		p, err := d.Progress(t.Context(), made)
		d.ok(err)
		return p
	}
	if p := at(); p.Total != 4 || p.Size != 4500 || p.Read != 0 || p.Objects != 0 || p.Done() || len(p.Sources) != 2 {
		t.Errorf("at the start %+v", p)
	}
	// Without an object that is done, values tell how much of one is.
	d.move(made.Sources[0].Name, func(c *segment.Checkpoint) {
		c.Rows, c.Tally = 10, &segment.Tally{Rows: 10, Bytes: 800}
	})
	if p := at(); p.Read != 800 || p.Rows != 10 {
		t.Errorf("in the first %+v", p)
	}
	// 100 rows in 1,000 bytes, so 150 rows are 1,500 bytes.
	d.move(made.Sources[0].Name, func(c *segment.Checkpoint) {
		c.Sequence, c.Rows = 1, 150
		c.Tally = &segment.Tally{Objects: 1, Rows: 240, Bytes: 9999, Rejected: 4, Filtered: 6, Segments: []topic.SegmentID{"a", "b"}}
	})
	d.move(made.Sources[1].Name, func(c *segment.Checkpoint) {
		c.Sequence, c.Tally = 1, &segment.Tally{Objects: 1, Dropped: 3, Segments: []topic.SegmentID{"b", "c"}}
	})
	p := at()
	if p.Read != 2500 || p.Objects != 2 || p.Looked() != 250 || p.Dropped != 3 || len(p.Segments) != 3 || p.Done() {
		t.Errorf("in the second %+v", p)
	}
	if !p.Sources[1].Done || p.Sources[0].At.String() != "2:149" {
		t.Errorf("%+v", p.Sources)
	}
	d.move(made.Sources[0].Name, func(c *segment.Checkpoint) { c.Sequence, c.Rows = 3, 0 })
	if p = at(); !p.Done() || p.Read != p.Size {
		t.Errorf("at the end %+v", p)
	}
	if s := p.Summary(90*time.Second + 1); s.Seconds != 91 || s.Segments != 3 || s.Rejected != 4 || len(s.Sources) != 2 {
		t.Errorf("%+v", s)
	}
	// An object that failed has its record behind the last object.
	d.move(made.Sources[0].Name, func(c *segment.Checkpoint) {
		c.Tally.Failures = []segment.Failure{{Object: 2, Row: 7, Reason: "cut off"}}
	})
	if p = at(); p.Done() || len(p.Failures) != 0 || !slices.Equal(p.Failed, []FailedObject{{"s3://box/b", 7, "cut off"}}) {
		t.Errorf("with a failure %+v", p)
	}
	d.move(made.Sources[0].Name, func(c *segment.Checkpoint) { c.Sequence = 4 })
	if p = at(); !p.Done() || p.Read != p.Size || p.Summary(0).Failed != 1 {
		t.Errorf("with its record %+v", p)
	}
	d.ok(d.store.Filer.Delete(t.Context(), d.store.CheckpointFile(made.Sources[1].Name).Path(), ""))
	if _, err := d.Progress(t.Context(), made); !errors.Is(err, ErrNoCheckpoint) {
		t.Error(err)
	}
}
