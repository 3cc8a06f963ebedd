package segment

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
)

// TestInTable: what a table has is said once, and changed only by who knows what was
// said.
func TestInTable(t *testing.T) {
	f := newFamily(t, 2, 1, 1)
	seg := f.segs[0]
	if _, version, err := seg.InTable(t.Context()); !errors.Is(err, filer.ErrNotFound) || version != "" {
		t.Errorf("none: version %q, error %v", version, err)
	}
	first := InTable{Table: "spillway.orders", UUID: "one", Snapshot: 1<<62 + 1, At: noon.In(time.FixedZone("", 3600))}
	if err := seg.SaveInTable(t.Context(), first, ""); err != nil {
		t.Fatal(err)
	}
	if err := f.fresh(seg).SaveInTable(t.Context(), first, ""); !errors.Is(err, filer.ErrExists) {
		t.Errorf("again: error %v", err)
	}
	got, version, err := f.fresh(seg).InTable(t.Context())
	first.At = noon
	if err != nil || !cmp.Equal(got, first) {
		t.Errorf("%+v, error %v", got, err)
	}
	second := InTable{Table: "spillway.orders", UUID: "two", Snapshot: -1, At: noon}
	if err := seg.SaveInTable(t.Context(), second, version); err != nil {
		t.Fatal(err)
	}
	if err := f.fresh(seg).SaveInTable(t.Context(), first, version); !errors.Is(err, filer.ErrConflict) {
		t.Errorf("of an old version: error %v", err)
	}
	if got, _, err := seg.InTable(t.Context()); err != nil || !cmp.Equal(got, second) {
		t.Errorf("%+v, error %v", got, err)
	}
}

// TestQuarantine: it is set, told anew without forgetting what an operator wants, and
// lifted only by who knows what it says.
func TestQuarantine(t *testing.T) {
	f := newFamily(t, 2, 1, 1)
	seg := f.segs[0]
	ctx := t.Context()
	if _, err := seg.Quarantine(ctx); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("none: error %v", err)
	}
	q := Quarantine{Chunk: 0, Path: seg.log.Path(0), First: 0, Last: 4, Reason: "digest", At: noon}
	if err := errors.Join(seg.LiftQuarantine(ctx, q), seg.SetQuarantine(ctx, q), seg.SetQuarantine(ctx, q)); err != nil {
		t.Fatal(err)
	}
	wanted := q
	wanted.Drop = []DroppedRange{{0, 4, "not worth it"}}
	if err := f.fresh(seg).SetQuarantine(ctx, wanted); err != nil {
		t.Fatal(err)
	}
	if err := seg.LiftQuarantine(ctx, q); !errors.Is(err, filer.ErrConflict) {
		t.Errorf("lifted by who does not know: error %v", err)
	}
	q.Reason, wanted.Reason = "gone", "gone"
	if err := seg.SetQuarantine(ctx, q); err != nil {
		t.Fatal(err)
	}
	got, err := seg.Quarantine(ctx)
	if err != nil || !cmp.Equal(got, wanted) {
		t.Errorf("error %v, %s", err, cmp.Diff(wanted, got))
	}
	if err := seg.LiftQuarantine(ctx, got); err != nil {
		t.Fatal(err)
	}
	if _, err := seg.Quarantine(ctx); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("lifted: error %v", err)
	}
	f.damaged(seg, q)
}

// damaged puts bytes that mean nothing at the place of a quarantine.
func (f *family) damaged(seg *Segment, q Quarantine) {
	f.Helper()
	ctx := f.Context()
	f.put(seg.quarantine().Path(), []byte("{"), "")
	if _, err := seg.Quarantine(ctx); !errors.Is(err, filer.ErrCorrupt) {
		f.Errorf("damaged: error %v", err)
	}
	if err := seg.LiftQuarantine(ctx, q); !errors.Is(err, filer.ErrCorrupt) {
		f.Errorf("lift a damaged one: error %v", err)
	}
	if err := seg.SetQuarantine(ctx, q); err != nil {
		f.Fatal(err)
	}
	if got, err := seg.Quarantine(ctx); err != nil || !cmp.Equal(got, q) {
		f.Errorf("%+v, error %v", got, err)
	}
}
