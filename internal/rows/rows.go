// Package rows reads files of many records as a stream of rows: NDJSON, CSV, Avro
// and Parquet, the streamed ones plain, as gzip or as zstd. It knows nothing of
// topics: bytes in, rows out. Its memory is bounded, whatever is in a file.
//
// Rows are numbered from 0 in file order, and rows that cannot be taken are numbered
// like others: FORMAT, "Row numbers", which never changes.
//
// NDJSON is a JSON value per line, of any kind, in UTF-8; its bytes are the row's
// value as they are. Blank lines, of spaces and tabs at most, are no rows.
//
// CSV is what RFC 4180 says, with any delimiter. A row becomes an object of strings,
// in the order of the columns; no types are guessed. A quote that is not in its
// place, or not closed within 12 MiB, spoils the line in which its row begins, and
// no other: the next line is the next row. Lines without a byte, and the header, are
// no rows.
//
// Both may begin with a byte order mark, end lines with line feeds or with carriage
// returns and line feeds, and leave out the last line's end.
package rows

import (
	"errors"
	"fmt"
	"io"

	"github.com/spillway-mq/spillway/internal/record"
)

// Format is how a file holds its records.
type Format string

// The formats. TSV is CSV with tabs instead of commas.
const (
	NDJSON  Format = "ndjson"
	CSV     Format = "csv"
	TSV     Format = "tsv"
	Avro    Format = "avro"
	Parquet Format = "parquet"
)

// Compression is how a file is packed as a whole.
type Compression string

// The compressions. Parquet has its own inside, and is read only as it is.
const (
	None Compression = ""
	Gzip Compression = "gzip" // of one or more members
	Zstd Compression = "zstd" // of one or more frames, with windows of at most 64 MiB
)

// Limits.
const (
	DefaultMaxRow = 8 << 20
	// MostMaxRow leaves room in a record for the row's key and headers.
	MostMaxRow = record.MaxRecord - 1<<20
	// KeptOfLong is how much is kept of a row that is longer than MaxRow.
	KeptOfLong = 64 << 10
)

// File is what is read: bytes that do not change meanwhile. Streamed formats read
// it once from the start.
type File interface {
	io.ReaderAt
	Size() int64
}

// Row is one record of a file.
type Row struct {
	N uint64 // its number: FORMAT, "Row numbers"
	// Value is the row as JSON text: of NDJSON the line's bytes as they are, else
	// one object whose members are the columns. It is valid until the next call of
	// Next.
	Value []byte
	// Rejected says why the row cannot be taken; empty: it can. Value is then what
	// the file has there, as it is; of a row that is too long its first KeptOfLong
	// bytes.
	Rejected string
}

// Reader gives the rows of a file, one after the other. It is for one goroutine.
type Reader interface {
	// Next gives the next row, and io.EOF at the end. A *FileError says that the
	// file cannot be read on; all rows before were good. Any other error is the
	// File's own, wrapped, and may be gone when the file is opened again with From.
	// After an error Next gives the same one again.
	Next() (Row, error)
	// Close frees what the reader holds, and leaves the File open.
	Close() error
}

// Options say how a file is to be read. Which row has which number depends on all of
// them but MaxRow and From: keep them with a position.
type Options struct {
	Format      Format
	Compression Compression
	CSV         CSVOptions // for CSV and TSV
	MaxRow      int        // bytes of a Value; 0: DefaultMaxRow, at most MostMaxRow
	From        uint64     // rows below it are passed over
}

// FileError tells that a file cannot be read, or not beyond a row.
type FileError struct {
	What   string
	Row    uint64 // the row that would have come next
	Offset int64  // where in the file, unpacked, it was noticed; below 0: not known
	Err    error  // the cause; nil: What says it all
}

func (e *FileError) Error() string {
	s := e.What
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Offset < 0 {
		return fmt.Sprintf("%s (at row %d)", s, e.Row)
	}
	return fmt.Sprintf("%s (at row %d, byte %d)", s, e.Row, e.Offset)
}

func (e *FileError) Unwrap() error { return e.Err }

// Open begins to read a file. Errors about the file come as a *FileError, here or
// from Next; errors about the options are of no type.
func Open(f File, o Options) (Reader, error) {
	if o.MaxRow == 0 {
		o.MaxRow = DefaultMaxRow
	}
	if o.MaxRow < 1 || o.MaxRow > MostMaxRow {
		return nil, fmt.Errorf("rows of %d bytes: allowed are 1 to %d", o.MaxRow, MostMaxRow)
	}
	if o.Format == Parquet {
		if o.Compression != None {
			return nil, errors.New("a Parquet file that is packed as a whole cannot be read: unpack it")
		}
		return openParquet(f, o)
	}
	in, err := openStream(f, o.Compression)
	if err != nil {
		return nil, err
	}
	r, err := openIn(in, o)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return r, nil
}

// openIn reads a streamed format. The reader that it gives closes the stream.
func openIn(in *stream, o Options) (Reader, error) {
	switch o.Format {
	case NDJSON:
		return openNDJSON(in, o), nil
	case CSV, TSV:
		return openCSV(in, o)
	case Avro:
		return openAvro(in, o)
	}
	return nil, fmt.Errorf("format %q is not known: there are ndjson, csv, tsv, avro and parquet", o.Format)
}
