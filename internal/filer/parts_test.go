package filer_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func TestUploadParts(t *testing.T) {
	fs := memfs.New()
	c := fs.Client("c", nil)
	for size, parts := range map[int]int{1: 1, filer.PartSize: 1, filer.PartSize + 1: 2, 3*filer.PartSize - 1: 3, 20 << 20: 10} {
		data := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
		f := filer.File{ID: filer.NewID()}
		var err error
		if f.Blobs, err = filer.UploadParts(t.Context(), c, "/buckets/parts/f", data); err != nil {
			t.Fatal(err)
		}
		if len(f.Blobs) != parts {
			t.Errorf("%d bytes became %d parts, want %d", size, len(f.Blobs), parts)
		}
		if err := c.Create(t.Context(), "/buckets/parts/f", f); err != nil {
			t.Fatal(err)
		}
		e, err := c.Lookup(t.Context(), "/buckets/parts/f")
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Open(t.Context(), e, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d others, error %v", size, len(got), err)
		}
		if err := c.Delete(t.Context(), e.Path, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := filer.UploadParts(t.Context(), c, "/buckets/parts/f", nil); !errors.Is(err, filer.ErrInvalid) {
		t.Errorf("no data: error %v", err)
	}
}

func TestUploadPartsCleansUp(t *testing.T) {
	down := errors.New("down")
	fs := memfs.New()
	c := fs.Client("c", func(op memfs.Op) memfs.Fault {
		if op.Name == "Upload" && op.N == 3 {
			return memfs.Fault{Before: down}
		}
		return memfs.Fault{}
	})
	if _, err := filer.UploadParts(t.Context(), c, "/buckets/parts/f", make([]byte, 5*filer.PartSize)); !errors.Is(err, down) {
		t.Errorf("error %v, want %v", err, down)
	}
	if n := fs.Blobs(); n > 0 {
		t.Errorf("%d blobs are left", n)
	}
}
