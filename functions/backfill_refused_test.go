package functions

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/backfill"
)

// TestJobKept: while a run works, its job is shown to be in hand, and how far it is is
// told.
func TestJobKept(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		id := s.job(t, backfill.Limits{Rows: 100}, string(lines(0, 6000)))
		var told []JobProgress
		r := s.start(t, JobOptions{ID: id, Progress: func(p JobProgress) { told = append(told, p) }})
		for range 5 {
			bubble.Pass(10 * time.Second)
			st := s.state(t, id)
			if st.Runner == nil || time.Until(st.Runner.Until) < 20*time.Second {
				t.Errorf("%+v", st.Runner)
			}
		}
		now := told[len(told)-1]
		if now.RowsPerSecond < 80 || now.RowsPerSecond > 120 || now.ETA < 5*time.Second || now.ETA > 25*time.Second {
			t.Errorf("after 50 of 60 s: %.0f rows/s, ETA %s, %d rows", now.RowsPerSecond, now.ETA, now.Rows)
		}
		if sum, err := r.wait(); err != nil || sum.Seconds < 59 || sum.Seconds > 62 {
			t.Errorf("%+v, %v", sum, err)
		}
		if last := told[len(told)-1]; !last.Done() || last.Rows != 6000 || len(told) < 100 {
			t.Errorf("told %d times, at last %+v", len(told), last)
		}
	})
}

// TestJobRefused: what cannot be worked on says why, and by whom it is to be mended.
func TestJobRefused(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		id := s.job(t, backfill.Limits{}, string(lines(0, 10)))
		j, err := s.jobs.Load(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		refused := func(o JobOptions, code int, words string) {
			t.Helper()
			d := s.Deps
			d.Metrics = nil
			if _, err := RunJob(t.Context(), d, o); ExitCode(err) != code || !strings.Contains(err.Error(), words) {
				t.Errorf("%+v: %v, exit code %d", o, err, ExitCode(err))
			}
		}
		refused(JobOptions{Topic: "none", ID: id}, ExitConfig, "none")
		refused(JobOptions{Topic: "t", ID: "nosuchjob"}, ExitConfig, "there is no such backfill job")
		refused(JobOptions{Topic: "t", ID: "no/id"}, ExitUsage, "no/id")

		name := j.Sources[0].Objects[0].Path
		if err := os.Rename(name, name+"x"); err != nil {
			t.Fatal(err)
		}
		refused(JobOptions{Topic: "t", ID: id}, ExitConfig, "no file of job")
		if err := os.Rename(name+"x", name); err != nil {
			t.Fatal(err)
		}
		other, err := s.jobs.Create(t.Context(), backfill.Job{By: "test", Origin: "files", Host: "elsewhere", Read: j.Read, Sources: j.Sources})
		if err != nil {
			t.Fatal(err)
		}
		refused(JobOptions{Topic: "t", ID: other.ID}, ExitConfig, "machine elsewhere")

		var file string
		for _, p := range s.fs.Paths() {
			if strings.HasSuffix(p, "/"+id+"/job.json") {
				file = p
			}
		}
		if err := s.fs.Corrupt(file); err != nil {
			t.Fatal(err)
		}
		refused(JobOptions{Topic: "t", ID: id}, ExitBug, "digest")
		s3, err := s.jobs.Create(t.Context(), backfill.Job{By: "test", Origin: "s3", Read: j.Read, Sources: []backfill.Source{{Objects: []backfill.Object{{Bucket: "bucket", Key: "a.ndjson", ETag: "e", Size: 4}}}}})
		if err != nil {
			t.Fatal(err)
		}
		refused(JobOptions{Topic: "t", ID: s3.ID}, ExitConfig, "--s3")
		id = s.job(t, backfill.Limits{}, string(lines(0, 10)))
		if err := s.Store.Filer.Delete(t.Context(), s.Store.CheckpointFile(backfill.SourceName(id, 0)).Path(), ""); err != nil {
			t.Fatal(err)
		}
		refused(JobOptions{Topic: "t", ID: id}, ExitConfig, "checkpoint is missing")
	})
}

// TestJobTopicGone: a job ends with its topic.
func TestJobTopicGone(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		id := s.job(t, backfill.Limits{Rows: 1000}, string(lines(0, 30_000)))
		r := s.start(t, JobOptions{ID: id})
		bubble.Pass(3 * time.Second)
		if err := s.Store.DeleteTopic(t.Context(), "t", time.Now()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if sum, err := r.wait(); ExitCode(err) != ExitConfig || time.Since(start) > time.Minute {
			t.Errorf("%+v, %v, exit code %d after %s", sum, err, ExitCode(err), time.Since(start))
		}
	})
}
