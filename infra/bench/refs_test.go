package main

import (
	"bytes"
	"io"
	"testing"
	"testing/iotest"
)

// TestTurned: the noise goes round, from any offset on, and by other amounts it
// is other bytes.
func TestTurned(t *testing.T) {
	noise := []byte("0123456789")
	for by, want := range map[int64]string{0: "01234567890123456789012", 3: "34567890123456789012345", 13: "34567890123456789012345"} {
		r := io.NewSectionReader(turned{noise, by}, 0, int64(len(want)))
		if err := iotest.TestReader(r, []byte(want)); err != nil {
			t.Errorf("by %d: %v", by, err)
		}
	}
	var one, other bytes.Buffer
	for to, by := range map[*bytes.Buffer]int64{&one: 1, &other: 2} {
		if _, err := io.Copy(to, io.NewSectionReader(turned{noise, by}, 0, 5)); err != nil {
			t.Fatal(err)
		}
	}
	if bytes.Equal(one.Bytes(), other.Bytes()) {
		t.Error("the same bytes")
	}
}

// TestOutcome: rates are of all turns together, and what is pending is stored, but
// not verified.
func TestOutcome(t *testing.T) {
	var total outcome
	total.add(outcome{n: 10, pending: 5, took: 1e9})
	total.add(outcome{n: 30, pending: 5, took: 3e9})
	if total.perSecond() != 10 || total.verified() != 7.5 {
		t.Errorf("%v and %v a second", total.perSecond(), total.verified())
	}
}
