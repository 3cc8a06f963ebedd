package rows

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/record"
)

const (
	// maxSpan is how far a row of CSV may go, and how far a closing quote is looked
	// for. Row numbers depend on it, so that it never changes, and not on MaxRow.
	maxSpan = record.MaxRecord
	// Limits of what names the columns, all of which every row's Value repeats.
	maxCSVColumns = 1 << 14
	maxCSVNames   = 1 << 20
)

// CSVOptions say how a CSV file is to be read.
type CSVOptions struct {
	Comma    byte     // between fields; 0: a comma, and for TSV a tab
	Names    []string // of the columns; nil: the first line that is not blank has them
	NoHeader bool     // the first line is a row; needs Names
}

// check fills in the defaults.
func (o *CSVOptions) check(f Format) error {
	switch {
	case o.Comma == 0 && f == TSV:
		o.Comma = '\t'
	case o.Comma == 0:
		o.Comma = ','
	case o.Comma >= utf8.RuneSelf || o.Comma == '"' || o.Comma == '\n' || o.Comma == '\r':
		return fmt.Errorf("fields cannot be divided by %q", o.Comma)
	}
	if o.NoHeader && o.Names == nil {
		return errors.New("a CSV file without a header needs names for its columns")
	}
	if o.Names == nil {
		return nil
	}
	_, err := members(o.Names)
	return err
}

// csv reads rows of CSV, as RFC 4180 and encoding/csv understand it, into objects of
// strings.
type csv struct {
	in      *stream
	w       window
	o       Options
	scan    csvScan
	members [][]byte // what stands before each column's value
	out     []byte
	text    []byte // a field without doubled quotes
	n       uint64
	started bool
	err     error
}

func openCSV(in *stream, o Options) (Reader, error) {
	if err := o.CSV.check(o.Format); err != nil {
		return nil, err
	}
	return &csv{in: in, w: window{in: in}, o: o, scan: csvScan{comma: o.CSV.Comma}}, nil
}

func (r *csv) Close() error { return r.in.Close() }

func (r *csv) Next() (Row, error) {
	if !r.started {
		r.started = true
		r.err = r.start()
	}
	for r.err == nil {
		l, err := r.row()
		switch {
		case err != nil:
			r.err = r.in.err(err, r.n)
		case r.n < r.o.From:
			r.n++
		default:
			r.n++
			return r.value(l), nil
		}
	}
	return Row{}, r.err
}

// row takes the next row that is not blank, and leaves its fields in r.scan. What
// is wrong with its quotes is left in r.scan.bad, and then the row is the line in
// which it begins: a quote that is never closed costs one line.
func (r *csv) row() (line, error) {
	for {
		n, withEnd, err := r.w.find(maxSpan)
		switch {
		case err != nil:
			return line{}, err
		case n > maxSpan:
			r.scan.begin()
			return r.w.longLine()
		case n == 0:
			r.w.take(withEnd)
			continue
		}
		if bytes.IndexByte(r.w.bytes()[:n], '"') < 0 {
			r.scan.plain(r.w.bytes()[:n])
			return r.taken(n, withEnd), nil
		}
		r.scan.begin()
		for !r.scan.run(r.span()) {
			if !r.w.more() && !r.w.ended() {
				return line{}, r.w.err
			}
		}
		if r.scan.bad != "" {
			return r.taken(n, withEnd), nil
		}
		return r.taken(r.scan.end, r.scan.next), nil
	}
}

// span is what a row may consist of, and whether no more of that will come.
func (r *csv) span() (b []byte, all bool) {
	if b = r.w.bytes(); len(b) >= maxSpan {
		return b[:maxSpan], true
	}
	return b, r.w.ended()
}

func (r *csv) taken(n, withEnd int) line {
	text := r.w.bytes()[:n]
	r.w.take(withEnd)
	if n <= r.o.MaxRow {
		return line{text: text, size: int64(n)}
	}
	return line{text: text[:min(n, KeptOfLong)], size: int64(n), long: true}
}

// value makes of a row its object.
func (r *csv) value(l line) Row {
	row := Row{N: r.n - 1, Value: l.text}
	switch {
	case l.long:
		row.Rejected = tooLong(l.size, r.o.MaxRow)
	case r.scan.bad != "":
		row.Rejected = r.scan.bad
	case !utf8.Valid(l.text):
		row.Rejected = notUTF8(l.text)
	case r.scan.count != len(r.members):
		row.Rejected = fmt.Sprintf("the row has %d fields, and there are %d columns", r.scan.count, len(r.members))
	case !r.object(l.text):
		row.Rejected = fmt.Sprintf("the row has over %d bytes as JSON", r.o.MaxRow)
	default:
		row.Value = r.out
	}
	return row
}

// object puts the row's object into r.out. False: it would be too long.
func (r *csv) object(text []byte) bool {
	r.out = r.out[:0]
	for i, f := range r.scan.fields {
		r.out = append(r.out, r.members[i]...)
		field := text[f.from:f.to]
		if f.doubled {
			r.text = undouble(r.text[:0], field)
			field = r.text
		}
		if len(r.out)+jsonSize(field) > r.o.MaxRow {
			return false
		}
		r.out = appendString(r.out, field)
	}
	r.out = append(r.out, '}')
	return len(r.out) <= r.o.MaxRow
}

// start reads what comes before the first row.
func (r *csv) start() error {
	if err := r.w.start(); err != nil {
		return err
	}
	names := r.o.CSV.Names
	if !r.o.CSV.NoHeader {
		inFile, err := r.header()
		if err != nil {
			return err
		}
		if names == nil {
			names = inFile
		}
		if len(names) != len(inFile) {
			return &FileError{fmt.Sprintf("the header has %d columns, and there are names for %d", len(inFile), len(names)), 0, 0, nil}
		}
	}
	var err error
	if r.members, err = members(names); err != nil {
		return &FileError{"the CSV header", 0, 0, err}
	}
	r.scan.most = len(r.members)
	return nil
}

// header reads the names of the columns from the file.
func (r *csv) header() ([]string, error) {
	r.scan.most = maxCSVColumns
	l, err := r.row()
	switch {
	case err != nil:
		return nil, r.in.err(err, 0)
	case l.long:
		return nil, &FileError{"the CSV header: " + tooLong(l.size, r.o.MaxRow), 0, 0, nil}
	case r.scan.bad != "":
		return nil, &FileError{"the CSV header: " + r.scan.bad, 0, 0, nil}
	case !utf8.Valid(l.text):
		return nil, &FileError{"the CSV header: " + notUTF8(l.text), 0, 0, nil}
	case r.scan.count > maxCSVColumns:
		return nil, &FileError{fmt.Sprintf("the CSV header has %d columns, at most %d are allowed", r.scan.count, maxCSVColumns), 0, 0, nil}
	}
	names := make([]string, r.scan.count)
	for i, f := range r.scan.fields {
		names[i] = string(undouble(nil, l.text[f.from:f.to]))
	}
	return names, nil
}

// members gives what stands in an object before the value of each column.
func members(names []string) ([][]byte, error) {
	if len(names) == 0 || len(names) > maxCSVColumns {
		return nil, fmt.Errorf("%d names of columns: allowed are 1 to %d", len(names), maxCSVColumns)
	}
	list, seen, size := make([][]byte, len(names)), make(map[string]bool, len(names)), 0
	for i, name := range names {
		switch size += len(name); {
		case !utf8.ValidString(name):
			return nil, fmt.Errorf("column %d: %.60q is not UTF-8", i, name)
		case seen[name]:
			return nil, fmt.Errorf("two columns have the name %.60q: give names", name)
		case size > maxCSVNames:
			return nil, fmt.Errorf("the columns' names have over %d bytes", maxCSVNames)
		}
		seen[name] = true
		sep := byte(',')
		if i == 0 {
			sep = '{'
		}
		list[i] = append(appendString([]byte{sep}, []byte(name)), ':')
	}
	return list, nil
}
