package functions

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verify"
)

// filesJob makes a job of files in one source.
func (s *still) filesJob(t *testing.T, limits backfill.Limits, files ...string) (id string, paths []string) {
	t.Helper()
	for i, data := range files {
		p := filepath.Join(s.dir, "d", fmt.Sprintf("%05d.ndjson", i))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	list, err := backfill.Files(t.Context(), paths, backfill.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	read, err := backfill.Formats(backfill.Read{Key: "/origin"}, list.Objects, backfill.As{})
	if err != nil {
		t.Fatal(err)
	}
	host, _ := os.Hostname()
	j, err := s.jobs.Create(t.Context(), backfill.Job{By: "test", Origin: "files", Host: host, Read: read, Limits: limits, Sources: backfill.Divide(list.Objects, "", 1)})
	if err != nil {
		t.Fatal(err)
	}
	return j.ID, paths
}

// TestRateOfSmallObjects: what an object leaves below the share of a limit after which it
// is asked counts with the next object.
func TestRateOfSmallObjects(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		var files []string
		for i := range 1000 {
			files = append(files, string(lines(i*9, 9)))
		}
		id, _ := s.filesJob(t, backfill.Limits{Rows: 1000}, files...)
		start := time.Now()
		sum, err := s.start(t, JobOptions{ID: id}).wait()
		if took := time.Since(start); err != nil || sum.Rows != 9000 || took < 8*time.Second {
			t.Errorf("9000 rows at 1000 rows/s took %s, want 9 s (%d rows, %v)", took, sum.Rows, err)
		}
	})
}

// TestCancelledAtTheEnd: a job that is cancelled while its last rows are taken in is
// released.
func TestCancelledAtTheEnd(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		id := s.job(t, backfill.Limits{Rows: 1000}, string(lines(0, 3000)))
		r := s.start(t, JobOptions{ID: id})
		bubble.Pass(time.Second)
		s.change(t, id, func(s *backfill.State) error { return s.Cancel(time.Now(), "no more") })
		sum, err := r.wait()
		if ended(err) != backfill.Cancelled || sum.Rows != 3000 {
			t.Fatalf("%+v, %v", sum, err)
		}
		if st := s.state(t, id); st.Runner != nil || st.Summary == nil {
			t.Errorf("cancelled, with all 3000 rows in: runner %+v, summary %+v", st.Runner, st.Summary)
		}
	})
}

// TestFileOfAnotherError: a file that cannot be opened, for a reason that neither passes
// nor says that it is gone, ends the run. (Its folder became a file.)
func TestFileOfAnotherError(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		id, paths := s.filesJob(t, backfill.Limits{}, string(lines(0, 10)))
		dir := filepath.Dir(paths[0])
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r := s.start(t, JobOptions{ID: id})
		select {
		case <-r.done:
		case <-time.After(time.Hour):
			r.stop()
			_, err := r.wait()
			t.Errorf("after an hour the run still tries, and says nothing: %v", err)
		}
	})
}

// TestFirstFileGone: the next file is gone, the other nine are there: it is a failed
// object like others.
func TestFirstFileGone(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		var files []string
		for i := range 10 {
			files = append(files, string(lines(i*10, 10)))
		}
		id, paths := s.filesJob(t, backfill.Limits{}, files...)
		if err := os.Remove(paths[0]); err != nil {
			t.Fatal(err)
		}
		sum, err := s.start(t, JobOptions{ID: id}).wait()
		if sum.Rows != 90 {
			t.Errorf("%d rows of the nine files that are there, %v", sum.Rows, err)
		}
	})
}

// deepest notes how many jobs are being worked on in one goroutine, one within the other.
type deepest struct {
	slog.Handler
	mu   sync.Mutex
	most int
}

func (d *deepest) Enabled(context.Context, slog.Level) bool { return true }
func (d *deepest) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d *deepest) WithGroup(string) slog.Handler            { return d }
func (d *deepest) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "backfill begins" {
		return nil
	}
	pcs := make([]uintptr, 100_000)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs)])
	n := 0
	for {
		f, more := frames.Next()
		if strings.HasSuffix(f.Function, "(*filler).job") {
			n++
		}
		if !more {
			break
		}
	}
	d.mu.Lock()
	d.most = max(d.most, n)
	d.mu.Unlock()
	return nil
}

// TestManyJobsTakeTurns: jobs that follow each other do not pile up on the stack.
func TestManyJobsTakeTurns(t *testing.T) {
	t.Parallel()
	y := newYard(t, newBench(t, 0), 1)
	const n = 120
	for i := range n {
		y.job(t, 1, backfill.Limits{}, y.put(fmt.Sprintf("%d.ndjson", i), lines(i, 1)))
	}
	d := &deepest{}
	y.fresh()
	y.Logger = slog.New(d)
	sum, err := Backfill(t.Context(), y.Deps, BackfillOptions{Once: true})
	if err != nil || sum.Done != n {
		t.Errorf("%+v, %v", sum, err)
	}
	if d.most > 8 {
		t.Errorf("of %d jobs, %d were being worked on one within the other", n, d.most)
	}
	t.Logf("%d looks at the topic, for %d jobs", sum.Topics, sum.Done)
}

// plainObject is one object of keyless rows; at some row stop is called.
type plainObject struct {
	rows, stopAt int
	stop         func()
}

func (o *plainObject) Len() uint64        { return 1 }
func (o *plainObject) Name(uint64) string { return "o" }
func (o *plainObject) Open(_ context.Context, _ uint64, from uint32) (ingest.RowReader, error) {
	return &plainRows{o, int(from)}, nil
}

type plainRows struct {
	*plainObject
	at int
}

func (r *plainRows) Close() error { return nil }
func (r *plainRows) Next(context.Context) (ingest.BackfillRow, error) {
	if r.at == r.rows {
		return ingest.BackfillRow{}, io.EOF
	}
	if r.at++; r.at == r.stopAt && r.stop != nil {
		r.stop()
	}
	return ingest.BackfillRow{N: uint32(r.at - 1), Value: []byte("v")}, nil
}

// TestPrunedThenTrimmed: chunks leave out positions of backfills, then the first chunks
// are trimmed: verify does not take that for loss.
func TestPrunedThenTrimmed(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		top, err := s.Store.Topic(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		run := func(n, rows, stopAt int) {
			t.Helper()
			source := segment.BackfillSource("edge", n)
			if _, _, err := s.Store.CheckpointFile(source).Load(t.Context()); err != nil {
				if err := s.Store.CreateCheckpoint(t.Context(), source); err != nil {
					t.Fatal(err)
				}
			}
			stop, cancel := context.WithCancel(t.Context())
			defer cancel()
			b := ingest.NewBackfill(ingest.BackfillOptions{Source: source, Topic: "t", Incarnation: top.Incarnation, Store: s.Store,
				Objects: &plainObject{rows: rows, stopAt: stopAt, stop: cancel}})
			if err := b.Run(t.Context(), stop); err != nil {
				t.Fatal(err)
			}
		}
		run(0, 2000, 1000)
		for i := range 20 {
			run(1+i, 1000, 0)
		}
		run(0, 2000, 0)
		s.sound(t)
		segments, err := top.Segments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range segments {
			if err := g.Trim(t.Context(), 18); err != nil { // an entry of another source, behind the first of source 0
				t.Fatal(err)
			}
		}
		report, err := verify.Topic(t.Context(), s.Store, nil, "t")
		if err != nil || !report.OK {
			t.Errorf("verify of a trimmed topic: %v, %v", report.Violations, err)
		}
	})
}
