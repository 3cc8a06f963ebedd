package segment

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// packer does to segments what the compactor does, step by step.
type packer struct {
	perFile int // rows
	drop    []DroppedRange
}

// rowsOf is the rows of a sealed segment: one for each record, and of a batch
// reference one for each record of its object.
func (p packer) rowsOf(ctx context.Context, s *Segment) (rows []parquet.Row, m Manifest, err error) {
	for c, err := range s.Chunks(ctx, 0) {
		if err != nil {
			return nil, m, err
		}
		if m.Created.IsZero() {
			m = Manifest{Base: c.Base, Created: noon.Add(time.Hour), First: c.First}
		}
		if m.Seal, m.End = c.Entry.N, c.End(); c.Sealed {
			return rows, m, nil
		}
		m.Last, m.Bytes = c.Last, m.Bytes+c.Bytes
		if p.dropped(c.Base) {
			continue
		}
		offset := c.Base
		for r, err := range s.Records(ctx, c) {
			if err != nil {
				return nil, m, err
			}
			row := parquet.Row{Segment: s.ID, Offset: offset, Source: c.Source, Batch: parquet.NoBatch, Record: r}
			offset++
			n := int64(0)
			if r.Ref != nil && r.Ref.Records != nil {
				n = *r.Ref.Records
			}
			for i := range n {
				part := row
				part.Batch, part.Value = int32(i), fmt.Appendf(nil, "row %d", i)
				rows = append(rows, part)
			}
			if n == 0 {
				rows = append(rows, row)
			}
		}
	}
	return nil, m, errors.New("the segment is not sealed")
}

func (p packer) dropped(offset uint64) bool {
	for _, d := range p.drop {
		if d.First <= offset && offset <= d.Last {
			return true
		}
	}
	return false
}

// pack writes the data files of a segment, and returns the manifest to create.
func (p packer) pack(ctx context.Context, s *Segment) (Manifest, error) {
	rows, m, err := p.rowsOf(ctx, s)
	if err != nil {
		return m, err
	}
	m.Dropped = p.drop
	for len(rows) > 0 {
		n := 1
		for n < min(p.perFile, len(rows)) && rows[n].Offset-rows[n-1].Offset < 2 {
			n++
		}
		f, err := writeDataFile(ctx, s, rows[:n])
		if err != nil {
			return m, err
		}
		if last := len(m.Files) - 1; last >= 0 && m.Files[last].Last == f.First {
			m.Records--
		}
		m.Files, m.Records, m.Rows = append(m.Files, f), m.Records+f.Records, m.Rows+f.Rows
		rows = rows[n:]
	}
	return m, nil
}

func writeDataFile(ctx context.Context, s *Segment, rows []parquet.Row) (DataFile, error) {
	w := filer.NewFileWriter(ctx, s.topic.store.Filer, s.DataDir())
	defer w.Abort()
	to, err := parquet.NewWriter(w, parquet.WriterOptions{Segment: rows[0].Segment, GroupRows: 1000})
	if err != nil {
		return DataFile{}, err
	}
	for i := range rows {
		if err := to.Write(&rows[i]); err != nil {
			return DataFile{}, err
		}
	}
	got, err := to.Close()
	f := DataFile{
		Name: DataFileName(got.First, got.Last, w.Sum()), Size: w.Size(), Digest: DataFileDigest(w.Sum()),
		First: got.First, Last: got.Last, Records: got.Records, Rows: got.Rows, From: got.From, To: got.To,
	}
	if err == nil {
		_, _, err = w.Finish(s.DataPath(f.Name), nil)
	}
	return f, err
}

// compact makes a sealed segment's data files and manifest.
func (p packer) compact(t *testing.T, s *Segment) Manifest {
	t.Helper()
	m, err := p.pack(t.Context(), s)
	if err == nil {
		m, err = s.CreateManifest(t.Context(), m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// mixed is records of every kind, one for each sequence number.
func mixed(t *testing.T, source string, from, to uint64) Input {
	t.Helper()
	in := input(t, source, from, to)
	in.Set = &record.Set{}
	for seq := from; seq <= to; seq++ {
		r := mixedRecord(source, seq)
		if err := in.Set.Append(&r, 1); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

func mixedRecord(source string, seq uint64) record.Record {
	r := record.Record{
		Time: noon.Add(time.Duration(seq) * time.Second), Position: topic.Position{Sequence: seq},
		Key: fmt.Appendf(nil, "key%d", seq%3), Value: fmt.Appendf(nil, "%s%d", source, seq),
	}
	n := int64(seq % 5)
	switch seq % 7 {
	case 0:
		r.Key, r.EventTime = nil, noon.Add(-time.Hour)
	case 1:
		r.Key, r.Headers = []byte{}, []record.Header{{Name: "h", Value: []byte{}}, {Name: "h", Value: []byte("again")}}
	case 2:
		r.Value, r.ID = nil, &record.ID{Producer: "p", Sequence: 1<<62 + seq}
	case 3:
		r.Rejected, r.Value = "refused", []byte{0xff, 0}
	case 4: // a batch of so many rows, or an empty one
		r.Value, r.Ref = nil, &record.Ref{URL: "s3://b/batch", Size: 10, ETag: "e", Records: &n}
	case 5:
		r.Value, r.Pending = nil, true
		r.Ref = &record.Ref{URL: "s3://b/k", Size: 1, Version: "v", ContentType: "text/plain", SHA256: make([]byte, 32)}
	}
	return r
}

// family is a topic of three generations of one segment, the last of them live.
type family struct {
	*testing.T
	fs    *memfs.FS
	topic *Topic
	segs  []*Segment
	items []Item // in order
}

func newFamily(t *testing.T, generations, chunks, each int) *family {
	t.Helper()
	f := &family{T: t, fs: memfs.New()}
	f.topic, f.segs = newTopic(t, f.fs, 1)
	seq := uint64(0)
	for g := range generations {
		seg := f.segs[g]
		for c := range chunks {
			n := uint64(1 + (g+c+each)%each)
			mustAppend(t, seg, mixed(t, []string{"a", "b"}[c%2], seq+1, seq+n))
			seq += n
		}
		if g+1 < generations {
			l := mustEdit(t, f.topic, rollFirst)
			child, err := f.topic.Segment(t.Context(), l.Live[0].ID)
			if err != nil {
				t.Fatal(err)
			}
			f.segs = append(f.segs, child)
		}
	}
	f.items = readAll(t, mustRead(t, f.topic, nil))
	if len(f.items) != int(seq) {
		t.Fatalf("%d items of %d", len(f.items), seq)
	}
	return f
}

func readAll(t *testing.T, r *Reader) (items []Item) {
	t.Helper()
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

func (f *family) same(got, want []Item) {
	f.Helper()
	if len(want)+len(got) == 0 {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Fatalf("read something else (-want +got):\n%s", diff)
	}
}

// of is the items of one segment.
func (f *family) of(s *Segment) (items []Item) {
	for _, i := range f.items {
		if i.Segment == s.ID {
			items = append(items, i)
		}
	}
	return items
}

// fresh is another handle on a segment of the family.
func (f *family) fresh(s *Segment) *Segment {
	f.Helper()
	top, err := testStore(f.fs, nil).Topic(f.Context(), "orders")
	if err == nil {
		s, err = top.Segment(f.Context(), s.ID)
	}
	if err != nil {
		f.Fatal(err)
	}
	return s
}

func trimAll(t *testing.T, s *Segment) {
	t.Helper()
	m, err := s.Manifest(t.Context())
	if err == nil {
		err = s.Trim(t.Context(), m.Seal)
	}
	if err != nil {
		t.Fatal(err)
	}
}
