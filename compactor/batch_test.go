package compactor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/topic"
)

// rowsOf are the rows of a segment's data files, in short.
func (w *world) rowsOf(t tester, id topic.SegmentID) (list []string) {
	t.Helper()
	s := w.segment(t, id)
	m, err := s.Manifest(t.Context())
	must(t, err)
	for _, f := range m.Files {
		e, err := w.store.Filer.Lookup(t.Context(), s.DataPath(f.Name))
		must(t, err)
		r, err := parquet.Open(filer.NewReaderAt(t.Context(), w.store.Filer, e), e.Size)
		must(t, err)
		for row, err := range r.Rows(t.Context(), parquet.Filter{}) {
			must(t, err)
			list = append(list, fmt.Sprintf("%d/%d %q %q", row.Offset, row.Batch, row.Value, row.Error))
		}
	}
	return list
}

func TestBatches(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "rbemb.bb")
	w.objects.rows["s3://bucket/b/5"] = nil // no rows
	w.objects.says["s3://bucket/b/7"] = &object.NameError{}
	w.rows[id] -= 4
	w.roll(t, id)
	w.finish(t)
	want := []string{
		`0/-1 "" ""`,
		`1/0 "s3://bucket/b/2 0" ""`, `1/1 "s3://bucket/b/2 1" "it is no JSON"`, `1/2 "" ""`,
		`2/-1 "" ""`,
		`3/-1 "" "head s3://bucket/m/4: there is no such object"`,
		`4/-1 "" "the object has no rows"`,
		`5/-1 "{\"n\":6}" ""`,
		`6/-1 "" "` + (&object.NameError{}).Error() + `"`,
		`7/0 "s3://bucket/b/8 0" ""`, `7/1 "s3://bucket/b/8 1" "it is no JSON"`, `7/2 "" ""`,
	}
	if d := cmp.Diff(want, w.rowsOf(t, id)); d != "" {
		t.Error(d)
	}
}

// A batch is cut where a file ends.
func TestBatchInTwoFiles(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, ".b.")
	var list []string
	for i := range 40 {
		list = append(list, strings.Repeat(fmt.Sprint(i), 5000))
	}
	w.objects.rows["s3://bucket/b/2"] = list
	w.rows[id] += uint64(len(list)) - 3
	w.roll(t, id)
	c := w.compactor()
	c.FileBytes = 1 // every row
	w.compact(t, c)
	m, err := w.segment(t, id).Manifest(t.Context())
	must(t, err)
	if len(m.Files) != 42 || m.Records != 3 || m.Rows != 42 {
		t.Errorf("%d files, %d records, %d rows", len(m.Files), m.Records, m.Rows)
	}
	w.finish(t)
}

// While nobody can tell what is in an object, the segment waits, and no other does.
func TestBatchesWait(t *testing.T) {
	for name, test := range map[string]struct {
		down      error
		elsewhere int
		postponed int
	}{
		"no answer":        {down: &object.UnavailableError{Op: "get", Err: errors.New("connection refused")}, postponed: 1},
		"no rights":        {down: fmt.Errorf("get: %w", object.ErrForbidden), postponed: 1},
		"another endpoint": {down: &ElsewhereError{"orders", "http://a", "http://b"}, elsewhere: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			ids := w.live(t)
			w.add(t, ids[0], ".b")
			w.add(t, ids[1], ".")
			w.roll(t, ids[0])
			w.roll(t, ids[1])
			w.objects.fail(test.down)
			c := w.compactor()
			for range 3 {
				r := w.compact(t, c)
				if r.Elsewhere != test.elsewhere || r.Postponed != test.postponed || r.Next.IsZero() {
					t.Errorf("%+v", r)
				}
				if test.postponed > 0 && !errors.Is(r.Silent, test.down) {
					t.Errorf("it says %v", r.Silent)
				}
			}
			if w.objects.opens != 1 {
				t.Errorf("it was asked for %d times before its time", w.objects.opens)
			}
			if _, err := w.segment(t, ids[1]).Manifest(t.Context()); err != nil {
				t.Errorf("the other segment: %v", err)
			}
			w.objects.fail(nil)
			w.pass(2 * time.Minute)
			if r := w.compact(t, c); r.Compacted != 1 {
				t.Errorf("%+v", r)
			}
			w.finish(t)
		})
	}
}

func TestBatchesWithoutEndpoint(t *testing.T) {
	w := newWorld(t, 2)
	ids := w.live(t)
	w.add(t, ids[0], ".b")
	w.add(t, ids[1], "rem") // m is a batch too
	w.roll(t, ids[0])
	w.roll(t, ids[1])
	o := w.options(nil, nil)
	o.Expander = NewExpander(nil, "")
	if o.Expander != nil {
		t.Fatal("an expander of nothing")
	}
	if r := w.compact(t, New(o)); r.Elsewhere != 2 || r.Compacted != 0 {
		t.Errorf("%+v", r)
	}
	w.finish(t)
}

// An object that was not there when its reference was committed is waited for, as long as
// the follow-up looks for it.
func TestBatchesPending(t *testing.T) {
	for _, comes := range []bool{true, false} {
		t.Run(fmt.Sprint(comes), func(t *testing.T) {
			w := newWorld(t, 1)
			id := w.live(t)[0]
			w.add(t, id, ".p")
			w.roll(t, id)
			c := w.compactor()
			w.pass(23 * time.Hour)
			if r := w.compact(t, c); r.Postponed != 1 || r.Compacted != 0 {
				t.Errorf("%+v", r)
			}
			if comes {
				w.objects.rows["s3://bucket/p/2"] = []string{"0", "1"}
				w.rows[id]++
			}
			w.pass(time.Hour + time.Second)
			if r := w.compact(t, c); r.Postponed != 0 || r.Compacted != 1 {
				t.Errorf("%+v", r)
			}
			want := []string{`0/-1 "{\"n\":1}" ""`, `1/-1 "" "head s3://bucket/p/2: there is no such object"`}
			if comes {
				want = []string{want[0], `1/0 "0" ""`, `1/1 "1" ""`}
			}
			if d := cmp.Diff(want, w.rowsOf(t, id)); d != "" {
				t.Error(d)
			}
			w.finish(t)
		})
	}
}
