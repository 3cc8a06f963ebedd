package filer_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// entryWith makes a file with a client of its own.
func entryWith(t *testing.T, fs *memfs.FS, data []byte) filer.Entry {
	t.Helper()
	w := filer.NewFileWriter(t.Context(), fs.Client("writer", nil), writerDir)
	defer w.Abort()
	if err := writeIn(w, data); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Finish(writerPath, nil); err != nil {
		t.Fatal(err)
	}
	e, err := fs.Client("writer", nil).Lookup(t.Context(), writerPath)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// checkReadAt reads at random places, and beyond the end.
func checkReadAt(t *testing.T, r *filer.ReaderAt, data []byte, tries int) {
	t.Helper()
	g := rand.New(rand.NewPCG(3, 3))
	for range tries {
		off, n := g.IntN(len(data)+10), g.IntN(1<<uint(g.IntN(22)))
		got := make([]byte, n)
		k, err := r.ReadAt(got, int64(off))
		want := data[min(off, len(data)):min(off+n, len(data))]
		if !bytes.Equal(got[:k], want) || (err == nil) != (k == n) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes at %d: %d bytes, %v", n, off, k, err)
		}
	}
}

func TestReaderAt(t *testing.T) {
	for name, size := range map[string]int{"inline": 60_000, "some blobs": 5 << 20, "more than are kept": 30 << 20} {
		t.Run(name, func(t *testing.T) {
			data := someBytes(size)
			fs := memfs.New()
			e := entryWith(t, fs, data)
			r := filer.NewReaderAt(t.Context(), fs.Client("r", nil), e)
			if r.Size() != int64(size) {
				t.Errorf("size %d", r.Size())
			}
			checkReadAt(t, r, data, 60)
			if _, err := r.ReadAt(make([]byte, 1), -1); !errors.Is(err, filer.ErrInvalid) {
				t.Errorf("before the start: %v", err)
			}
			// A file of somebody else may have its bytes anywhere.
			e.ID = ""
			checkReadAt(t, filer.NewReaderAt(t.Context(), fs.Client("other", nil), e), data, 60)
		})
	}
	fs := memfs.New()
	if n, err := filer.NewReaderAt(t.Context(), fs.Client("r", nil), filer.Entry{Path: writerPath}).ReadAt(make([]byte, 1), 0); n > 0 || !errors.Is(err, io.EOF) {
		t.Errorf("an empty file: %d bytes, %v", n, err)
	}
}

// TestReaderAtKeeps: what was read is not read again, up to what is kept.
func TestReaderAtKeeps(t *testing.T) {
	fs := memfs.New()
	data := someBytes(14 << 20)
	e := entryWith(t, fs, data)
	var opened atomic.Int64
	r := filer.NewReaderAt(t.Context(), fs.Client("r", func(op memfs.Op) memfs.Fault {
		if op.Name == "Open" {
			opened.Add(1)
		}
		return memfs.Fault{}
	}), e)
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			for off := 0; off < len(data); off += 100_000 {
				got := make([]byte, min(1000, len(data)-off))
				if _, err := r.ReadAt(got, int64(off)); err != nil || !bytes.Equal(got, data[off:off+len(got)]) {
					return errors.Join(err, errors.New("other bytes"))
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	if n := opened.Load(); n != 7 {
		t.Errorf("7 blobs were opened %d times", n)
	}
}

func TestReaderAtFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		data := someBytes(9 << 20)
		e := entryWith(t, fs, data)
		down := errors.New("down")
		r := filer.NewReaderAt(t.Context(), fs.Client("r", func(op memfs.Op) memfs.Fault {
			if op.N%2 == 1 { // each second open, and each second read
				return memfs.Fault{Before: down}
			}
			return memfs.Fault{}
		}), e)
		checkReadAt(t, r, data, 50)
		if err := fs.Client("w", nil).Delete(t.Context(), writerPath, ""); err != nil {
			t.Fatal(err)
		}
		_, err := filer.NewReaderAt(t.Context(), fs.Client("gone", nil), e).ReadAt(make([]byte, 10), 5<<20)
		if !errors.Is(err, filer.ErrNotFound) {
			t.Errorf("of a deleted file: %v", err)
		}
	})
}
