package backfill

import (
	"context"
	"errors"
	"flag"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

var updateJobs = flag.Bool("update-jobs", false, "write the golden files of jobs")

func goldenJob() Job {
	rejects := uint32(5000)
	return Job{
		ID: "k3j9x2abq7wz", Topic: "orders", Incarnation: "m4wq7r2k", Created: dawn,
		By: "schedule nightly at 2026-12-01T02:00:00Z", Origin: "s3://box/in/", Schedule: "p5yq2c7d", Endpoint: "http://s3.internal:8333",
		Read: Read{
			Format: rows.NDJSON, Compression: rows.Gzip, CSV: CSV{Comma: ";", Names: []string{"id", "<at>"}, NoHeader: true}, MaxRow: 1 << 20,
			Key: "/id", Time: "/at", TimeLayout: rows.UnixMillis, Zone: "Europe/Berlin", Headers: map[string]string{"kind": "/kind"},
			From: dawn.AddDate(-1, 0, 0), Until: dawn,
		},
		Limits: Limits{Rows: 50000, Bytes: 8 << 20, MaxRejects: &rejects},
		Sources: []Source{
			{Name: "backfill.k3j9x2abq7wz.0", Objects: []Object{
				{Bucket: "box", Key: "in/2025 <a>&b.ndjson.gz", Version: "v1", ETag: "9e107d9d372bb6826bd81d3542a419d6", Size: 81234},
				{Bucket: "box", Key: "in/c.csv", ETag: "e4d909c290d0fb1ca068ffaddf22cbd0-3", Size: 0, Format: rows.CSV},
			}},
			{Name: "backfill.k3j9x2abq7wz.1", Objects: []Object{
				{Bucket: "box", Key: "in/ä.ndjson.gz", ETag: "d41d8cd98f00b204e9800998ecf8427e", Size: 90111},
			}},
		},
	}
}

func goldenState() State {
	j := goldenJob()
	s := NewState(j)
	_ = s.Claim(dawn.Add(time.Minute), "r7x2", "worker-3")
	_ = s.Finish(dawn.Add(time.Minute+90500*time.Millisecond), "r7x2", ProgressAt(j, []segment.Checkpoint{
		{Sequence: 2, Tally: &segment.Tally{Objects: 2, Rows: 811, Bytes: 79_001, Rejected: 3, Filtered: 12, Segments: []topic.SegmentID{"0-0-abc"}}},
		{Sequence: 2, Tally: &segment.Tally{Objects: 1, Failures: []segment.Failure{{Object: 1, Row: 901, Reason: "cut off"}}, Rows: 900, Bytes: 80_000, Rejected: 1, Dropped: 44, Segments: []topic.SegmentID{"0-0-abc", "1-0-def"}}},
	}))
	return s
}

// TestGolden: the files of FORMAT.
func TestGolden(t *testing.T) {
	job, err := encode(goldenJob())
	if err != nil {
		t.Fatal(err)
	}
	expand, err := encode(goldenExpand())
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := cursor.Encode(NewState(goldenJob()))
	if err != nil {
		t.Fatal(err)
	}
	done, err := cursor.Encode(goldenState())
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"job.json": job, "job-expand.json": expand, "state.json": fresh, "state-done.json": done} {
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
	d := newDesk(t)
	d.topic.Incarnation = "m4wq7r2k"
	j, err := d.thaw("k3j9x2abq7wz", job, filer.Attrs{attrDigest: digest(job)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(goldenJob(), j); diff != "" {
		t.Error(diff)
	}
	if err := j.Validate(d.topic.Definition); err != nil {
		t.Error(err)
	}
}

func TestCreateAndLoad(t *testing.T) {
	for name, n := range map[string]int{"inline": 7, "in blobs": 2000} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			made, err := d.Create(t.Context(), draft(n, 3))
			d.ok(err)
			if err := CheckID(made.ID); err != nil || len(made.ID) != randomID || made.Created != dawn || made.Incarnation != d.topic.Incarnation {
				t.Errorf("made %+v", made)
			}
			got, err := d.Load(t.Context(), made.ID)
			d.ok(err)
			if diff := cmp.Diff(made, got); diff != "" {
				t.Error(diff)
			}
			for i, s := range got.Sources {
				c, _, err := d.store.CheckpointFile(s.Name).Load(t.Context())
				if err != nil || c.Source != SourceName(made.ID, i) || c.Sequence != 0 {
					t.Errorf("checkpoint %+v, %v", c, err)
				}
			}
			s, err := d.State(t.Context(), made.ID)
			if diff := cmp.Diff(NewState(made), s); err != nil || diff != "" {
				t.Error(err, diff)
			}
			if p := d.fs.Problems(); len(p) > 0 || d.fs.Blobs() != 0 {
				t.Errorf("problems %q, %d blobs left", p, d.fs.Blobs())
			}
		})
	}
}

// TestCreateCrashes: killed at whatever call, a job is there with all that it needs,
// or not there and can be made.
func TestCreateCrashes(t *testing.T) {
	for _, n := range []int{4, 1500} { // inline, and in blobs
		for _, lost := range []bool{false, true} {
			at := 1
			for ; ; at++ {
				d := newDesk(t)
				job := draft(n, 3)
				job.ID = d.DerivedID("slot")
				ctx, kill := context.WithCancel(t.Context())
				c := &crash{n: at, lost: lost, kill: kill}
				_, err := d.jobs(c.hook).Create(ctx, job)
				kill()
				if !c.dead {
					d.ok(err)
					break
				}
				d.afterCrash(job)
			}
			if at < 7 { // a look, three checkpoints, the job, the state
				t.Fatalf("only %d calls", at)
			}
		}
	}
}

func (d *desk) afterCrash(job Job) {
	d.Helper()
	_, err := d.Load(d.Context(), job.ID)
	there := err == nil
	if !there && !errors.Is(err, ErrNoJob) {
		d.Fatal(err)
	}
	if there {
		s, err := d.State(d.Context(), job.ID)
		if err != nil || s.Phase != Open || s.Job.Objects == 0 {
			d.Fatalf("state %+v, %v", s, err)
		}
	}
	again, err := d.Create(d.Context(), job)
	if there != errors.Is(err, ErrJobExists) || !there && err != nil {
		d.Fatalf("was there: %v; made again: %v", there, err)
	}
	p, err := d.Progress(d.Context(), again)
	if err != nil || p.Total == 0 || p.Tally.Objects != 0 {
		d.Fatalf("progress %+v, %v", p, err)
	}
	if problems := d.fs.Problems(); len(problems) > 0 {
		d.Fatal(problems)
	}
}

// TestCreatorsRace: of different jobs with the same ID there is one, and all who
// tried know which.
func TestCreatorsRace(t *testing.T) {
	for range 30 {
		d := newDesk(t)
		id := d.DerivedID("schedule", "slot")
		results := make([]Job, 4)
		var made atomic.Int32
		var g errgroup.Group
		for i := range results {
			g.Go(func() error {
				job := draft(10+i, i+1)
				job.ID = id
				var err error
				results[i], err = d.jobs(nil).Create(t.Context(), job)
				if err == nil {
					made.Add(1)
				} else if !errors.Is(err, ErrJobExists) {
					return err
				}
				return nil
			})
		}
		d.ok(g.Wait())
		is, err := d.Load(t.Context(), id)
		d.ok(err)
		for _, r := range results {
			if diff := cmp.Diff(is, r); diff != "" {
				t.Fatal(diff)
			}
		}
		if made.Load() != 1 {
			t.Fatalf("%d made it", made.Load())
		}
		if _, err := d.Progress(t.Context(), is); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostReplies: a creation whose replies are lost now and then is made once.
func TestLostReplies(t *testing.T) {
	d := newDesk(t)
	lose := func(op memfs.Op) memfs.Fault {
		if op.N == 1 && (op.Name == "Create" || op.Name == "Upload") {
			return memfs.Fault{After: memfs.ErrLost}
		}
		return memfs.Fault{}
	}
	made, err := d.jobs(lose).Create(t.Context(), draft(1500, 2))
	d.ok(err)
	got, err := d.Load(t.Context(), made.ID)
	if diff := cmp.Diff(made, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	broken := func(op memfs.Op) memfs.Fault {
		if op.N <= 2 && (op.Name == "Lookup" || op.Name == "Open" || op.Name == "Read") {
			return memfs.Fault{Before: errors.New("cut")}
		}
		return memfs.Fault{}
	}
	got, err = d.jobs(broken).Load(t.Context(), made.ID)
	if diff := cmp.Diff(made, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestWorkedBeforeWithoutAJob(t *testing.T) {
	d := newDesk(t)
	job := draft(4, 2)
	job.ID = d.DerivedID("x")
	made, err := d.Create(t.Context(), job)
	d.ok(err)
	d.move(made.Sources[1].Name, func(c *segment.Checkpoint) { c.Rows = 1 })
	d.ok(d.store.Filer.Delete(t.Context(), d.jobPath(made.ID), ""))
	_, err = d.Create(t.Context(), job)
	if !errors.Is(err, ErrNoJob) {
		t.Fatal(err)
	}
	wantText(t, err, "worked on before")
	if _, err := d.Load(t.Context(), made.ID); !errors.Is(err, ErrNoJob) {
		t.Error(err)
	}
}

// TestFreshID: an ID that is random and met before is another job's.
func TestFreshID(t *testing.T) {
	d := newDesk(t)
	d.ok(d.store.CreateCheckpoint(t.Context(), SourceName("abc", 1)))
	job := draft(4, 2)
	job.ID = "abc"
	if _, err := d.create(t.Context(), job, true); !errors.Is(err, errTaken) {
		t.Error(err)
	}
	if _, err := d.Load(t.Context(), "abc"); !errors.Is(err, ErrNoJob) {
		t.Error(err)
	}
}

// TestLostBytes: a file without its bytes is there, and damaged.
func TestLostBytes(t *testing.T) {
	d := newDesk(t)
	job := draft(2000, 2)
	job.ID = d.DerivedID("x")
	_, err := d.Create(t.Context(), job)
	d.ok(err)
	d.ok(d.fs.LoseBlobs(d.jobPath(job.ID)))
	if _, err := d.Load(t.Context(), job.ID); !errors.As(err, new(*FrozenError)) || errors.Is(err, ErrNoJob) {
		t.Error(err)
	}
	if _, err := d.Create(t.Context(), job); !errors.As(err, new(*FrozenError)) {
		t.Error(err)
	}
}

func TestDerivedID(t *testing.T) {
	d := newDesk(t)
	a, b, c := d.DerivedID("ab", "c"), d.DerivedID("a", "bc"), d.DerivedID("ab", "c")
	if a == b || a != c || CheckID(a) != nil {
		t.Error(a, b, c)
	}
	other := newDesk(t)
	if other.DerivedID("ab", "c") == a {
		t.Error("the same for another incarnation")
	}
}

// TestLoadRefuses: a file that is not as it was written is never worked on.
func TestLoadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(d *desk, id string, f *filer.File)
		want string
	}{
		"a bit":           {func(d *desk, id string, f *filer.File) { f.Content[len(f.Content)/2] ^= 1 }, "digest"},
		"no digest":       {func(d *desk, id string, f *filer.File) { f.Attrs = filer.Attrs{} }, "no digest"},
		"empty":           {func(d *desk, id string, f *filer.File) { f.Content = []byte{} }, "digest"},
		"of another":      {func(d *desk, id string, f *filer.File) { redo(f, `"id":"`+id, `"id":"other`) }, "it is of job"},
		"of another time": {func(d *desk, id string, f *filer.File) { redo(f, d.topic.Incarnation, "zzzzzzzz") }, "incarnation"},
		"newer":           {func(d *desk, id string, f *filer.File) { redo(f, `"read":{`, `"read":{"skip":7,`) }, "newer version"},
		"other source":    {func(d *desk, id string, f *filer.File) { redo(f, id+".1", id+".7") }, "called"},
		"hostile key":     {func(d *desk, id string, f *filer.File) { redo(f, "in/0001", "../0001") }, ".."},
		"no JSON":         {func(d *desk, id string, f *filer.File) { redo(f, `{"id"`, `"id"`) }, "understood"},
		"huge": {func(d *desk, id string, f *filer.File) {
			f.Content = nil
			for range MaxFile/filer.MaxBlob + 1 {
				blob, err := d.store.Filer.Upload(d.Context(), "/x/y", make([]byte, filer.MaxBlob))
				d.ok(err)
				f.Blobs = append(f.Blobs, blob)
			}
		}, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			made, err := d.Create(t.Context(), draft(5, 2))
			d.ok(err)
			e, err := d.store.Filer.Lookup(t.Context(), d.jobPath(made.ID))
			d.ok(err)
			f := filer.File{ID: filer.NewID(), Attrs: e.Attrs, Content: slices.Clone(e.Content)}
			c.edit(d, made.ID, &f)
			d.ok(d.store.Filer.Update(t.Context(), d.jobPath(made.ID), e.ID, f))
			_, err = d.Load(t.Context(), made.ID)
			var frozen *FrozenError
			if !errors.As(err, &frozen) || !errors.Is(err, filer.ErrCorrupt) {
				t.Fatalf("error %v", err)
			}
			wantText(t, err, c.want, d.jobPath(made.ID))
		})
	}
	d := newDesk(t)
	if _, err := d.Load(t.Context(), "../x"); !errors.As(err, new(*IDError)) {
		t.Error(err)
	}
	d.ok(d.store.Filer.Create(t.Context(), d.jobPath("dir")+"/x", filer.File{ID: "x"}))
	if _, err := d.Load(t.Context(), "dir"); !errors.As(err, new(*FrozenError)) {
		t.Error(err)
	}
}

// redo replaces text in a file, and gives it the digest that fits.
func redo(f *filer.File, old, with string) {
	f.Content = []byte(strings.Replace(string(f.Content), old, with, 1))
	f.Attrs = filer.Attrs{attrDigest: digest(f.Content)}
}

// TestTooLarge: a job's file is bounded.
func TestTooLarge(t *testing.T) {
	d := newDesk(t)
	job := draft(1, 1)
	for i := range 22_500 {
		job.Sources[0].Objects = append(job.Sources[0].Objects, Object{
			Bucket: "box", Key: strings.Repeat("k", 1000) + strconv.Itoa(i), Version: strings.Repeat("v", 1000), ETag: strings.Repeat("e", 1000),
		})
	}
	before := len(d.fs.Paths())
	_, err := d.Create(t.Context(), job)
	if !errors.As(err, new(*JobError)) {
		t.Fatal(err)
	}
	wantText(t, err, "split it by prefix")
	if len(d.fs.Paths()) != before {
		t.Error("something was written")
	}
}
