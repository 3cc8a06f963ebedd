package backfill

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

var asked = Reference{Source: "lane.default-0.abc", Sequence: 12, Row: 3}

func expandable() (Read, Object) {
	return Read{Format: rows.NDJSON, Compression: rows.Gzip, FixedKey: []byte("SAN\x00\xff")},
		Object{Bucket: "box", Key: "in/a.ndjson.gz", ETag: "9e107d9d372bb6826bd81d3542a419d6", Size: 81234}
}

func goldenExpand() Job {
	read, o := expandable()
	return Job{
		ID: "7k2m", Topic: "orders", Incarnation: "m4wq7r2k", Created: dawn, By: "expand " + asked.String(), Origin: o.String(),
		Reference: &asked, Read: read, Sources: []Source{{Name: SourceName("7k2m", 0), Objects: []Object{o}}},
	}
}

// TestExpandOnce: of several that make the job of a reference the first one counts.
func TestExpandOnce(t *testing.T) {
	d := newDesk(t)
	read, o := expandable()
	d.ok(d.Expand(t.Context(), asked, read, o))
	other := o
	other.ETag = "another"
	d.ok(d.Expand(t.Context(), asked, Read{Format: rows.CSV}, other))
	j, err := d.Load(t.Context(), d.expandID(asked))
	d.ok(err)
	if diff := cmp.Diff(&asked, j.Reference); diff != "" || j.Sources[0].Objects[0] != o || string(j.Read.FixedKey) != "SAN\x00\xff" {
		t.Errorf("%s %+v", diff, j)
	}
	next := asked
	next.Row++
	d.ok(d.Expand(t.Context(), next, read, o))
	n := 0
	for l, err := range d.List(t.Context()) {
		d.ok(err)
		if n++; l.State.Phase != Waiting {
			t.Errorf("%+v", l)
		}
	}
	if n != 2 {
		t.Errorf("%d jobs", n)
	}
}

// TestExpandCrashes: killed at whatever call, making it again makes one job.
func TestExpandCrashes(t *testing.T) {
	read, o := expandable()
	for _, lost := range []bool{false, true} {
		for at := 1; ; at++ {
			d := newDesk(t)
			ctx, kill := context.WithCancel(t.Context())
			c := &crash{n: at, lost: lost, kill: kill}
			err := d.jobs(c.hook).Expand(ctx, asked, read, o)
			kill()
			if !c.dead {
				d.ok(err)
				break
			}
			d.ok(d.Expand(t.Context(), asked, read, o))
			d.ok(d.Decide(t.Context(), asked, true))
			s, err := d.State(t.Context(), d.expandID(asked))
			if err != nil || s.Phase != Open {
				t.Fatalf("killed at call %d: %+v, %v", at, s, err)
			}
		}
	}
}

// TestDecide: a job starts if its reference counts, and ends if it does not, whenever
// whoever says so is killed; until then nobody can work on it.
func TestDecide(t *testing.T) {
	for accepted, phase := range map[bool]Phase{true: Open, false: Cancelled} {
		for at := 1; ; at++ {
			d := newDesk(t)
			read, o := expandable()
			d.ok(d.Expand(t.Context(), asked, read, o))
			s, err := d.State(t.Context(), d.expandID(asked))
			if claim := s.Claim(dawn, "r", "h"); err != nil || !errors.As(claim, new(*PhaseError)) {
				t.Errorf("claimed while it waits: %v, %v", claim, err)
			}
			ctx, kill := context.WithCancel(t.Context())
			crash := &crash{n: at, lost: at%2 == 0, kill: kill}
			err = d.jobs(crash.hook).Decide(ctx, asked, accepted)
			kill()
			if !crash.dead {
				d.ok(err)
			}
			for _, says := range []bool{accepted, accepted, !accepted} { // what is decided stays so
				d.ok(d.Decide(t.Context(), asked, says))
				s, err := d.State(t.Context(), d.expandID(asked))
				if err != nil || s.Phase != phase {
					t.Fatalf("%+v, %v", s, err)
				}
			}
			if !crash.dead {
				break
			}
		}
	}
	if err := newDesk(t).Decide(t.Context(), asked, true); !errors.Is(err, ErrNoJob) {
		t.Error(err)
	}
}

// TestWaitingIsLeftAlone: nobody can pause, resume or finish what has not begun, but
// cancel it, and then it stays so.
func TestWaitingIsLeftAlone(t *testing.T) {
	d := newDesk(t)
	read, o := expandable()
	d.ok(d.Expand(t.Context(), asked, read, o))
	s, err := d.State(t.Context(), d.expandID(asked))
	d.ok(err)
	for what, err := range map[string]error{"pause": s.Pause(""), "resume": s.Resume()} {
		if !errors.As(err, new(*PhaseError)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = d.Update(t.Context(), d.expandID(asked), func(s *State) error { return s.Cancel(dawn, "not wanted") })
	d.ok(err)
	d.ok(d.Decide(t.Context(), asked, true))
	if s, err := d.State(t.Context(), d.expandID(asked)); err != nil || s.Phase != Cancelled {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestLostState: the state of a job of which something is done is made again as open,
// and that of another one waits.
func TestLostState(t *testing.T) {
	for rows, want := range []Phase{Waiting, Open} {
		d := newDesk(t)
		read, o := expandable()
		d.ok(d.Expand(t.Context(), asked, read, o))
		d.ok(d.Decide(t.Context(), asked, true))
		id := d.expandID(asked)
		d.move(SourceName(id, 0), func(c *segment.Checkpoint) { c.Rows = uint32(rows) })
		d.ok(d.store.Filer.Delete(t.Context(), strings.TrimSuffix(d.jobPath(id), jobName)+stateName, ""))
		if s, err := d.State(t.Context(), id); err != nil || s.Phase != want {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// TestExpandInvalid: what can be no job says so before anything is written.
func TestExpandInvalid(t *testing.T) {
	for want, change := range map[string]func(*Job, *topic.Definition){
		"has no proper ETag": func(j *Job, _ *topic.Definition) { j.Sources[0].Objects[0].ETag = "" },
		"2 objects":          func(j *Job, _ *topic.Definition) { j.Sources[0].Objects = some(2) },
		"of a source":        func(j *Job, _ *topic.Definition) { j.Reference = &Reference{Sequence: 1} },
		"a place of keys":    func(j *Job, _ *topic.Definition) { j.Read.Key = "/id" },
		"from a place":       func(_ *Job, d *topic.Definition) { d.Key = "json:/id" },
	} {
		d := newDesk(t)
		j := goldenExpand()
		j.Topic, j.Incarnation = d.topic.Name, d.topic.Incarnation
		def := d.topic.Definition
		change(&j, &def)
		err := j.Validate(def)
		if !errors.As(err, new(*JobError)) {
			t.Errorf("%s: %v", want, err)
		}
		wantText(t, err, want)
	}
	d := newDesk(t)
	read, o := expandable()
	o.ETag = ""
	before := len(d.fs.Paths())
	if err := d.Expand(t.Context(), asked, read, o); !errors.As(err, new(*JobError)) || len(d.fs.Paths()) != before {
		t.Errorf("%v, %q", err, d.fs.Paths())
	}
}

// TestEmptyKey: an empty key is one, and none is none.
func TestEmptyKey(t *testing.T) {
	for _, key := range [][]byte{nil, {}} {
		d := newDesk(t)
		read, o := expandable()
		read.FixedKey = key
		d.ok(d.Expand(t.Context(), asked, read, o))
		j, err := d.Load(t.Context(), d.expandID(asked))
		d.ok(err)
		if (j.Read.FixedKey == nil) != (key == nil) {
			t.Errorf("%v became %v", key, j.Read.FixedKey)
		}
	}
}
