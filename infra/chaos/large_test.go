package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

// TestPages: the object's bytes are the same from whichever offset they are read,
// and no two pages are the same.
func TestPages(t *testing.T) {
	const size = 3*pageSize + 100
	all, err := io.ReadAll(io.NewSectionReader(pages{}, 0, size))
	if err != nil || len(all) != size {
		t.Fatalf("%d bytes, %v", len(all), err)
	}
	if err := iotest.TestReader(io.NewSectionReader(pages{}, 0, size), all); err != nil {
		t.Error(err)
	}
	for off := int64(pageSize - 9); off < pageSize+9; off++ {
		got := make([]byte, 20)
		if n, err := (pages{}).ReadAt(got, off); n != len(got) || err != nil || !bytes.Equal(got, all[off:off+20]) {
			t.Errorf("from %d on: %x, %d, %v; want %x", off, got, n, err, all[off:off+20])
		}
	}
	if bytes.Equal(all[:pageSize], all[pageSize:2*pageSize]) {
		t.Error("two pages are the same")
	}
}

// TestRoom: an object that the disk does not hold is a failure that says what to do.
func TestRoom(t *testing.T) {
	if err := room(t.Context(), t.TempDir(), -spareDisk); err != nil {
		t.Errorf("no object at all: %v", err)
	}
	err := room(t.Context(), t.TempDir(), math.MaxInt64-spareDisk)
	if err == nil || !strings.Contains(err.Error(), "-object") || !strings.Contains(err.Error(), "8.0 EiB") {
		t.Errorf("8 EiB: %v", err)
	}
}

func TestMemory(t *testing.T) {
	if text, err := memory("this test", os.Getpid()); err != nil || !strings.HasPrefix(text, "this test took ") {
		t.Errorf("%q, %v", text, err)
	}
}
