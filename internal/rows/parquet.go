package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	_ "github.com/spillway-mq/spillway/internal/parquet/guard" // its codecs refuse pages that unpack to more than they say
)

// maxParquetColumns bounds the columns of a Parquet file: each takes some 40 KiB, whatever
// is in it.
const maxParquetColumns = 2000

// parquetReader reads a Parquet file row by row: of each column one page at a time,
// however large the row groups are. The library (arrow-go) decodes pages; putting
// columns together to rows is done here, since its own way goes through Arrow's
// arrays, a whole column chunk at a time.
type parquetReader struct {
	in      *parquetFile
	mem     *pageMemory
	file    *file.Reader
	root    []*node
	columns []*column
	text    rowText
	from    uint64
	next    uint64 // the number of the row that comes next
	group   int    // the row group that comes next
	left    int64  // rows of the open row group
	err     error
}

var _ Reader = (*parquetReader)(nil)

// openParquet reads the footer of a file.
func openParquet(f File, o Options) (Reader, error) {
	r := &parquetReader{in: &parquetFile{f: f}, mem: &pageMemory{}, text: rowText{max: o.MaxRow}, from: o.From}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// border is deferred where the library is called, which panics on some damaged files.
// What it panics with, and all else that is wrong, becomes a *FileError; but not what
// the File failed with.
func (r *parquetReader) border(err *error) {
	if p := recover(); p != nil {
		cause, ok := p.(error)
		if !ok {
			cause = fmt.Errorf("%v", p)
		}
		*err = cause
	}
	switch {
	case *err == nil || *err == io.EOF: //nolint:errorlint // only the end itself is the end
	case r.in.err != nil:
		*err = r.in.err
	default:
		*err = r.fileError(*err)
	}
}

func (r *parquetReader) fileError(err error) error {
	if known := (*FileError)(nil); errors.As(err, &known) {
		return err
	}
	return &FileError{"the Parquet file cannot be read", r.next, -1, err}
}

func (r *parquetReader) open() (err error) {
	defer r.border(&err)
	footer, err := r.footer()
	if err != nil {
		return err
	}
	meta, err := metadata.NewFileMetaData(footer, nil)
	if err != nil {
		return fmt.Errorf("its footer: %w", err)
	}
	meta.SetSourceFileSize(r.in.f.Size())
	if meta.IsSetEncryptionAlgorithm() {
		return errors.New("it is encrypted")
	}
	if err := r.schema(meta); err != nil {
		return err
	}
	props := parquet.NewReaderProperties(r.mem)
	props.BufferedStreamEnabled = true
	props.PageStreamingEnabled, err = r.chunks(meta)
	if err != nil {
		return err
	}
	// The real bound is what pageMemory allows: large pages of plain values stream.
	props.MaxCompressedPageSize, props.MaxUncompressedPageSize = 1<<31, 1<<31
	r.file, err = file.NewParquetReader(io.NewSectionReader(r.in, 0, r.in.f.Size()),
		file.WithReadProps(props), file.WithMetadata(meta))
	return err
}

// footer gives the bytes of the footer, once they are known to be harmless.
func (r *parquetReader) footer() ([]byte, error) {
	size := r.in.f.Size()
	if size < 12 {
		return nil, &FileError{fmt.Sprintf("a file of %d bytes is no Parquet file", size), 0, 0, nil}
	}
	var tail [8]byte
	if _, err := r.in.ReadAt(tail[:], size-8); err != nil && r.in.err != nil {
		return nil, err
	}
	switch string(tail[4:]) {
	case "PAR1":
	case "PARE":
		return nil, errors.New("it is encrypted")
	default:
		return nil, &FileError{"the file does not end as a Parquet file: it is cut off, or is none", 0, size - 4, nil}
	}
	length := int64(binary.LittleEndian.Uint32(tail[:]))
	switch {
	case length > size-12:
		return nil, fmt.Errorf("its footer should have %d bytes, in a file of %d", length, size)
	case length > maxFooter:
		return nil, fmt.Errorf("its footer has %d bytes: at most %d are taken", length, maxFooter)
	}
	footer := make([]byte, length)
	if _, err := r.in.ReadAt(footer, size-8-length); err != nil && r.in.err != nil {
		return nil, err
	}
	if err := checkFooter(footer); err != nil {
		return nil, fmt.Errorf("its footer: %w", err)
	}
	return footer, nil
}

// schema makes the nodes and columns.
func (r *parquetReader) schema(meta *metadata.FileMetaData) error {
	n := meta.Schema.NumColumns()
	if n == 0 || n > maxParquetColumns {
		return fmt.Errorf("it has %d columns: from 1 to %d are taken", n, maxParquetColumns)
	}
	if err := r.mem.charge(int64(n) * 24 << 10); err != nil {
		return err
	}
	var b nodeBuilder
	var err error
	if r.root, err = b.fields(meta.Schema.Root(), 0, 0); err != nil {
		return err
	}
	r.columns = make([]*column, n)
	for i := range r.columns {
		if r.columns[i], err = newColumn(meta.Schema.Column(i), i, n); err != nil {
			return err
		}
	}
	return nil
}

// chunks looks at where the columns' data is. It tells if large pages may stream: not
// if one is packed so that unpacking takes memory by itself.
func (r *parquetReader) chunks(meta *metadata.FileMetaData) (stream bool, err error) {
	stream = true
	for i := range meta.NumRowGroups() {
		group := meta.RowGroup(i)
		if group.NumRows() < 0 {
			return false, fmt.Errorf("row group %d has %d rows", i, group.NumRows())
		}
		if group.NumColumns() != len(r.columns) {
			return false, fmt.Errorf("row group %d has %d columns, the schema %d", i, group.NumColumns(), len(r.columns))
		}
		for k, column := range r.columns {
			chunk, err := group.ColumnChunk(k)
			if err != nil {
				return false, column.err(err)
			}
			if err := r.checkChunk(chunk); err != nil {
				return false, fmt.Errorf("row group %d: %w", i, column.err(err))
			}
			codec := chunk.Compression()
			stream = stream && codec != compress.Codecs.Zstd && codec != compress.Codecs.Brotli
		}
	}
	return stream, nil
}

func (r *parquetReader) checkChunk(chunk *metadata.ColumnChunkMetaData) error {
	start, length := chunk.DataPageOffset(), chunk.TotalCompressedSize()
	if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
		start = min(start, chunk.DictionaryPageOffset())
	}
	switch size := r.in.f.Size(); {
	case chunk.CryptoMetadata() != nil:
		return errors.New("it is encrypted")
	case chunk.FilePath() != "":
		return errors.New("its data is in another file")
	case start < 0 || length < 0 || start > size || length > size-start:
		return fmt.Errorf("its data should be at the bytes %d to %d, in a file of %d", start, start+length, size)
	}
	return nil
}

func (r *parquetReader) Next() (Row, error) {
	if r.err == nil {
		r.err = r.read()
	}
	if r.err != nil {
		return Row{}, r.err
	}
	return r.text.row(r.next - 1), nil
}

// read puts one row together.
func (r *parquetReader) read() (err error) {
	defer r.border(&err)
	for r.left == 0 {
		if err := r.openGroup(); err != nil {
			return err
		}
	}
	r.text.reset()
	r.text.raw("{")
	for i, n := range r.root {
		r.text.label(i, n.label)
		if err := n.write(&r.text, r.columns); err != nil {
			return err
		}
	}
	r.text.raw("}")
	if err := r.rowEnds(); err != nil {
		return err
	}
	r.left--
	r.next++
	return nil
}

// rowEnds checks that no column has more of the row.
func (r *parquetReader) rowEnds() error {
	for _, c := range r.columns {
		if depth, err := c.repeats(); err != nil || depth != 0 {
			return errors.Join(err, c.err(errLevels))
		}
	}
	return nil
}

// openGroup goes on to the next row group, and over those that are below From.
func (r *parquetReader) openGroup() error {
	if err := r.closeGroup(); err != nil {
		return err
	}
	if r.group >= r.file.NumRowGroups() {
		return io.EOF
	}
	group := r.file.RowGroup(r.group)
	r.group++
	rows := group.NumRows()
	if r.next+uint64(rows) <= r.from {
		r.next += uint64(rows)
		return nil
	}
	r.left = rows
	for _, c := range r.columns {
		if err := c.open(r.file, group, r.mem); err != nil {
			return err
		}
	}
	if r.next < r.from {
		return r.skip(int64(r.from - r.next))
	}
	return nil
}

func (r *parquetReader) skip(n int64) error {
	for _, c := range r.columns {
		if err := c.skipRows(n); err != nil {
			return err
		}
	}
	r.next += uint64(n)
	r.left -= n
	return nil
}

func (r *parquetReader) closeGroup() error {
	for _, c := range r.columns {
		if err := c.close(); err != nil {
			return c.err(err)
		}
	}
	return nil
}

func (r *parquetReader) Close() (err error) {
	defer r.border(&err)
	if r.err == nil {
		r.err = errors.New("the reader is closed")
	}
	return r.closeGroup()
}

// parquetFile keeps the File's own error: the library does not give it as it was.
type parquetFile struct {
	f   File
	err error
}

func (p *parquetFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.f.ReadAt(b, off)
	switch {
	case n == len(b):
		return n, nil
	case err == nil:
		err = io.ErrUnexpectedEOF
	}
	if off+int64(len(b)) <= p.f.Size() {
		p.err = fmt.Errorf("reading at byte %d of %d: %w", off, p.f.Size(), err)
	}
	return n, err
}
