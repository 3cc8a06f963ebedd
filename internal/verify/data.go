package verify

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// dataFile is a data file as its segment's manifest and the filer tell of it.
type dataFile struct {
	segment.DataFile
	lost string // why there are no bytes
	sum  string // of its bytes, if they were read
}

func checkDataLost(f dataFile) string { return f.lost }

func checkDataDigest(f dataFile) string {
	if f.lost != "" || f.sum == f.Digest {
		return ""
	}
	return fmt.Sprintf("its bytes have the digest %s, the manifest says %s", f.sum, f.Digest)
}

// dataRow is a row of a data file with what comes before it.
type dataRow struct {
	r    *parquet.Row
	id   topic.SegmentID
	next uint64 // the offset that a new record has
	row  int32  // of the batch that may go on at the offset before; NoBatch: none
	prev uint64 // that offset
}

// fresh: the row begins another record.
func (s dataRow) fresh() bool { return s.row == parquet.NoBatch || s.r.Offset != s.prev }

// checkDataRow: rows are in order by offset, each offset once; but for the rows of a
// batch, which are numbered from 0.
func checkDataRow(s dataRow) string {
	switch {
	case s.r.Segment != s.id:
		return fmt.Sprintf("it has a row of segment %.100q", s.r.Segment)
	case s.fresh() && s.r.Offset != s.next:
		return fmt.Sprintf("it has a row with offset %d, expected is %d", s.r.Offset, s.next)
	case s.fresh() && s.r.Batch > 0:
		return fmt.Sprintf("the batch at offset %d begins with row %d", s.r.Offset, s.r.Batch)
	case !s.fresh() && s.r.Batch != s.row+1:
		return fmt.Sprintf("in the batch at offset %d row %d follows row %d", s.r.Offset, s.r.Batch, s.row)
	}
	return ""
}

// dataCount is a data file that was read to its end.
type dataCount struct {
	segment.DataFile
	got segment.DataFile
}

func checkDataCount(s dataCount) string {
	said, got := s.DataFile, s.got
	switch {
	case said.Rows != got.Rows || said.Records != got.Records:
		return fmt.Sprintf("it has %d records in %d rows, the manifest says %d in %d", got.Records, got.Rows, said.Records, said.Rows)
	case got.Rows > 0 && (said.First != got.First || said.Last != got.Last):
		return fmt.Sprintf("it has the offsets %d to %d, the manifest says %d to %d", got.First, got.Last, said.First, said.Last)
	case got.Rows > 0 && (!said.From.Equal(got.From) || !said.To.Equal(got.To)):
		return fmt.Sprintf("its times are %s to %s, the manifest says %s to %s", stamp(got.From), stamp(got.To), stamp(said.From), stamp(said.To))
	}
	return ""
}

// dataEnd is a segment whose data files were all read.
type dataEnd struct {
	seal *segment.Chunk
	last map[string]topic.Position
	// differs are the chunks that hold something else.
	differs []mark
	all     bool // nothing was given up
	whole   bool // nor trimmed before the segment was compacted
}

// checkDataPositions: the last record of each source is where the seal says.
func checkDataPositions(s dataEnd) string {
	if s.seal == nil || !s.all {
		return ""
	}
	for _, p := range s.seal.Positions {
		got, there := s.last[p.Source]
		if got != p.At && (there || s.whole) {
			return fmt.Sprintf("the last record of source %s is %s, the seal says %s", p.Source, shown(got), p.At)
		}
	}
	return ""
}

// checkDataDiffers: data files hold what the chunks that are still there hold.
func checkDataDiffers(s dataEnd) string {
	if len(s.differs) == 0 {
		return ""
	}
	return fmt.Sprintf("the data files hold other records than %d chunks; the first is %s, from offset %d on",
		len(s.differs), path.Base(s.differs[0].path), s.differs[0].from)
}

// dataScan is a segment while its data files are read.
type dataScan struct {
	*segmentState
	m       segment.Manifest
	next    uint64 // offset of the next record
	row     int32  // of the record before, if it is a batch
	last    map[string]topic.Position
	sum     recordSum
	marks   []mark
	differs []mark
	broken  bool
}

// data checks the data files of a segment, and takes from them the records that were
// not in its chunks.
func (v *verifier) data(ctx context.Context, s *segmentState, m manifestStep) error {
	// What the segment had taken in before is not known of its data files: the order
	// of each source's records is checked instead.
	early := *s
	early.taken = map[string]topic.Position{}
	d := &dataScan{segmentState: &early, m: m.Manifest, next: m.Base, row: parquet.NoBatch, last: map[string]topic.Position{}, marks: s.marks}
	for _, f := range m.Files {
		if v.full() {
			return nil
		}
		v.report.DataFiles++
		d.skipDropped()
		if f.First > d.next { // it is said of the manifest
			d.next, d.row = f.First, parquet.NoBatch
		}
		if err := v.dataFile(ctx, d, f); err != nil {
			return err
		}
	}
	if v.report.Bytes += m.Bytes; m.Bytes >= s.bytes {
		v.report.Bytes -= s.bytes // they are counted already
	}
	if d.broken {
		v.broken = true
		return nil
	}
	run(v, v.checks.dataEnd, place{v.dataDir(s.ID), s.ID, m.Base}, dataEnd{m.seal, d.last, d.differs, len(m.Dropped) == 0, m.Base == 0})
	return nil
}

func (d *dataScan) skipDropped() {
	for _, r := range d.m.Dropped {
		if r.First == d.next && r.Last >= r.First {
			d.next, d.row = r.Last+1, parquet.NoBatch
		}
	}
}

func (v *verifier) dataDir(id topic.SegmentID) string {
	return path.Join(v.topic.Dir(), "data", string(id))
}

// dataFile checks one data file.
func (v *verifier) dataFile(ctx context.Context, d *dataScan, f segment.DataFile) error {
	at := place{path.Join(v.dataDir(d.ID), f.Name), d.ID, f.First}
	file := dataFile{DataFile: f}
	e, err := v.lookData(ctx, at.path, &file)
	if err != nil {
		return err
	}
	ra := filer.NewReaderAt(ctx, v.store.Filer, e)
	if file.lost == "" {
		file.sum, err = sumOf(ra, e.Size)
		if file.lost, err = v.lostData(ctx, e, err); err != nil {
			return err
		}
	}
	if !run(v, v.checks.dataFile, at, file) || file.lost != "" {
		return d.pass(f)
	}
	err = v.scanData(ctx, d, ra, f)
	if err != nil && !errors.Is(err, parquet.ErrFormat) && !definite(err) {
		return err
	}
	if run(v, v.checks.dataDecoded, at, err); err != nil {
		return d.pass(f)
	}
	return v.err
}

// pass goes on after a file that cannot be read.
func (d *dataScan) pass(f segment.DataFile) error {
	d.broken, d.next, d.row = true, f.Last+1, parquet.NoBatch
	d.sum.reset()
	for len(d.marks) > 0 && d.marks[0].from < d.next {
		d.marks = d.marks[1:]
	}
	return nil
}

// lookData looks a data file up.
func (v *verifier) lookData(ctx context.Context, path string, f *dataFile) (e filer.Entry, err error) {
	err = filer.Retry(ctx, func(ctx context.Context) (err error) { e, err = v.store.Filer.Lookup(ctx, path); return err })
	switch {
	case errors.Is(err, filer.ErrNotFound):
		f.lost = "it is not there, but the manifest lists it"
	case err != nil:
		return e, err
	case e.Size != f.Size:
		f.lost = fmt.Sprintf("it has %d bytes, the manifest says %d", e.Size, f.Size)
	}
	return e, nil
}

// lostData tells why a file's bytes could not be read, if the filer itself answers.
func (v *verifier) lostData(ctx context.Context, e filer.Entry, err error) (lost string, unknown error) {
	if err == nil {
		return "", nil
	}
	if ctx.Err() != nil {
		return "", err
	}
	again := filer.Retry(ctx, func(ctx context.Context) error {
		_, err := v.store.Filer.Lookup(ctx, e.Path)
		return err
	})
	if again != nil && !errors.Is(again, filer.ErrNotFound) {
		return "", again
	}
	return fmt.Sprintf("its bytes cannot be read: %v", err), nil
}

func sumOf(r io.ReaderAt, size int64) (string, error) {
	h := sha256.New()
	_, err := io.CopyBuffer(h, io.NewSectionReader(r, 0, size), make([]byte, 1<<20))
	return fmt.Sprintf("sha256:%x", h.Sum(nil)), err
}

// scanData reads the rows of a file.
func (v *verifier) scanData(ctx context.Context, d *dataScan, r io.ReaderAt, f segment.DataFile) error {
	file, err := parquet.Open(r, f.Size)
	if err != nil {
		return err
	}
	at := place{path.Join(v.dataDir(d.ID), f.Name), d.ID, f.First}
	v.chunks = append(v.chunks, chunkRef{at})
	reader := &fileRows{v: v, d: d, at: at, first: f.First, chunk: uint32(len(v.chunks) - 1)}
	for row, err := range file.Rows(ctx, parquet.Filter{}) {
		if err != nil {
			return err
		}
		if reader.row(row); v.full() {
			return nil
		}
	}
	run(v, v.checks.dataCount, at, dataCount{f, reader.got})
	return v.batches(ctx, reader.batches, f.First, at)
}

// fileRows takes the rows of one data file.
type fileRows struct {
	v       *verifier
	d       *dataScan
	at      place
	first   uint64 // offset, as the manifest says
	chunk   uint32
	got     segment.DataFile
	batches []batchAt
}

func (s *fileRows) row(r *parquet.Row) {
	step := dataRow{r, s.d.ID, s.d.next, s.d.row, s.d.next - 1}
	s.at.offset = r.Offset
	if !run(s.v, s.v.checks.dataRow, s.at, step) {
		s.d.broken = true
	}
	s.count(r)
	fresh := step.fresh()
	if s.d.row = r.Batch; !fresh {
		return
	}
	s.d.next = r.Offset + 1
	if r.Batch != parquet.NoBatch {
		r.Value = nil // it is of the row, and not of the record
	}
	s.record(r)
	s.d.compare(&r.Record)
}

// compare holds the records against the chunks that were read.
func (d *dataScan) compare(r *record.Record) {
	if len(d.marks) == 0 || d.next <= d.marks[0].from {
		return
	}
	d.sum.add(r)
	if m := d.marks[0]; d.next >= m.to {
		if d.sum.value() != m.sum {
			d.differs = append(d.differs, m)
		}
		d.sum.reset()
		d.marks = d.marks[1:]
	}
}

// count notes a row for what the manifest says of the file.
func (s *fileRows) count(r *parquet.Row) {
	g := &s.got
	if g.Rows == 0 {
		g.First, g.From, g.To = r.Offset, r.Time, r.Time
	}
	if g.Rows == 0 || r.Offset != g.Last {
		g.Records++
	}
	g.Rows++
	g.Last = r.Offset
	if r.Time.Before(g.From) {
		g.From = r.Time
	}
	if r.Time.After(g.To) {
		g.To = r.Time
	}
}

// record checks a record, and takes it if it was in no chunk that was read.
func (s *fileRows) record(r *parquet.Row) {
	d := s.d
	step := recordStep{
		segmentState: d.segmentState, c: segment.Chunk{Source: r.Source}, prev: d.last[r.Source],
		floors: d.floors[r.Source], reached: s.v.reached[r.Source], r: &r.Record, slot: slotOf(d.key, r.Source, &r.Record),
	}
	if !run(s.v, s.v.checks.record, s.at, &step) {
		d.broken = true
	}
	d.last[r.Source] = r.Position
	if d.covers(r.Offset, r.Offset+1) {
		return
	}
	s.v.sourceOf(r.Source, s.at.path).take(&r.Record, s.chunk, uint32(r.Offset-s.first))
	s.batches = batchesOf(s.batches, r.Offset-s.first, &r.Record)
	s.v.report.Records++
	if r.Rejected != "" {
		s.v.report.Rejected++
	}
}

// offsets are some that follow each other, to is after the last.
type offsets struct{ from, to uint64 }

// mark is what a chunk held that was read.
type mark struct {
	offsets
	sum  uint64
	path string
}

// cover notes offsets whose records were read from chunks.
func (s *segmentState) cover(at offsets) {
	if n := len(s.covered) - 1; n >= 0 && s.covered[n].to == at.from {
		s.covered[n].to = at.to
		return
	}
	s.covered = append(s.covered, at)
}

// covers tells whether the records of some offsets were read from chunks.
func (s *segmentState) covers(from, to uint64) bool {
	if from >= to {
		return true
	}
	for _, c := range s.covered {
		if c.from <= from && to <= c.to {
			return true
		}
	}
	return false
}
