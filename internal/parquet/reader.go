package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/spillway-mq/spillway/internal/parquet/guard"
)

// maxPages bounds what the pages that are being read take, packed and unpacked: a page
// of the largest value, and those of all other columns.
const maxPages = 112 << 20

// readBuffer is how much of a column chunk is asked for at a time, of a large file.
const readBuffer = 64 << 10

// Reader reads one data file. It takes memory for a page of each column, beside the
// footer. Not for concurrent use, and one iteration at a time.
type Reader struct {
	in    *input
	mem   *guard.Memory
	file  *file.Reader
	index [columnCount]int // where our columns are in the file's schema
	stats Stats
}

// Open reads the footer of a file of size bytes. A *[FileError] says what is wrong with
// the file, here and in all that follows; what r failed with comes as it was, wrapped.
// Columns that this version does not know are passed over.
func Open(r io.ReaderAt, size int64) (*Reader, error) {
	f := &Reader{in: &input{r: r, size: size}, mem: guard.NewMemory(maxPages)}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

func (r *Reader) open() (err error) {
	defer r.border(&err)
	footer, err := r.in.footer()
	if err != nil {
		return err
	}
	meta, err := metadata.NewFileMetaData(footer, nil)
	if err != nil {
		return fmt.Errorf("its footer: %w", err)
	}
	meta.SetSourceFileSize(r.in.size)
	if meta.IsSetEncryptionAlgorithm() {
		return errors.New("it is encrypted")
	}
	if err := r.columns(meta.Schema); err != nil {
		return err
	}
	if err := r.in.chunks(meta); err != nil {
		return err
	}
	props := parquet.NewReaderProperties(r.mem)
	props.BufferedStreamEnabled, props.BufferSize = true, min(readBuffer, r.in.size)
	props.MaxCompressedPageSize, props.MaxUncompressedPageSize = maxPages, maxPages
	r.file, err = file.NewParquetReader(io.NewSectionReader(r.in, 0, r.in.size), file.WithReadProps(props), file.WithMetadata(meta))
	if err != nil {
		return err
	}
	return r.summary(meta)
}

// border is deferred where the library is called. What it fails or panics with becomes
// a *FileError; but not what the file's own reader failed with.
func (r *Reader) border(err *error) {
	if p := recover(); p != nil {
		cause, ok := p.(error)
		if !ok {
			cause = fmt.Errorf("%v", p)
		}
		*err = cause
	}
	if *err == nil {
		return
	}
	switch known := (*FileError)(nil); {
	case errors.As(*err, &known):
	case r.in.err != nil:
		*err = fmt.Errorf("data file: %w", r.in.err)
	default:
		*err = &FileError{"it cannot be read", *err}
	}
}

// columns finds our columns.
func (r *Reader) columns(s *schema.Schema) error {
	for i, path := range paths() {
		want, at := fileSchema().Column(i), s.ColumnIndexByName(path)
		if at < 0 {
			return &FileError{fmt.Sprintf("it has no column %s", path), nil}
		}
		if got := s.Column(at); !sameColumn(want, got) {
			return &FileError{fmt.Sprintf("its column %s is another one: %s (id %d), not %s (id %d)",
				path, got, got.SchemaNode().FieldID(), want, want.SchemaNode().FieldID()), nil}
		}
		r.index[i] = at
	}
	return nil
}

func sameColumn(want, got *schema.Column) bool {
	return got.PhysicalType() == want.PhysicalType() && got.SchemaNode().FieldID() == want.SchemaNode().FieldID() &&
		got.MaxDefinitionLevel() == want.MaxDefinitionLevel() && got.MaxRepetitionLevel() == want.MaxRepetitionLevel() &&
		got.LogicalType().Equals(want.LogicalType())
}

// summary takes from the footer what is in the file.
func (r *Reader) summary(meta *metadata.FileMetaData) error {
	s := &r.stats
	s.Groups = meta.NumRowGroups()
	for i := range s.Groups {
		s.Rows += uint64(meta.RowGroup(i).NumRows())
		first, last, known := r.bounds(i, colOffset)
		from, to, times := r.bounds(i, colTime)
		switch {
		case !known || !times || first < 0:
			return fmt.Errorf("row group %d does not say which offsets and times it has", i)
		case i > 0 && uint64(first) < s.Last || last < first:
			return fmt.Errorf("row group %d begins at offset %d and ends at %d, after %d", i, first, last, s.Last)
		case i == 0:
			s.First, s.From, s.To = uint64(first), unixMicro(from), unixMicro(to)
		}
		s.Last = uint64(last)
		if t := unixMicro(from); t.Before(s.From) {
			s.From = t
		}
		if t := unixMicro(to); t.After(s.To) {
			s.To = t
		}
	}
	if text := meta.KeyValueMetadata().FindValue(metaRecords); text != nil {
		n, err := strconv.ParseUint(*text, 10, 64)
		if err != nil || n > s.Rows || n == 0 && s.Rows > 0 {
			return fmt.Errorf("it says that %d rows are %q records", s.Rows, *text)
		}
		s.Records = n
		return nil
	}
	return fmt.Errorf("it does not say how many records it has")
}

func unixMicro(n int64) time.Time { return time.UnixMicro(n).UTC() }

// Stats is what the footer says of the file: nobody has looked whether it is so.
func (r *Reader) Stats() Stats { return r.stats }

// bounds gives the smallest and the largest number of a column in a row group.
func (r *Reader) bounds(group, column int) (low, high int64, known bool) {
	chunk, err := r.meta(group, column)
	if err != nil {
		return 0, 0, false
	}
	s, err := chunk.Statistics()
	if err != nil || s == nil || !s.HasMinMax() {
		return 0, 0, false
	}
	n, ok := s.(*metadata.Int64Statistics)
	if !ok {
		return 0, 0, false
	}
	return n.Min(), n.Max(), true
}

func (r *Reader) meta(group, column int) (*metadata.ColumnChunkMetaData, error) {
	return r.file.MetaData().RowGroup(group).ColumnChunk(r.index[column])
}

// input is the file's bytes. It keeps the reader's own error: the library does not give
// it as it was.
type input struct {
	r    io.ReaderAt
	size int64
	err  error
}

func (p *input) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.r.ReadAt(b, off)
	switch {
	case n == len(b):
		return n, nil
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	if off+int64(len(b)) <= p.size && p.err == nil {
		p.err = fmt.Errorf("reading at byte %d of %d: %w", off, p.size, err)
	}
	return n, err
}

// footer gives the bytes of the footer, once they are known to be harmless.
func (p *input) footer() ([]byte, error) {
	if p.size < 12 {
		return nil, &FileError{fmt.Sprintf("a file of %d bytes is no Parquet file", p.size), nil}
	}
	var tail [8]byte
	if _, err := p.ReadAt(tail[:], p.size-8); err != nil {
		return nil, err
	}
	if string(tail[4:]) != "PAR1" {
		return nil, &FileError{"it does not end as a Parquet file: it is cut off, or is none", nil}
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	if length > p.size-12 || length > guard.MaxFooter {
		return nil, &FileError{fmt.Sprintf("its footer should have %d bytes, in a file of %d: at most %d are taken", length, p.size, guard.MaxFooter), nil}
	}
	footer := make([]byte, length)
	if _, err := p.ReadAt(footer, p.size-8-length); err != nil {
		return nil, err
	}
	if err := guard.Footer(footer); err != nil {
		return nil, fmt.Errorf("its footer: %w", err)
	}
	return footer, nil
}

// chunks looks whether the columns' data is in the file.
func (p *input) chunks(meta *metadata.FileMetaData) error {
	for i := range meta.NumRowGroups() {
		group := meta.RowGroup(i)
		if n := group.NumRows(); n < 1 || n > mostGroupRows {
			return fmt.Errorf("row group %d has %d rows: from 1 to %d are taken", i, n, mostGroupRows)
		}
		if group.NumColumns() != meta.Schema.NumColumns() {
			return fmt.Errorf("row group %d has %d columns, the schema %d", i, group.NumColumns(), meta.Schema.NumColumns())
		}
		for k := range group.NumColumns() {
			chunk, err := group.ColumnChunk(k)
			if err == nil {
				err = p.chunk(chunk)
			}
			if err != nil {
				return fmt.Errorf("row group %d, column %s: %w", i, meta.Schema.Column(k).Path(), err)
			}
		}
	}
	return nil
}

func (p *input) chunk(c *metadata.ColumnChunkMetaData) error {
	start, length := c.DataPageOffset(), c.TotalCompressedSize()
	if c.HasDictionaryPage() && c.DictionaryPageOffset() > 0 {
		start = min(start, c.DictionaryPageOffset())
	}
	switch {
	case c.CryptoMetadata() != nil:
		return errors.New("it is encrypted")
	case c.FilePath() != "":
		return errors.New("its data is in another file")
	case !p.has(start, length):
		return fmt.Errorf("its data should be at the bytes %d to %d, in a file of %d", start, start+length, p.size)
	}
	return nil
}

func (p *input) has(off, length int64) bool {
	return off >= 0 && length >= 0 && off <= p.size && length <= p.size-off
}
