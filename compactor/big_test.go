package compactor

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// bigLog is a filer on which a segment's log has its first chunk many times, and which
// keeps uploads in a file: so a big segment takes no memory.
type bigLog struct {
	filer.Store
	dir   string
	chunk filer.Entry
	data  []byte // of the chunk
	seal  filer.Entry
	n     uint64 // chunks

	mu   sync.Mutex
	kept *os.File
	end  int64
	at   map[string]int64 // blobs in it
}

func (b *bigLog) number(e filer.Entry, attr string) uint64 {
	v, err := strconv.ParseUint(e.Attrs[attr], 10, 64)
	if err != nil {
		panic(err)
	}
	return v
}

// entry is the n-th entry of the log.
func (b *bigLog) entry(n uint64) filer.Entry {
	e := b.chunk
	if n == b.n {
		e = b.seal
	}
	e.Path, e.ID, e.Attrs = entryPath(b.dir, n), fmt.Sprint("id", n), maps.Clone(e.Attrs)
	e.Attrs["Base"] = fmt.Sprint(n * b.number(b.chunk, "Count"))
	e.Attrs["Byte-Base"] = fmt.Sprint(n * b.number(b.chunk, "Bytes"))
	if n > 0 {
		e.Attrs["Prev"] = fmt.Sprint("id", n-1)
	}
	return e
}

func (b *bigLog) Lookup(ctx context.Context, p string) (filer.Entry, error) {
	n, ok := entryNumber(path.Base(p))
	switch {
	case !ok || path.Dir(p) != b.dir:
		return b.Store.Lookup(ctx, p)
	case n > b.n:
		return filer.Entry{}, fmt.Errorf("look up %s: %w", p, filer.ErrNotFound)
	}
	return b.entry(n), nil
}

func (b *bigLog) List(ctx context.Context, dir, after string, limit int) (list []filer.Entry, err error) {
	if dir != b.dir {
		return b.Store.List(ctx, dir, after, limit)
	}
	n := uint64(0)
	if last, ok := entryNumber(after); ok {
		n = last + 1
	}
	for ; n <= b.n && len(list) < limit; n++ {
		list = append(list, b.entry(n))
	}
	return list, nil
}

func (b *bigLog) UploadAs(ctx context.Context, p string, data []byte, how filer.Storage) (filer.Blob, error) {
	blob, err := b.Store.UploadAs(ctx, p, data[:1], how) // for its ID
	if err != nil {
		return blob, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.kept.WriteAt(data, b.end); err != nil {
		return blob, err
	}
	b.at[blob.ID] = b.end
	b.end += int64(len(data))
	blob.Size = int64(len(data))
	return blob, nil
}

func (b *bigLog) Open(ctx context.Context, e filer.Entry, off int64) (io.ReadCloser, error) {
	if path.Dir(e.Path) == b.dir {
		return io.NopCloser(bytes.NewReader(b.data[off:])), nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var parts []io.Reader
	for _, blob := range e.Blobs {
		at, ok := b.at[blob.ID]
		if !ok {
			return b.Store.Open(ctx, e, off)
		}
		parts = append(parts, io.NewSectionReader(b.kept, at, blob.Size))
	}
	r := io.MultiReader(parts...)
	_, err := io.CopyN(io.Discard, r, off)
	return io.NopCloser(r), err
}

// bigWorld has a sealed segment of many chunks of 8 MiB, and a filer that shows it.
func bigWorld(t testing.TB, chunks uint64) (*world, *bigLog, topic.SegmentID) {
	t.Helper()
	w := newWorld(t, 1)
	id := w.live(t)[0]
	s := w.segment(t, id)
	set := &record.Set{}
	random := rand.New(rand.NewPCG(1, 2))
	for n, size := uint64(1), 0; size < 8<<20; n++ {
		r := record.Record{
			Time: noon, Position: topic.Position{Sequence: n}, Key: fmt.Appendf(nil, "N%05d", random.IntN(20000)),
			ID: &record.ID{Producer: "producer", Sequence: n / 100}, Headers: []record.Header{{Name: "kind", Value: []byte("flight")}},
			Value: fmt.Appendf(nil, `{"date":"2001/%02d/%02d 08:%02d","delay":%d,"distance":%d,"origin":"%c%c%c","destination":"%c%c%c","carrier":"AA","remarks":"%x"}`,
				random.IntN(12), random.IntN(28), random.IntN(60), random.IntN(200)-20, random.IntN(3000),
				'A'+random.IntN(26), 'A'+random.IntN(26), 'A'+random.IntN(26), 'A'+random.IntN(26), 'A'+random.IntN(26), 'A'+random.IntN(26), []uint64{random.Uint64(), n, n, n, n, n, n, n}),
		}
		size += len(r.Value) + len(r.Key) + 40
		must(t, set.Append(&r, topic.Slot(s.Range.Lo)))
	}
	w.store.Codec = record.CodecZstd
	s, err := w.top.Segment(t.Context(), id)
	must(t, err)
	_, err = s.Append(t.Context(), segment.Input{
		Source: "backfill.x.0", Set: set,
		Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
		Holds:      func(context.Context, segment.SourcePosition) error { return nil },
	})
	must(t, err)
	w.roll(t, id)
	c, err := s.ChunkAt(t.Context(), 0)
	must(t, err)
	seal, err := s.Tail(t.Context())
	must(t, err)
	b := &bigLog{Store: w.store.Filer, dir: path.Dir(c.Entry.Path), chunk: c.Entry.Entry, seal: seal.Entry.Entry, n: chunks, at: map[string]int64{}}
	in, err := w.store.Filer.Open(t.Context(), b.chunk, 0)
	must(t, err)
	b.data, err = io.ReadAll(in)
	must(t, err)
	b.kept, err = os.CreateTemp(t.TempDir(), "")
	must(t, err)
	t.Cleanup(func() { must(t, b.kept.Close()) })
	return w, b, id
}

// compactBig compacts the big segment.
func compactBig(t testing.TB, w *world, b *bigLog) (Report, time.Duration) {
	t.Helper()
	o := w.options(nil, nil)
	store := *w.store
	store.Filer = b
	o.Store, o.Tables = &store, nil
	start := time.Now()
	r, err := New(o).Topic(t.Context(), t.Context(), w.name)
	must(t, err)
	return r, time.Since(start)
}

func BenchmarkCompact(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		w, big, _ := bigWorld(b, 16)
		b.StartTimer()
		r, took := compactBig(b, w, big)
		b.SetBytes(int64(r.Bytes))
		b.ReportMetric(float64(r.Rows)/took.Seconds(), "rows/s")
	}
}
