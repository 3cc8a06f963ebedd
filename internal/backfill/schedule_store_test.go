package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
)

// goldenSchedule is a schedule whose third job is being worked on.
func goldenSchedule() Schedule {
	s := nightly()
	rejects := uint32(1000)
	s.Spec = Spec{
		Origin: "s3://box/in/", Endpoint: "http://s3:8333", Filter: Filter{Include: []string{"*.csv.gz"}, Exclude: []string{"tmp/**"}},
		Read:     Read{Format: rows.CSV, Compression: rows.Gzip, Key: "id", Time: "at", Zone: "Europe/Berlin"},
		Parallel: 4, Limits: Limits{Bytes: 50_000_000, MaxRejects: &rejects},
	}
	s.Served = time.Date(2026, 12, 4, 1, 30, 0, 0, time.UTC)
	s.Runs, s.Rest = 3, true
	s.Running = &Run{
		Slot: s.Served, Missed: 2, Since: s.Served.Add(1500 * time.Millisecond), Job: "r2d2c3po",
		Unfit: 1, Example: `"s3://box/in/README": it is not said in which format it is`,
	}
	s.Last = &Result{
		Run:   Run{Slot: s.Served.AddDate(0, 0, -3), Since: s.Served.AddDate(0, 0, -3), Job: "abc234"},
		Ended: s.Served.AddDate(0, 0, -3).Add(time.Hour), Phase: Done, Objects: 30, Failed: 1, Rows: 3_000_000, Rejected: 17,
	}
	return s
}

func TestScheduleGolden(t *testing.T) {
	fresh := nightly()
	for name, s := range map[string]Schedule{"schedule.json": fresh, "schedule-running.json": goldenSchedule()} {
		got, err := cursor.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		file := path.Join("testdata", name)
		if *updateJobs {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s differs: %s", name, diff)
		}
	}
}

func (d *desk) schedules() *Schedules { return SchedulesOf(d.store, d.topic) }

func TestSchedulesOnFile(t *testing.T) {
	d := newDesk(t)
	c := d.schedules()
	if _, err := c.Load(t.Context(), "nightly"); !errors.Is(err, ErrNoSchedule) {
		t.Errorf("none: %v", err)
	}
	s := goldenSchedule()
	d.ok(c.Create(t.Context(), s))
	if err := c.Create(t.Context(), nightly()); !errors.Is(err, ErrScheduleExists) {
		t.Errorf("twice: %v", err)
	}
	bad := nightly()
	bad.Cron = "0 0 31 2 *"
	if err := c.Create(t.Context(), bad); !errors.As(err, new(*ScheduleError)) {
		t.Errorf("one that never is: %v", err)
	}
	got, err := c.Load(t.Context(), "nightly")
	if diff := cmp.Diff(s, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	for _, name := range []string{"", "../x", "A", "a.json", strings.Repeat("a", 101)} {
		if _, err := c.Load(t.Context(), name); !errors.As(err, new(*ScheduleError)) {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := c.Delete(t.Context(), name); !errors.As(err, new(*ScheduleError)) {
			t.Errorf("delete %q: %v", name, err)
		}
	}
	got, err = c.Update(t.Context(), "nightly", func(s *Schedule) { s.Pause() })
	again, err2 := c.Load(t.Context(), "nightly")
	if diff := cmp.Diff(got, again); errors.Join(err, err2) != nil || diff != "" || !got.Paused {
		t.Error(err, err2, diff)
	}
}

func TestSchedulesListed(t *testing.T) {
	d := newDesk(t)
	c := d.schedules()
	for _, name := range []string{"a", "b", "spoilt", "renamed", "torn"} {
		s := goldenSchedule()
		s.Name, s.ID = name, filer.Token(12)
		d.ok(c.Create(t.Context(), s))
	}
	d.ok(d.spoil(c.file("torn").Path()))
	wrong := nightly()
	wrong.Cron = "nonsense"
	data, err := cursor.Encode(wrong)
	d.ok(err)
	for _, name := range []string{"spoilt", "renamed"} {
		e, err := d.store.Filer.Lookup(t.Context(), c.file(name).Path())
		d.ok(err)
		d.ok(d.store.Filer.Update(t.Context(), e.Path, e.ID, filer.File{ID: "x" + name, Content: data}))
	}
	d.ok(d.store.Filer.Create(t.Context(), c.folder("a")+"/x/taken/000000000000-000000000001", filer.File{ID: "1"}))
	var fine, bad []string
	for l, err := range c.List(t.Context()) {
		d.ok(err)
		if l.Err != nil {
			bad = append(bad, l.Name)
		} else {
			fine = append(fine, l.Name)
		}
	}
	if !slices.Equal(fine, []string{"a", "b"}) || !slices.Equal(bad, []string{"renamed", "spoilt", "torn"}) {
		t.Errorf("fine %q, bad %q", fine, bad)
	}
	for _, name := range []string{"a", "b", "spoilt", "renamed", "torn"} {
		_, err := c.Delete(t.Context(), name)
		d.ok(err)
		if _, err := c.Delete(t.Context(), name); !errors.Is(err, ErrNoSchedule) {
			t.Errorf("deleted twice: %v", err)
		}
	}
	for _, p := range d.fs.Paths() {
		if strings.HasPrefix(p, c.dir()+"/") {
			t.Errorf("left: %s", p)
		}
	}
}

// ticker ticks with a listing.
func (d *desk) ticker(from Lister) *Ticker {
	return &Ticker{
		Schedules: d.schedules(), Logger: slog.New(slog.DiscardHandler),
		Lister: func(context.Context, string) (Lister, error) { return from, nil },
	}
}

// TestUnfitObjects: one object that no job can take does not keep the others back.
func TestUnfitObjects(t *testing.T) {
	d := newDesk(t)
	d.ok(d.schedules().Create(t.Context(), nightly()))
	box := fixed{
		found("in/", 0), found("in/README", 5), found("in/a.csv", 5), found("in/b.parquet.gz", 5), found("in/c.json\x01", 5),
		{Key: "in/d.json", Info: object.Info{Size: 1}}, found("in/e.json.gz", 0), found("other.csv", 1), found("in/a.csv", 5),
	}
	done, err := d.ticker(box).Tick(t.Context(), "nightly", moment(t, "2026-12-02T01:31:00Z"))
	d.ok(err)
	r := done.Schedule.Running
	if done.Job == "" || r == nil || r.Unfit != 4 || !strings.Contains(r.Example, "README") || done.Schedule.Runs != 1 {
		t.Fatalf("%+v, run %+v", done, r)
	}
	j, err := d.Load(t.Context(), done.Job)
	d.ok(err)
	got := keys(slices.Concat(j.Sources[0].Objects, j.Sources[1].Objects))
	if slices.Sort(got); !slices.Equal(got, []string{"in/a.csv", "in/e.json.gz"}) || j.By != "schedule nightly at 2026-12-02T01:30:00Z" || j.Schedule != done.Schedule.ID {
		t.Errorf("job %+v of %q", j, got)
	}
	_, err = d.Update(t.Context(), done.Job, func(s *State) error { return s.Finish(dawn, "", Progress{}) })
	d.ok(err)
	done, err = d.ticker(box).Tick(t.Context(), "nightly", moment(t, "2026-12-05T12:00:00Z"))
	d.ok(err)
	if last := done.Schedule.Last; !done.Empty || done.Ended != j.ID || last == nil || last.Phase != "" || last.Missed != 3 || last.Unfit != 4 {
		t.Errorf("%+v", done)
	}
}

type broken struct{ err error }

func (b broken) List(context.Context, string, string, string) iter.Seq2[object.Object, error] {
	return func(yield func(object.Object, error) bool) { yield(object.Object{}, b.err) }
}

// TestTickFails: a run that cannot be gone on with says why, and goes on later.
func TestTickFails(t *testing.T) {
	d := newDesk(t)
	d.ok(d.schedules().Create(t.Context(), nightly()))
	now := moment(t, "2026-12-02T01:31:00Z")
	for range 2 {
		_, err := d.ticker(broken{object.ErrForbidden}).Tick(t.Context(), "nightly", now)
		if !errors.Is(err, object.ErrForbidden) {
			t.Fatal(err)
		}
		s, err := d.schedules().Load(t.Context(), "nightly")
		d.ok(err)
		if s.Running == nil || s.Running.Fault == "" || s.Served != moment(t, "2026-12-02T01:30:00Z") {
			t.Errorf("%+v", s)
		}
	}
	done, err := d.ticker(fixed{found("in/a.csv", 1)}).Tick(t.Context(), "nightly", now.Add(-100*time.Hour))
	if d.ok(err); done.Job == "" || done.Schedule.Running.Fault != "" || done.Schedule.Running.Slot != moment(t, "2026-12-02T01:30:00Z") {
		t.Errorf("%+v", done)
	}
	// A job whose file is gone: nobody knows what it took (rule 38).
	_, err = d.Update(t.Context(), done.Job, func(s *State) error { return s.Finish(dawn, "", Progress{}) })
	d.ok(err)
	d.ok(d.store.Filer.Delete(t.Context(), d.jobPath(done.Job), ""))
	if _, err = d.ticker(fixed{found("in/b.csv", 1)}).Tick(t.Context(), "nightly", now.Add(48*time.Hour)); !errors.Is(err, ErrNoJob) {
		t.Errorf("without the file of a job: %v", err)
	}
	if _, err = d.ticker(nil).Tick(t.Context(), "other", now); !errors.Is(err, ErrNoSchedule) {
		t.Errorf("none: %v", err)
	}
}

// TestTickKilled: killed at whatever call, before its effect or after it, the next
// tick goes on, and makes the one job that there is to be.
func TestTickKilled(t *testing.T) {
	now := moment(t, "2026-12-02T01:31:00Z")
	for i := 0; ; i++ {
		d := newDesk(t)
		d.ok(d.schedules().Create(t.Context(), nightly()))
		one, two := found("in/a.csv", 1), found("in/b.csv", 1)
		first, err := d.ticker(fixed{one}).Tick(t.Context(), "nightly", now)
		d.ok(err)
		_, err = d.Update(t.Context(), first.Job, func(s *State) error { return s.Finish(dawn, "", Progress{}) })
		d.ok(err)
		ctx, kill := context.WithCancel(t.Context())
		c := &crash{n: i/2 + 1, lost: i%2 == 1, kill: kill}
		ticker := d.ticker(fixed{one, two})
		ticker.Schedules = SchedulesOf(d.storeOf(c.hook), d.topic)
		_, err = ticker.Tick(ctx, "nightly", now.Add(24*time.Hour))
		kill()
		if c.dead == (err == nil) {
			t.Fatalf("killed %v, error %v", c.dead, err)
		}
		done, err := d.ticker(fixed{one, two}).Tick(t.Context(), "nightly", now.Add(25*time.Hour))
		d.ok(err)
		s := done.Schedule
		if s.Runs != 2 || s.Running == nil || s.Running.Job != d.schedules().JobID(s, 1) || s.Running.Slot != moment(t, "2026-12-03T01:30:00Z") ||
			s.Served != s.Running.Slot || s.Last == nil || s.Last.Job != first.Job {
			t.Fatalf("killed at call %d: %+v", c.n, s)
		}
		job, err := d.Load(t.Context(), s.Running.Job)
		if d.ok(err); len(job.Sources) != 1 || !slices.Equal(keys(job.Sources[0].Objects), []string{"in/b.csv"}) {
			t.Fatalf("killed at call %d: %+v", c.n, job)
		}
		if p := d.fs.Problems(); len(p) > 0 {
			t.Fatal(p)
		}
		if !c.dead {
			if c.n < 15 {
				t.Errorf("only %d calls", c.n)
			}
			return
		}
	}
}

// TestScheduleOnWeed is on a real filer, and lists a real endpoint.
func TestScheduleOnWeed(t *testing.T) {
	w := onWeed(t, false)
	c := SchedulesOf(w.store, w.topic)
	s := nightly()
	s.Spec.Origin = "s3://" + w.bucket + "/in/"
	w.ok(c.Create(t.Context(), s))
	ticker := &Ticker{
		Schedules: c, Logger: slog.New(slog.DiscardHandler), most: 3,
		Lister: func(context.Context, string) (Lister, error) { return w.s3, nil },
	}
	now := moment(t, "2026-12-01T12:00:00Z")
	take := func(want ...string) {
		t.Helper()
		now = now.Add(24 * time.Hour)
		var got []string
		for { // also what does not fit into one job
			done, err := ticker.Tick(t.Context(), "nightly", now)
			w.ok(err)
			if done.Job == "" {
				break
			}
			j, err := c.jobs.Load(t.Context(), done.Job)
			w.ok(err)
			for _, source := range j.Sources {
				got = append(got, keys(source.Objects)...)
			}
			_, err = c.jobs.Update(t.Context(), done.Job, func(s *State) error { return s.Finish(now, "", Progress{}) })
			w.ok(err)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("took %q, want %q", got, want)
		}
	}
	for _, key := range []string{"in/a/b.csv", "in/a-b.csv", "in/a.csv", "in/z.csv", "out.csv"} {
		w.put(key, "x")
	}
	take("in/a-b.csv", "in/a.csv", "in/a/b.csv", "in/z.csv")
	take()
	w.put("in/a.csv", "other")
	w.put("in/z.csv", "x") // the same
	w.put("in/b.csv", "x")
	take("in/a.csv", "in/b.csv")
	take()
	was, err := c.Delete(t.Context(), "nightly")
	if w.ok(err); was.Runs < 3 {
		t.Errorf("%d jobs", was.Runs)
	}
}

// BenchmarkTick is a tick with a ledger of 1,000,000 objects, of 40 jobs, which lists
// 100,000: of those all but 1,000 were taken.
func BenchmarkTick(b *testing.B) {
	d := newDesk(b)
	s := nightly()
	d.ok(d.schedules().Create(b.Context(), s))
	key := func(i int) string {
		return fmt.Sprintf("in/2026/%03d/%06d-%08x.json.gz", i/2740, i, i*2654435761%(1<<32))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	etags := make([]string, 1_000_000)
	for i := range etags {
		etags[i] = fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64())
	}
	ticker := d.ticker(nil)
	l := ticker.ledger(s)
	l.objects = func(_ context.Context, n uint64) ([]Object, error) {
		list := make([]Object, 25_000)
		for i := range list {
			list[i] = Object{Bucket: "box", Key: key(int(n)*25_000 + i), ETag: etags[int(n)*25_000+i]}
		}
		return list, nil
	}
	begin := time.Now()
	_, err := l.open(b.Context(), 40)
	d.ok(err)
	build := time.Since(begin)
	var size int64
	for _, p := range d.fs.Paths() {
		if strings.HasPrefix(p, l.dir) {
			e, err := d.store.Filer.Lookup(b.Context(), p)
			d.ok(err)
			size += e.Size
		}
	}
	s.Runs, s.Running = 40, &Run{Slot: dawn, Since: dawn}
	for name, nth := range map[string]func(int) int{
		"newest": func(i int) int { return 900_000 + i },
		"spread": func(i int) int { return 10 * i },
	} {
		box := make(fixed, 100_000)
		for i := range box {
			n := nth(i)
			box[i] = object.Object{Key: key(n), Info: object.Info{Size: 1, ETag: etags[n]}}
			if i%100 == 0 {
				box[i].ETag = "changed"
			}
		}
		ticker := d.ticker(box)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h, err := ticker.harvest(b.Context(), s)
				if err != nil || len(h.objects) != 1000 || h.unfit != 0 {
					b.Fatalf("%d objects, %d unfit, error %v", len(h.objects), h.unfit, err)
				}
			}
			b.ReportMetric(build.Seconds(), "s/build")
			b.ReportMetric(float64(size)/1e6, "bytes/object")
		})
	}
}
