package parquet

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/parquet/file"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/record"
)

// Names in a file's own metadata.
const (
	metaFormat  = "spillway.format"
	metaSegment = "spillway.segment"
	metaRecords = "spillway.records"
	formatOne   = "1"
)

// maxRow bounds a row: one of a batch has its own value, and all else of a record.
const maxRow = 2 * record.MaxRecord

// Writer writes one data file. While one row group is gathered, the one before is
// encoded beside, so it holds up to two of them: some 70 MiB with the defaults. What is
// written depends on the rows alone. Not for concurrent use.
type Writer struct {
	o        WriterOptions
	sink     *sink
	file     *file.Writer
	encode   errgroup.Group // encodes one row group
	current  *group         // is being gathered
	other    *group         // is being encoded, or idle
	inFlight int64          // bytes of the row group that is being encoded
	encoded  int64          // bytes of those that are
	written  int64          // of the file, as of those
	batch    int32          // the last row's, by which the next one of its offset is checked
	stats    Stats
	err      error // from then on there is nothing but this
}

// NewWriter begins a file. w is written to from another goroutine until Close or Abort
// has returned.
func NewWriter(w io.Writer, o WriterOptions) (*Writer, error) {
	if o.Segment == "" || !utf8.ValidString(string(o.Segment)) {
		return nil, fmt.Errorf("data file: %q is no segment", o.Segment)
	}
	o = o.withDefaults()
	out := &Writer{o: o, sink: &sink{w: w}, current: groups.Get().(*group), other: groups.Get().(*group)}
	var err error
	out.file, err = file.NewParquetWriterWithError(out.sink, fileSchema().Root(), file.WithWriterProps(properties(o)))
	if err != nil {
		return nil, out.sink.or(err)
	}
	return out, nil
}

// Write takes a row, of which it keeps nothing. Offsets ascend; rows of the same offset
// are those of one batch, in their order. A *[RowError] says why a row cannot be taken,
// and leaves the file as it was. After any other error the file is lost.
func (w *Writer) Write(r *Row) error {
	if w.err != nil {
		return w.err
	}
	if reason := w.refuse(r); reason != "" {
		return &RowError{r.Offset, reason}
	}
	size := rowSize(r)
	if size > maxRow {
		return &RowError{r.Offset, fmt.Sprintf("it has %d bytes: at most %d are taken", size, maxRow)}
	}
	if g := w.current; g.rows > 0 && (g.rows == w.o.GroupRows || g.bytes+size > w.o.GroupBytes) {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	w.current.add(string(w.o.Segment), r)
	w.current.bytes += size
	w.count(r)
	return nil
}

func (w *Writer) count(r *Row) {
	s := &w.stats
	if s.Rows == 0 || r.Offset != s.Last {
		s.Records++
	}
	if s.Rows == 0 {
		s.First, s.From, s.To = r.Offset, r.Time, r.Time
	}
	s.Last, w.batch = r.Offset, r.Batch
	if r.Time.Before(s.From) {
		s.From = r.Time
	}
	if r.Time.After(s.To) {
		s.To = r.Time
	}
	s.Rows++
}

// refuse gives the reason why a row cannot be written.
func (w *Writer) refuse(r *Row) string {
	switch s := &w.stats; {
	case r.Segment != "" && r.Segment != w.o.Segment:
		return fmt.Sprintf("it is of the segment %q, the file of %q", r.Segment, w.o.Segment)
	case r.Offset > math.MaxInt64:
		return "no file can have such an offset"
	case s.Rows > 0 && r.Offset < s.Last:
		return fmt.Sprintf("it comes after offset %d", s.Last)
	case s.Rows > 0 && r.Offset == s.Last && (w.batch < 0 || r.Batch <= w.batch):
		return fmt.Sprintf("row %d comes after row %d of the same offset", r.Batch, w.batch)
	case r.Batch < NoBatch:
		return fmt.Sprintf("%d is no row of a batch", r.Batch)
	case len(r.Headers) > record.MaxHeaders:
		return fmt.Sprintf("it has %d headers: at most %d are taken", len(r.Headers), record.MaxHeaders)
	case !storable(r.Time) || !storable(r.EventTime):
		return "a time outside of the years 1 to 9999"
	case r.Pending && r.Ref == nil:
		return "pending without a reference"
	case r.Ref != nil && r.Ref.SHA256 != nil && len(r.Ref.SHA256) != sha256.Size:
		return fmt.Sprintf("a SHA-256 of %d bytes", len(r.Ref.SHA256))
	case r.ID == nil && r.Ref == nil && len(r.Headers) == 0 && r.Rejected == "" && r.Error == "":
		return refuseText("source", r.Source)
	}
	return refuseTexts(r)
}

// storable tells whether a time is one that all engines can read.
func storable(t time.Time) bool { y := t.UTC().Year(); return y >= 1 && y <= 9999 }

// refuseTexts looks for what is no text though its column promises it.
func refuseTexts(r *Row) string {
	texts := [...][2]string{{"source", r.Source}, {"rejected", r.Rejected}, {"error", r.Error}, {}, {}, {}, {}, {}}
	if r.ID != nil {
		texts[3] = [2]string{"producer", r.ID.Producer}
	}
	if f := r.Ref; f != nil {
		texts[4], texts[5] = [2]string{"ref.url", f.URL}, [2]string{"ref.etag", f.ETag}
		texts[6], texts[7] = [2]string{"ref.version", f.Version}, [2]string{"ref.content_type", f.ContentType}
	}
	for _, t := range texts {
		if reason := refuseText(t[0], t[1]); reason != "" {
			return reason
		}
	}
	for i := range r.Headers {
		if reason := refuseText("header name", r.Headers[i].Name); reason != "" {
			return reason
		}
	}
	return ""
}

func refuseText(name, text string) string {
	if utf8.ValidString(text) {
		return ""
	}
	return name + " is not valid UTF-8"
}

// endGroup has the current row group encoded, once the one before is.
func (w *Writer) endGroup() error {
	if err := w.wait(); err != nil {
		return err
	}
	g := w.current
	w.current, w.other = w.other, g
	w.inFlight = g.bytes
	w.stats.Groups++
	w.encode.Go(func() error {
		defer g.reset()
		return encodeGroup(w.file, g)
	})
	return nil
}

// wait ends when no row group is being encoded.
func (w *Writer) wait() error {
	err := w.sink.or(w.encode.Wait())
	if w.err == nil && err != nil {
		w.err = fmt.Errorf("data file: %w", err)
	}
	w.encoded += w.inFlight
	w.inFlight, w.written = 0, w.sink.n
	return w.err
}

// Size is about how large the file is with all rows so far: what is written, and an
// estimate for what is not by how well the file packed so far. Like the file it depends
// on the rows alone.
func (w *Writer) Size() int64 {
	pending := w.inFlight
	if w.current != nil {
		pending += w.current.bytes
	}
	if w.encoded == 0 {
		return w.written + pending/2
	}
	const unit = 1 << 10 // so that the product stays small
	return w.written + (pending/unit)*w.written/(w.encoded/unit+1)
}

// Close ends the file. After an error the file is lost.
func (w *Writer) Close() (Stats, error) {
	if w.err == nil && w.current.rows > 0 {
		_ = w.endGroup() // wait has the error
	}
	if err := w.wait(); err != nil {
		return Stats{}, err
	}
	err := w.end()
	w.written = w.sink.n
	if err != nil {
		w.err = fmt.Errorf("data file: %w", w.sink.or(err))
		return Stats{}, w.err
	}
	w.err = errors.New("data file: it is closed")
	w.release()
	return w.stats, nil
}

// release gives the memory back; the writer is done.
func (w *Writer) release() {
	for _, g := range []*group{w.current, w.other} {
		if g != nil {
			g.reset()
			groups.Put(g)
		}
	}
	w.current, w.other = nil, nil
}

func (w *Writer) end() (err error) {
	defer recovered(&err)
	for _, kv := range [][2]string{
		{metaFormat, formatOne}, {metaSegment, string(w.o.Segment)}, {metaRecords, strconv.FormatUint(w.stats.Records, 10)},
	} {
		if err := w.file.AppendKeyValueMetadata(kv[0], kv[1]); err != nil {
			return err
		}
	}
	return w.file.Close()
}

// Abort gives the file up. Nothing is written once it has returned. After Close it does
// nothing.
func (w *Writer) Abort() {
	if err := w.wait(); err == nil {
		w.err = errors.New("data file: it was aborted")
	}
	w.release()
}

// sink counts, and keeps the error of the writer below: the library does not give it as
// it was.
type sink struct {
	w   io.Writer
	n   int64
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.n += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	s.err = err
	return n, err
}

// or gives the writer's own error if there is one.
func (s *sink) or(err error) error {
	if err != nil && s.err != nil {
		return s.err
	}
	return err
}

// recovered is deferred where the library is called, which panics where it should fail.
func recovered(err *error) {
	if p := recover(); p != nil {
		cause, ok := p.(error)
		if !ok {
			cause = fmt.Errorf("%v", p)
		}
		*err = cause
	}
}
