package compactor

import (
	"testing"
	"time"
)

func TestCompact(t *testing.T) {
	w := newWorld(t, 2)
	ids := w.live(t)
	w.add(t, ids[0], "..n")
	w.add(t, ids[0], "rxbem.l")
	w.add(t, ids[1], "....")
	next := w.roll(t, ids[0])
	w.add(t, next, "..")
	c := w.compactor()
	r := w.compact(t, c)
	if r.Compacted != 1 || r.Committed != 1 || r.Trimmed != 0 || r.Waiting != 1 || r.Records != 10 || r.Rows != 12 || r.Files != 1 {
		t.Errorf("%+v", r)
	}
	if !r.Next.Equal(noon.Add(grace)) {
		t.Errorf("the grace ends at %s", r.Next)
	}
	w.audit(t)
	w.pass(grace - time.Second)
	if r := w.compact(t, c); r.Trimmed != 0 || r.Waiting != 1 {
		t.Errorf("before the grace is over: %+v", r)
	}
	w.pass(time.Second)
	if r := w.compact(t, c); r.Trimmed != 1 || r.Waiting != 0 || !r.Next.IsZero() {
		t.Errorf("after it: %+v", r)
	}
	w.audit(t)
	w.trimmed(t)
	if r := w.compact(t, c); r != (Report{}) {
		t.Errorf("once more: %+v", r)
	}
}
