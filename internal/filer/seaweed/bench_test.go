package seaweed_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// perWriter runs b.N times do, spread over writers, with the number of the run.
func perWriter(b *testing.B, writers int, do func(i int64) error) {
	b.Helper()
	var next atomic.Int64
	var g errgroup.Group
	b.ResetTimer()
	for range writers {
		g.Go(func() error {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := do(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "files/s")
}

func noise(b *testing.B, size int) []byte {
	b.Helper()
	data := make([]byte, size)
	_, _ = rand.Read(data) // never fails
	return data
}

// BenchmarkWrite is how chunks are written: bytes to a volume server, then the
// entry that names them.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{256 << 10, 1 << 20, filer.PartSize, 4 << 20} {
		for _, writers := range []int{1, 4} {
			b.Run(fmt.Sprintf("%dKiB/%d", size>>10, writers), func(b *testing.B) {
				c := dial(b, seaweed.Config{})
				dir, data := newDir(b, c), noise(b, size)
				b.SetBytes(int64(size))
				perWriter(b, writers, func(i int64) error {
					path := fmt.Sprintf("%s/%016d", dir, i)
					blob, err := c.Upload(b.Context(), path, data)
					if err != nil {
						return err
					}
					return c.Create(b.Context(), path, filer.File{ID: filer.NewID(), Blobs: []filer.Blob{blob}})
				})
			})
		}
	}
}

// BenchmarkWriteParts is how large chunks are written.
func BenchmarkWriteParts(b *testing.B) {
	for _, size := range []int{4 << 20, 8 << 20} {
		for _, writers := range []int{1, 4} {
			b.Run(fmt.Sprintf("%dKiB/%d", size>>10, writers), func(b *testing.B) {
				c := dial(b, seaweed.Config{})
				dir, data := newDir(b, c), noise(b, size)
				b.SetBytes(int64(size))
				perWriter(b, writers, func(i int64) error {
					path := fmt.Sprintf("%s/%016d", dir, i)
					blobs, err := filer.UploadParts(b.Context(), c, path, data)
					if err != nil {
						return err
					}
					return c.Create(b.Context(), path, filer.File{ID: filer.NewID(), Blobs: blobs})
				})
			})
		}
	}
}

// BenchmarkInline is how small files are written: one call each.
func BenchmarkInline(b *testing.B) {
	for _, size := range []int{100, 4 << 10, filer.InlineLimit} {
		for _, writers := range []int{1, 4} {
			b.Run(fmt.Sprintf("%dB/%d", size, writers), func(b *testing.B) {
				c := dial(b, seaweed.Config{})
				dir, data := newDir(b, c), noise(b, size)
				b.SetBytes(int64(size))
				perWriter(b, writers, func(i int64) error {
					return c.Create(b.Context(), fmt.Sprintf("%s/%016d", dir, i), filer.File{ID: filer.NewID(), Content: data})
				})
			})
		}
	}
}

func BenchmarkRead(b *testing.B) {
	const size = 4 << 20
	for _, readers := range []int{1, 4} {
		b.Run(fmt.Sprintf("%dKiB/%d", size>>10, readers), func(b *testing.B) {
			c := dial(b, seaweed.Config{})
			path := newDir(b, c) + "/f"
			blob, err := c.Upload(b.Context(), path, noise(b, size))
			if err != nil {
				b.Fatal(err)
			}
			e := filer.Entry{Path: path, Size: size, Blobs: []filer.Blob{blob}}
			b.SetBytes(size)
			perWriter(b, readers, func(int64) error {
				r, err := c.Open(b.Context(), e, 0)
				if err != nil {
					return err
				}
				if _, err := io.Copy(io.Discard, r); err != nil {
					return err
				}
				return r.Close()
			})
			if err := c.Discard(b.Context(), blob); err != nil {
				b.Fatal(err)
			}
		})
	}
}
