package filer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

const (
	writerDir  = "/buckets/writer/data"
	writerPath = writerDir + "/file"
)

func someBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	return data
}

// writeIn writes data in pieces of all sizes.
func writeIn(w *filer.FileWriter, data []byte) error {
	for k := 1; len(data) > 0; k = k*3 + 1 {
		n := min(k%(3<<20), len(data))
		if _, err := w.Write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

func contentOf(t *testing.T, s filer.Store, path string) []byte {
	t.Helper()
	e, err := s.Lookup(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), e, 0)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestFileWriter(t *testing.T) {
	for size, blobs := range map[int]int{
		0: 0, 1: 0, filer.InlineLimit: 0, filer.InlineLimit + 1: 1, filer.PartSize: 1, filer.PartSize + 1: 2, 23 << 20: 12,
	} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			fs := memfs.New()
			c := fs.Client("c", nil)
			data := someBytes(size)
			w := filer.NewFileWriter(t.Context(), c, writerDir)
			defer w.Abort()
			if err := writeIn(w, data); err != nil {
				t.Fatal(err)
			}
			if w.Sum() != sha256.Sum256(data) || w.Size() != int64(size) {
				t.Errorf("%d bytes have the digest %x", w.Size(), w.Sum())
			}
			e, existed, err := w.Finish(writerPath, filer.Attrs{"Rows": "7"})
			if err != nil || existed {
				t.Fatalf("existed %v, %v", existed, err)
			}
			want := filer.Attrs{"Rows": "7", filer.AttrDigest: fmt.Sprintf("sha256:%x", sha256.Sum256(data))}
			if fmt.Sprint(e.Attrs) != fmt.Sprint(want) || e.Size != int64(size) || len(e.Blobs) != blobs || fs.Blobs() > 0 {
				t.Errorf("%d blobs are left, entry %+v", fs.Blobs(), e)
			}
			w.Abort()
			if got := contentOf(t, c, writerPath); !bytes.Equal(got, data) {
				t.Errorf("%d bytes came back", len(got))
			}
			if _, err := w.Write([]byte("x")); err == nil {
				t.Error("more was taken")
			}
			if _, _, err := w.Finish(writerPath, nil); err == nil {
				t.Error("it was finished again")
			}
		})
	}
}

// finish writes a file of some MiB by a client with faults. It gives the outcome, and how
// many blobs that no file names are left.
func finish(t *testing.T, fs *memfs.FS, data []byte, hook memfs.Hook) (existed bool, err error, left int) { //nolint:revive,staticcheck // the error is the result, not a failure
	t.Helper()
	w := filer.NewFileWriter(t.Context(), fs.Client("c", hook), writerDir)
	defer w.Abort()
	if err := writeIn(w, data); err != nil {
		return false, err, fs.Blobs()
	}
	_, existed, err = w.Finish(writerPath, nil)
	return existed, err, fs.Blobs()
}

func TestFileWriterMeetsAnother(t *testing.T) {
	data := someBytes(5 << 20)
	other := bytes.Clone(data)
	other[7]++
	for name, c := range map[string]struct {
		there []byte
		fault memfs.Fault
		want  error
		left  int
	}{
		"the same":                              {data, memfs.Fault{}, nil, 0},
		"the same, without an answer":           {data, memfs.Fault{Late: time.Hour}, nil, 3}, // the request may still name them
		"the same, without being heard":         {data, memfs.Fault{Before: errors.New("refused")}, nil, 3},
		"others":                                {other, memfs.Fault{}, filer.ErrCorrupt, 0},
		"a longer one":                          {append(data[:len(data):len(data)], 1), memfs.Fault{}, filer.ErrCorrupt, 0},
		"others, where the bucket is read-only": {nil, memfs.Fault{Before: filer.ErrReadOnly}, filer.ErrReadOnly, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := memfs.New()
				if c.there != nil {
					if _, err, _ := finish(t, fs, c.there, nil); err != nil {
						t.Fatal(err)
					}
				}
				existed, err, left := finish(t, fs, data, func(op memfs.Op) memfs.Fault {
					if op.Name == "Create" && op.N == 1 {
						return c.fault
					}
					return memfs.Fault{}
				})
				if existed != (c.there != nil) || !errors.Is(err, c.want) || left != c.left {
					t.Errorf("existed %v, %v, %d blobs are left", existed, err, left)
				}
				fs.Settle()
			})
		})
	}
}

// TestFileWriterFaults has calls fail that are repeated, and replies lost.
func TestFileWriterFaults(t *testing.T) {
	data := someBytes(9 << 20)
	down := errors.New("down")
	for name, hook := range map[string]memfs.Hook{
		"uploads fail": func(op memfs.Op) memfs.Fault {
			if op.Name == "UploadAs" && op.N%3 == 1 || op.Name == "Upload" && op.N%3 == 1 {
				return memfs.Fault{Before: down}
			}
			return memfs.Fault{}
		},
		"the create's reply is lost": func(op memfs.Op) memfs.Fault {
			if op.Name == "Create" && op.N == 1 {
				return memfs.Fault{After: memfs.ErrLost}
			}
			return memfs.Fault{}
		},
		"the create fails": func(op memfs.Op) memfs.Fault {
			if op.Name == "Create" && op.N < 4 {
				return memfs.Fault{Before: down}
			}
			return memfs.Fault{}
		},
		"all is slow": func(memfs.Op) memfs.Fault { return memfs.Fault{Delay: 5 * time.Second} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := memfs.New()
				if existed, err, left := finish(t, fs, data, hook); err != nil || existed || left > 0 {
					t.Errorf("existed %v, %v, %d blobs are left", existed, err, left)
				}
				if got := contentOf(t, fs.Client("r", nil), writerPath); !bytes.Equal(got, data) {
					t.Errorf("%d bytes came back", len(got))
				}
			})
		})
	}
}

// TestFileWriterGivesUp ends in the middle, in all ways: nothing is left.
func TestFileWriterGivesUp(t *testing.T) {
	readOnly := func(op memfs.Op) memfs.Fault {
		if op.N == 4 {
			return memfs.Fault{Before: filer.ErrReadOnly}
		}
		return memfs.Fault{}
	}
	for name, c := range map[string]struct {
		hook memfs.Hook
		end  func(w *filer.FileWriter, cancel func())
		want error
	}{
		"aborted":            {nil, func(w *filer.FileWriter, _ func()) { w.Abort() }, filer.ErrAborted},
		"the context ends":   {nil, func(_ *filer.FileWriter, cancel func()) { cancel() }, context.Canceled},
		"an upload is final": {readOnly, func(*filer.FileWriter, func()) {}, filer.ErrReadOnly},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				fs := memfs.New()
				w := filer.NewFileWriter(ctx, fs.Client("c", c.hook), writerDir)
				if err := writeIn(w, someBytes(11<<20)); err != nil && !errors.Is(err, c.want) {
					t.Fatal(err)
				}
				synctest.Wait()
				c.end(w, cancel)
				if _, err := w.Write([]byte("more")); !errors.Is(err, c.want) {
					t.Errorf("more: %v", err)
				}
				if _, _, err := w.Finish(writerPath, nil); !errors.Is(err, c.want) {
					t.Errorf("%v", err)
				}
				w.Abort()
				if fs.Blobs() > 0 || len(fs.Paths()) > 1 {
					t.Errorf("%d blobs are left, and %q", fs.Blobs(), fs.Paths())
				}
			})
		})
	}
}

// TestFileWriterAbortedWhileWriting: a Write that waits for room ends.
func TestFileWriterAbortedWhileWriting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		w := filer.NewFileWriter(t.Context(), fs.Client("c", func(memfs.Op) memfs.Fault { return memfs.Fault{Delay: 9 * time.Second} }), writerDir)
		wrote := make(chan error)
		go func() {
			_, err := w.Write(someBytes(64 << 20))
			wrote <- err
		}()
		synctest.Wait()
		go w.Abort()
		if err := <-wrote; !errors.Is(err, filer.ErrAborted) {
			t.Error(err)
		}
		w.Abort()
		if fs.Blobs() > 0 {
			t.Errorf("%d blobs are left", fs.Blobs())
		}
	})
}
