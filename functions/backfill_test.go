package functions

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
	"github.com/spillway-mq/spillway/internal/work"
)

// fillOnce makes one run.
func (y *yard) fillOnce(t *testing.T, o BackfillOptions) (BackfillSummary, error) {
	t.Helper()
	y.fresh()
	o.Once = true
	return Backfill(t.Context(), y.Deps, o)
}

// fills runs a resident backfill until the test ends.
func (y *yard) fills(t *testing.T, o BackfillOptions) {
	t.Helper()
	y.fresh()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	d := y.Deps
	go func() { _, err := Backfill(ctx, d, o); done <- err }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("told to stop, the backfill ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the backfill does not end")
		}
	})
}

func (y *yard) call(t *testing.T, names ...string) {
	t.Helper()
	q, err := work.Open(t.Context(), y.js)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := q.Put(t.Context(), work.Subject(work.Backfill, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// schedule makes a schedule of the depot, of which a slot is due.
func (y *yard) schedule(t *testing.T, change func(*backfill.Schedule)) {
	t.Helper()
	s := backfill.NewSchedule("nightly", time.Now().Add(-time.Hour))
	s.Cron, s.Spec = "* * * * *", backfill.Spec{Origin: "s3://" + depotBucket + "/in/", Read: backfill.Read{Key: "/origin"}, Parallel: 2}
	if change != nil {
		change(&s)
	}
	if err := backfill.SchedulesOf(y.Store, y.top).Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// due makes another slot of the schedule due.
func (y *yard) due(t *testing.T) {
	t.Helper()
	_, err := backfill.SchedulesOf(y.Store, y.top).Update(t.Context(), "nightly", func(s *backfill.Schedule) { s.Served = s.Served.Add(-time.Minute) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestBackfillSchedule: a schedule's run takes what is new, a Once run works on it, and
// the next one takes what has come since.
func TestBackfillSchedule(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 4)
	one, two := lines(0, 2000), lines(2000, 1000)
	y.put("in/1.ndjson.gz", zipped(t, one))
	y.put("out/1.ndjson", lines(9000, 10))
	y.schedule(t, nil)
	sum, err := y.fillOnce(t, BackfillOptions{})
	if err != nil || sum.Made != 1 || sum.Jobs != 1 || sum.Done != 1 || sum.Rows != 2000 || sum.Failed+sum.Left+sum.Elsewhere != 0 {
		t.Errorf("the first: %+v, %v", sum, err)
	}
	y.put("in/2.ndjson", two)
	y.due(t)
	sum, err = y.fillOnce(t, BackfillOptions{})
	if err != nil || sum.Made != 1 || sum.Done != 1 || sum.Rows != 1000 {
		t.Errorf("the second: %+v, %v", sum, err)
	}
	y.due(t)
	sum, err = y.fillOnce(t, BackfillOptions{})
	if err != nil || sum.Made+sum.Jobs != 0 || sum.Schedules == 0 {
		t.Errorf("with nothing new: %+v, %v", sum, err)
	}
	s, err := backfill.SchedulesOf(y.Store, y.top).Load(t.Context(), "nightly")
	if err != nil || s.Running != nil || s.Runs != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	y.holds(t, texts(one), texts(two))
}

// TestBackfillOnCall: a resident backfill works on a job and a schedule that it is
// called for, at once.
func TestBackfillOnCall(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 4)
	y.fills(t, BackfillOptions{Period: time.Hour})
	y.call(t, "gone")
	until(t, "the first token is done", func() bool { return y.waiting(t) == 0 })
	one, two := lines(0, 2000), lines(2000, 1000)
	id := y.job(t, 1, backfill.Limits{}, y.put("1.ndjson", one))
	y.call(t, "t")
	until(t, "the job is done", func() bool { return y.state(t, id).Phase == backfill.Done })
	y.put("in/2.ndjson", two)
	y.schedule(t, nil)
	y.call(t, "t")
	until(t, "the schedule's job is done", func() bool {
		s, err := backfill.SchedulesOf(y.Store, y.top).Load(t.Context(), "nightly")
		if err != nil {
			t.Fatal(err)
		}
		return s.Runs == 1 && s.Running == nil
	})
	until(t, "the tokens are done", func() bool { return y.waiting(t) == 0 })
	y.holds(t, texts(one), texts(two))
}

// TestBackfillLeavesAlone: jobs of files of a machine, of another endpoint, and those
// that another run has.
func TestBackfillLeavesAlone(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 1)
	o := y.put("a.ndjson", lines(0, 10))
	make := func(change func(*backfill.Job)) string {
		j := backfill.Job{By: "test", Origin: "s3://depot", Sources: []backfill.Source{{Objects: []backfill.Object{o}}}}
		change(&j)
		j, err := y.jobs.Create(t.Context(), j)
		if err != nil {
			t.Fatal(err)
		}
		return j.ID
	}
	all := []string{
		make(func(j *backfill.Job) { j.Read.Format, j.Endpoint = "ndjson", "http://other:8333" }),
		make(func(j *backfill.Job) {
			j.Read.Format, j.Host = "ndjson", newJobRunner(Deps{Logger: y.Logger}).host
			j.Sources[0].Objects = []backfill.Object{{Path: "/a.ndjson", ETag: "file-1", Size: 4}}
		}),
		make(func(j *backfill.Job) { j.Read.Format = "ndjson" }),
	}
	y.schedule(t, func(s *backfill.Schedule) { s.Spec.Endpoint = "http://other:8333" })
	y.change(t, all[2], func(s *backfill.State) error { return s.Claim(time.Now(), "another", "host") })
	sum, err := y.fillOnce(t, BackfillOptions{})
	if err != nil || sum.Jobs+sum.Made+sum.Failed != 0 || sum.Elsewhere != 2 || sum.Held != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	for _, id := range all {
		if s := y.state(t, id); s.Phase != backfill.Open || s.Runs > 0 && id != all[2] {
			t.Errorf("%+v", s)
		}
	}
	y.Judge = nil
	if _, err := y.fillOnce(t, BackfillOptions{}); ExitCode(err) != ExitConfig || !strings.Contains(err.Error(), "--s3") {
		t.Errorf("without S3: %v", err)
	}
	y.Judge = &verdict.Judge{Objects: &endpoint{}}
	if _, err := y.fillOnce(t, BackfillOptions{}); ExitCode(err) != ExitConfig {
		t.Errorf("without an S3 to read from: %v", err)
	}
}

// TestBackfillMany: more jobs than are worked on at a time, of several topics, one of
// which is damaged: a Once run does what it can, and tells the rest.
func TestBackfillMany(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 1)
	var want [][]string
	for i := range 3 * fillerJobs {
		data := lines(i*100, 100)
		y.job(t, 2, backfill.Limits{}, y.put(fmt.Sprintf("%d.ndjson", i), data))
		want = append(want, texts(data))
	}
	bad, err := y.Store.CreateTopic(t.Context(), topic.Definition{
		Name: "bad", Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: "default",
	}, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	list := []backfill.Object{y.put("x.ndjson", lines(0, 10))}
	j, err := backfill.Of(y.Store, bad).Create(t.Context(), backfill.Job{
		By: "test", Origin: "s3://depot", Read: backfill.Read{Format: "ndjson"}, Sources: backfill.Divide(list, "", 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := y.Store.Filer.Delete(t.Context(), y.Store.CheckpointFile(j.Sources[0].Name).Path(), ""); err != nil {
		t.Fatal(err)
	}
	sum, err := y.fillOnce(t, BackfillOptions{})
	if ExitCode(err) != ExitConfig || !strings.Contains(err.Error(), j.ID) || sum.Done != len(want) || sum.Jobs != len(want)+1 || sum.Failed != 1 || sum.Rows != uint64(100*len(want)) {
		t.Errorf("%+v, %v, exit code %d", sum, err, ExitCode(err))
	}
	y.holds(t, want...)
}

// TestBackfillDeadline: what is not done at the deadline is committed as far as it was
// read, and the next run goes on.
func TestBackfillDeadline(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 1)
	data := lines(0, 3000)
	id := y.job(t, 1, backfill.Limits{Rows: 1000}, y.put("1.ndjson", data))
	sum, err := y.fillOnce(t, BackfillOptions{Deadline: 2 * time.Second})
	if ExitCode(err) != ExitRetry || sum.Left != 1 || sum.Done != 0 || sum.Rows == 0 || sum.Rows >= 3000 {
		t.Errorf("%+v, %v", sum, err)
	}
	if s := y.state(t, id); s.Phase != backfill.Open || s.Runner != nil {
		t.Errorf("%+v", s)
	}
	rest, err := y.fillOnce(t, BackfillOptions{})
	if err != nil || rest.Rows+sum.Rows != 3000 || rest.Done != 1 {
		t.Errorf("%+v, %v", rest, err)
	}
	y.holds(t, texts(data))
}

// TestJobObjectChanges: an object that is another one by the time that it is read is
// told of, and the others are read.
func TestJobObjectChanges(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 2)
	first := lines(0, 100)
	id := y.job(t, 1, backfill.Limits{}, y.put("1.ndjson", first), y.put("2.ndjson", lines(100, 100)), y.put("3.ndjson", lines(200, 100)))
	y.hook(func(r *http.Request) int {
		if strings.HasSuffix(r.URL.Path, "/1.ndjson") && r.Method == http.MethodGet {
			y.put("2.ndjson", lines(500, 50))
		}
		return 0
	})
	sum, err := y.run(t, JobOptions{ID: id})
	if err != nil || sum.Objects != 3 || sum.Failed != 1 || sum.Rows != 200 {
		t.Errorf("%+v, %v", sum, err)
	}
	rejected := 0
	for _, item := range y.read(t, "t") {
		if item.Rejected != "" {
			rejected++
			if !strings.Contains(item.Rejected, "2.ndjson") || !strings.Contains(item.Rejected, "it has changed") {
				t.Errorf("%s", item.Rejected)
			}
		}
	}
	if rejected != 1 {
		t.Errorf("%d rejected records", rejected)
	}
	y.verify(t, "t")
}

// TestJobTooManyFailures: when more objects cannot be read than a source remembers, the
// job stops itself.
func TestJobTooManyFailures(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 1)
	var objects []backfill.Object
	for i := range segment.MaxFailures + 1 {
		objects = append(objects, backfill.Object{Bucket: depotBucket, Key: fmt.Sprintf("%d.ndjson", i), ETag: "e", Size: 10})
	}
	id := y.job(t, 1, backfill.Limits{}, objects...)
	sum, err := y.run(t, JobOptions{ID: id})
	if ExitCode(err) != ExitConfig || !strings.Contains(err.Error(), "stopped: ") || sum.Failed < segment.MaxFailures*9/10 {
		t.Errorf("%+v, %v, exit code %d", sum, err, ExitCode(err))
	}
	if s := y.state(t, id); s.Phase != backfill.Stopped || s.Reason == "" {
		t.Errorf("%+v", s)
	}
	y.verify(t, "t")
}

// TestJobPreSplit: a large job tells planners what is to come, and waits until one has
// split the topic; when it is done nothing is expected any more.
func TestJobPreSplit(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 1)
	data := lines(0, 20_000)
	id := y.job(t, 4, backfill.Limits{}, y.put("1.ndjson", data[:len(data)/2]), y.put("2.ndjson", data[len(data)/2:]), y.put("3.ndjson", data), y.put("4.ndjson", data))
	j, err := y.jobs.Load(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	y.plans(t, time.Hour)
	c := &coming{job: &job{jobRunner: newJobRunner(Deps{NATS: y.NATS, Store: y.Store, Logger: y.Logger}), Job: j, topic: y.top, log: y.Logger}}
	p := backfill.ProgressAt(j, nil)
	if load, takes := c.estimate(p); takes > smallJob || load.Bytes == 0 || load.Records == 0 {
		t.Errorf("%+v in %s", load, takes)
	}
	c.begin(t.Context(), p)
	if c.declared {
		t.Error("a load is declared for a small job")
	}
	p.Size = 10 << 30
	c.o.PlanWait = patience
	start := time.Now()
	c.begin(t.Context(), p)
	l, err := y.top.Layout(t.Context())
	if err != nil || len(l.Live) < 4 || time.Since(start) > patience/2 {
		t.Errorf("%d segments after %s, %v", len(l.Live), time.Since(start), err)
	}
	loads, err := y.top.Declared(t.Context())
	if err != nil || len(loads) != 1 || loads[0].ID != "backfill-"+id || loads[0].Over(time.Now().Add(time.Minute)) {
		t.Errorf("%+v, %v", loads, err)
	}
	c.end(t.Context())
	c.end(t.Context())
	if loads, err := y.top.Declared(t.Context()); err != nil || len(loads) != 0 {
		t.Errorf("%+v, %v", loads, err)
	}
}
