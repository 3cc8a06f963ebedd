package functions

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verify"
)

// still is a yard in virtual time: without NATS, and with files of the host.
type still struct {
	*yard
	fs  *memfs.FS
	dir string
}

func inStill(t *testing.T, test func(t *testing.T, s *still)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		log := &journal{news: make(chan struct{})}
		b := &bench{Deps: Deps{Store: segment.NewStore(fs.Client("test", nil), "bench"), Logger: slog.New(slog.NewTextHandler(log, nil))}, log: log}
		top, err := b.Store.CreateTopic(t.Context(), topic.Definition{
			Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default,
		}, 4, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		test(t, &still{&yard{bench: b, top: top, jobs: backfill.Of(b.Store, top)}, fs, dir})
	})
}

// job makes a job of files with these contents, each a source.
func (s *still) job(t *testing.T, limits backfill.Limits, files ...string) string {
	t.Helper()
	var paths []string
	for i, data := range files {
		paths = append(paths, filepath.Join(s.dir, string(rune('a'+i))+".ndjson"))
		if err := os.WriteFile(paths[i], []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list, err := backfill.Files(t.Context(), paths, backfill.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	read, err := backfill.Formats(backfill.Read{Key: "/origin"}, list.Objects, backfill.As{})
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	j, err := s.jobs.Create(t.Context(), backfill.Job{
		By: "test", Origin: "files", Host: host, Read: read, Limits: limits, Sources: backfill.Divide(list.Objects, "", len(files)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return j.ID
}

// working is a run in the foreground.
type working struct {
	stop context.CancelFunc
	done chan struct{}
	sum  backfill.Summary // valid then
	err  error
}

func (s *still) start(t *testing.T, o JobOptions) *working {
	t.Helper()
	d := s.Deps
	d.Metrics = prometheus.NewRegistry()
	ctx, stop := context.WithCancel(t.Context())
	r := &working{stop: stop, done: make(chan struct{})}
	o.Topic = "t"
	go func() {
		defer close(r.done)
		r.sum, r.err = RunJob(ctx, d, o)
	}()
	return r
}

func (r *working) wait() (backfill.Summary, error) {
	<-r.done
	r.stop()
	return r.sum, r.err
}

// sound verifies the topic.
func (s *still) sound(t *testing.T) {
	t.Helper()
	report, err := verify.Topic(t.Context(), s.Store, nil, "t")
	if err != nil || !report.OK {
		t.Fatalf("verify: %v, %v", report.Violations, err)
	}
}

func ended(err error) backfill.Phase {
	var e *JobEndedError
	if errors.As(err, &e) {
		return e.Phase
	}
	return ""
}

// TestJobFromOutside: a job is paused, resumed, made faster and cancelled while a run
// works on it.
func TestJobFromOutside(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		id := s.job(t, backfill.Limits{Rows: 1000}, string(lines(0, 30_000)), string(lines(30_000, 30_000)))
		r := s.start(t, JobOptions{ID: id})
		bubble.Pass(10 * time.Second)
		s.change(t, id, func(s *backfill.State) error { return s.Pause("lunch") })
		sum, err := r.wait()
		if ended(err) != backfill.Paused || ExitCode(err) != ExitConfig || !strings.Contains(err.Error(), "lunch") || sum.Rows < 9000 || sum.Rows > 17_000 {
			t.Fatalf("paused: %+v, %v", sum, err)
		}
		if st := s.state(t, id); st.Phase != backfill.Paused || st.Runner != nil || uint64(len(s.read(t, "t"))) != sum.Rows {
			t.Errorf("paused: %+v", st)
		}
		again, err := s.start(t, JobOptions{ID: id}).wait()
		if ended(err) != backfill.Paused || again.Rows != sum.Rows {
			t.Errorf("while it is paused: %+v, %v", again, err)
		}

		s.change(t, id, (*backfill.State).Resume)
		r = s.start(t, JobOptions{ID: id})
		start := time.Now()
		bubble.Pass(time.Second)
		s.change(t, id, func(s *backfill.State) error { s.Limits.Rows = 0; return nil })
		sum, err = r.wait()
		if took := time.Since(start); err != nil || sum.Rows != 60_000 || took > 2*keepPeriod {
			t.Fatalf("resumed, without a limit: %+v, %v after %s", sum, err, took)
		}
		if again, err := s.start(t, JobOptions{ID: id}).wait(); err != nil || again.Rows != sum.Rows {
			t.Errorf("once it is done: %+v, %v", again, err)
		}
		s.sound(t)

		id = s.job(t, backfill.Limits{Bytes: 10_000}, string(lines(0, 30_000)))
		r = s.start(t, JobOptions{ID: id})
		bubble.Pass(20 * time.Second)
		s.change(t, id, func(s *backfill.State) error { return s.Cancel(time.Now(), "no more") })
		sum, err = r.wait()
		if ended(err) != backfill.Cancelled || ExitCode(err) != ExitConfig || sum.Rows == 0 || sum.Rows > 5000 {
			t.Errorf("cancelled: %+v, %v", sum, err)
		}
		if st := s.state(t, id); st.Summary == nil || st.Summary.Rows != sum.Rows || st.Runner != nil {
			t.Errorf("cancelled: %+v", st)
		}
		s.sound(t)
	})
}

// TestJobToldToEnd: a run that is told to end commits what it has read, gives the job
// back, and says that it stays open. Nobody waits for a limit meanwhile.
func TestJobToldToEnd(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		id := s.job(t, backfill.Limits{Rows: 1}, string(lines(0, 100)))
		r := s.start(t, JobOptions{ID: id})
		bubble.Pass(30*time.Second + 500*time.Millisecond)
		told := time.Now()
		r.stop()
		sum, err := r.wait()
		if ExitCode(err) != ExitRetry || !strings.Contains(err.Error(), "stays open") || sum.Rows < 30 || sum.Rows > 32 || time.Since(told) > 100*time.Millisecond {
			t.Errorf("%+v, %v after %s", sum, err, time.Since(told))
		}
		if st := s.state(t, id); st.Phase != backfill.Open || st.Runner != nil || st.Runs != 1 || st.Summary != nil {
			t.Errorf("%+v", st)
		}
		s.sound(t)
	})
}

// TestJobRate: however small a limit is, it is kept, by all sources together, and rows
// come evenly.
func TestJobRate(t *testing.T) {
	for name, c := range map[string]struct {
		limits backfill.Limits
		rows   int
		want   time.Duration
	}{
		"a row a second":   {backfill.Limits{Rows: 1}, 60, time.Minute},
		"rows":             {backfill.Limits{Rows: 500}, 10_000, 20 * time.Second},
		"bytes":            {backfill.Limits{Bytes: 20_000}, 10_000, 43 * time.Second},
		"less than a row":  {backfill.Limits{Bytes: 10}, 20, 150 * time.Second},
		"the lower one":    {backfill.Limits{Rows: 500, Bytes: 1 << 30}, 10_000, 20 * time.Second},
		"bytes before all": {backfill.Limits{Rows: 1 << 40, Bytes: 20_000}, 10_000, 43 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inStill(t, func(t *testing.T, s *still) {
				start := time.Now()
				id := s.job(t, c.limits, string(lines(0, c.rows/2)), string(lines(c.rows/2, c.rows/2)))
				sum, err := s.start(t, JobOptions{ID: id}).wait()
				if took := time.Since(start); err != nil || sum.Rows != uint64(c.rows) || took < c.want*9/10 || took > c.want*11/10 {
					t.Errorf("%+v, %v after %s, want %s", sum, err, took, c.want)
				}
				s.sound(t)
			})
		})
	}
}

// TestJobRejects: a job stops itself when too many rows are rejected, tells what to
// do, and goes on under another limit.
func TestJobRejects(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		percent := uint32(10_000)
		bad := strings.Repeat(string(lines(0, 7))+"no JSON\n", 10_000)
		id := s.job(t, backfill.Limits{MaxRejects: &percent, Rows: 1000}, bad, string(lines(100, 100)))
		sum, err := s.start(t, JobOptions{ID: id}).wait()
		var stopped *JobStoppedError
		if !errors.As(err, &stopped) || ExitCode(err) != ExitConfig || sum.Rejected == 0 || sum.Rejected > 5000 {
			t.Fatalf("%+v, %v, exit code %d", sum, err, ExitCode(err))
		}
		for _, words := range []string{"stopped: 12", "more than 1 %", "resume t " + id + " --max-rejects", "spillway read t --rejected"} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%q is not in %v", words, err)
			}
		}
		st := s.state(t, id)
		if st.Phase != backfill.Stopped || !strings.Contains(st.Reason, "rejected") || st.Summary == nil || st.Runner != nil {
			t.Errorf("%+v", st)
		}
		s.sound(t)
		s.change(t, id, func(s *backfill.State) error {
			s.Limits = backfill.Limits{}
			return s.Resume()
		})
		sum, err = s.start(t, JobOptions{ID: id}).wait()
		if err != nil || sum.Rejected != 10_000 || sum.Rows != 70_100 {
			t.Errorf("%+v, %v", sum, err)
		}
		s.sound(t)
	})
}

// TestJobTwice: a run leaves a job to another one that is at it, takes it when told
// to, and then the other ends. When both do not know of each other, all is as well.
func TestJobTwice(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		const n = 40_000
		id := s.job(t, backfill.Limits{Rows: 2000}, string(lines(0, n/2)), string(lines(n/2, n/2)))
		first := s.start(t, JobOptions{ID: id})
		bubble.Pass(3 * time.Second)
		var held *backfill.HeldError
		if _, err := s.start(t, JobOptions{ID: id}).wait(); !errors.As(err, &held) || ExitCode(err) != ExitRetry {
			t.Errorf("another run: %v", err)
		}
		second := s.start(t, JobOptions{ID: id, Force: true})
		if _, err := first.wait(); !errors.As(err, &held) || ExitCode(err) != ExitRetry {
			t.Errorf("the run that lost the job: %v", err)
		}
		bubble.Pass(time.Second)
		third := s.start(t, JobOptions{ID: id, Force: true})
		_, err2 := second.wait()
		sum, err := third.wait()
		if err != nil || ExitCode(err2) != ExitRetry || sum.Rows != n {
			t.Errorf("%+v, %v; %v", sum, err, err2)
		}
		items := s.read(t, "t")
		if len(items) != n {
			t.Errorf("%d records of %d rows", len(items), n)
		}
		s.sound(t)
	})
}

// TestJobBlind: runs that do not see each other, since the job's state cannot be
// reached, do no harm, and each ends well.
func TestJobBlind(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		const n = 40_000
		id := s.job(t, backfill.Limits{Rows: 2000}, string(lines(0, n/2)), string(lines(n/2, n/2)))
		var runs []*working
		for range 3 {
			claimed := false
			client := s.fs.Client("blind", func(op memfs.Op) memfs.Fault {
				if claimed && strings.HasSuffix(op.Path, "/state.json") {
					return memfs.Fault{Before: errors.New("connection refused")}
				}
				claimed = claimed || op.Name == "Update" && strings.HasSuffix(op.Path, "/state.json")
				return memfs.Fault{}
			})
			s.Store = segment.NewStore(client, "bench")
			runs = append(runs, s.start(t, JobOptions{ID: id, Force: true}))
			bubble.Pass(time.Second)
		}
		s.Store = segment.NewStore(s.fs.Client("test", nil), "bench")
		for i, r := range runs {
			sum, err := r.wait()
			if ExitCode(err) != ExitRetry || sum.Rows != n {
				t.Errorf("run %d: %+v, %v", i, sum, err)
			}
		}
		bubble.Pass(backfill.RunnerLease)
		sum, err := s.start(t, JobOptions{ID: id}).wait()
		if err != nil || sum.Rows != n || s.state(t, id).Phase != backfill.Done {
			t.Errorf("%+v, %v", sum, err)
		}
		if items := s.read(t, "t"); len(items) != n {
			t.Errorf("%d records of %d rows", len(items), n)
		}
		s.sound(t)
	})
}
