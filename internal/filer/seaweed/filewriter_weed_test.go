package seaweed_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// TestFileWriter writes 40 MiB, a second time too, and reads them at random places.
func TestFileWriter(t *testing.T) {
	c := dial(t, seaweed.Config{})
	dir := newDir(t, c)
	data := make([]byte, 40<<20)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(data) // never fails
	for _, again := range []bool{false, true} {
		w := filer.NewFileWriter(t.Context(), c, dir)
		t.Cleanup(w.Abort)
		for off := 0; off < len(data); off += 1 << 20 {
			if _, err := w.Write(data[off : off+1<<20]); err != nil {
				t.Fatal(err)
			}
		}
		if _, existed, err := w.Finish(dir+"/file", filer.Attrs{"Rows": "1"}); err != nil || existed != again {
			t.Fatalf("existed %v, %v", existed, err)
		}
	}
	e, err := c.Lookup(t.Context(), dir+"/file")
	if err != nil {
		t.Fatal(err)
	}
	if e.Size != int64(len(data)) || e.Attrs["Rows"] != "1" || len(e.Attrs[filer.AttrDigest]) != len("sha256:")+64 {
		t.Errorf("%d bytes, attributes %v", e.Size, e.Attrs)
	}
	r := filer.NewReaderAt(t.Context(), c, e)
	g := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		off, n := g.IntN(len(data)), g.IntN(100_000)
		n = min(n, len(data)-off)
		got := make([]byte, n)
		if k, err := r.ReadAt(got, int64(off)); err != nil || k != n || !bytes.Equal(got, data[off:off+n]) {
			t.Fatalf("%d bytes at %d: %d bytes, %v", n, off, k, err)
		}
	}
}
