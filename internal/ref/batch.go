package ref

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/record"
)

// Headers that make of a record with a reference a batch reference: its object is a
// file of many records. FORMAT, "Batch references".
const (
	// HeaderRows says how the object is read, as in "csv+gzip".
	HeaderRows = "Spillway-Rows"
	// HeaderCSV says how CSV is read, if it is not as usual.
	HeaderCSV = "Spillway-CSV"
	// HeaderExpand: "true" asks for the rows to become records of the topic.
	HeaderExpand = "Spillway-Expand"
)

// Batch says how the object of a batch reference is read. The words are those of
// package rows, which this one must not import: it is linked by every producer.
type Batch struct {
	Format      string // "ndjson", "csv", "tsv", "avro", "parquet"
	Compression string // "", "gzip", "zstd"
	CSV         CSV    // of CSV and TSV
	// Expand: the rows become records of the topic, by a job, and nobody else
	// expands the reference.
	Expand bool
}

// CSV says how CSV is read. The zero value is as usual.
type CSV struct {
	Comma    string   // one ASCII character; empty: a comma, and in TSV a tab
	Names    []string // of the columns; nil: the header has them
	NoHeader bool     // the first line is a row; needs Names
}

// BatchError says why a record is no batch reference that can be read, though it says
// that it is one. It is definite.
type BatchError struct {
	Header string // the header at fault
	Reason string
}

func (e *BatchError) Error() string { return e.Header + ": " + e.Reason }

// maxColumns is what package rows takes too.
const maxColumns = 1 << 14

var (
	formats      = []string{"ndjson", "csv", "tsv", "avro", "parquet"}
	compressions = []string{"", "gzip", "zstd"}
	extensions   = map[string]string{
		".ndjson": "ndjson", ".jsonl": "ndjson", ".jsonlines": "ndjson", ".json": "ndjson", ".csv": "csv", ".tsv": "tsv", ".avro": "avro", ".parquet": "parquet",
	}
	packings = map[string]string{".gz": "gzip", ".gzip": "gzip", ".zst": "zstd", ".zstd": "zstd"}
)

// BatchOf tells whether an accepted record is a batch reference, and how it is read.
// With is, an error (a *BatchError) says why nobody can read it.
func BatchOf(r *record.Record) (b Batch, is bool, err error) {
	if r.Ref == nil || r.Rejected != "" {
		return Batch{}, false, nil
	}
	text, is, err := single(r.Headers, HeaderRows)
	if !is {
		return Batch{}, false, nil
	}
	if err == nil {
		b, err = ParseRows(text)
	}
	if err == nil {
		err = b.csvOf(r.Headers)
	}
	if err == nil {
		err = b.expandOf(r.Headers)
	}
	if err == nil {
		err = b.Check()
	}
	if err != nil {
		return Batch{}, true, err
	}
	return b, true, nil
}

// single is the value of a header that may be given once.
func single(headers []record.Header, name string) (text string, is bool, err error) {
	for _, h := range headers {
		switch {
		case h.Name != name:
		case is:
			return "", true, &BatchError{name, "it is given more than once"}
		default:
			text, is = string(h.Value), true
		}
	}
	return text, is, nil
}

func (b *Batch) csvOf(headers []record.Header) error {
	text, is, err := single(headers, HeaderCSV)
	if err != nil || !is {
		return err
	}
	b.CSV, err = parseCSV(text)
	return err
}

func (b *Batch) expandOf(headers []record.Header) error {
	text, is, err := single(headers, HeaderExpand)
	switch {
	case err != nil || !is || text == "false":
		return err
	case text != "true":
		return &BatchError{HeaderExpand, fmt.Sprintf("%.60q: want true or false", text)}
	}
	b.Expand = true
	return nil
}

// ParseRows reads what [Batch.Rows] writes.
func ParseRows(text string) (Batch, error) {
	format, packing, packed := strings.Cut(text, "+")
	b := Batch{Format: format, Compression: packing}
	if packed && packing == "" {
		return Batch{}, &BatchError{HeaderRows, fmt.Sprintf("%.60q has no compression after the plus sign", text)}
	}
	if err := b.checkKind(); err != nil {
		return Batch{}, err
	}
	return b, nil
}

// Rows is the format with the compression, as in "csv+gzip".
func (b Batch) Rows() string {
	if b.Compression == "" {
		return b.Format
	}
	return b.Format + "+" + b.Compression
}

// BatchNamed is the batch that an object's key tells of, as in "2026/a.csv.gz".
func BatchNamed(key string) (Batch, error) {
	name := strings.ToLower(path.Base(key))
	packing := packings[path.Ext(name)]
	if packing != "" {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	b := Batch{Format: extensions[path.Ext(name)], Compression: packing}
	if b.Format == "" || strings.HasSuffix(key, "/") {
		return Batch{}, &BatchError{HeaderRows, fmt.Sprintf("the name %.200q does not say how the records in it are read: give a format", path.Base(key))}
	}
	return b, b.checkKind()
}

func (b Batch) checkKind() error {
	switch {
	case !slices.Contains(formats, b.Format):
		return &BatchError{HeaderRows, fmt.Sprintf("format %.60q is not known: there are ndjson, csv, tsv, avro and parquet", b.Format)}
	case !slices.Contains(compressions, b.Compression):
		return &BatchError{HeaderRows, fmt.Sprintf("compression %.60q is not known: there are gzip and zstd", b.Compression)}
	case b.Format == "parquet" && b.Compression != "":
		return &BatchError{HeaderRows, "a Parquet file that is packed as a whole cannot be read"}
	}
	return nil
}

// Check says whether there are files that are read so. Errors are *BatchError.
func (b Batch) Check() error {
	if err := b.checkKind(); err != nil {
		return err
	}
	c := b.CSV
	if c.usual() {
		return nil
	}
	fault := func(format string, a ...any) error { return &BatchError{HeaderCSV, fmt.Sprintf(format, a...)} }
	switch {
	case b.Format != "csv" && b.Format != "tsv":
		return fault("it is for csv and tsv, not for %s", b.Format)
	case len(c.Comma) > 1 || c.Comma != "" && (c.Comma[0] >= utf8.RuneSelf || strings.ContainsAny(c.Comma, "\"\r\n")):
		return fault("fields cannot be divided by %.20q", c.Comma)
	case c.NoHeader && c.Names == nil:
		return fault("a file without a header needs names for its columns")
	case c.Names != nil && (len(c.Names) == 0 || len(c.Names) > maxColumns):
		return fault("%d names of columns: allowed are 1 to %d", len(c.Names), maxColumns)
	}
	seen := make(map[string]bool, len(c.Names))
	for _, name := range c.Names {
		if seen[name] || !utf8.ValidString(name) {
			return fault("the column name %.60q is there twice, or is not UTF-8", name)
		}
		seen[name] = true
	}
	return nil
}

func (c CSV) usual() bool { return c.Comma == "" && c.Names == nil && !c.NoHeader }

// csvText is a CSV in its header.
type csvText struct {
	Comma    string   `json:"comma,omitempty"`
	Names    []string `json:"names,omitempty"`
	NoHeader bool     `json:"no_header,omitempty"`
}

// parseCSV refuses members that it does not know: they would change what the rows are.
func parseCSV(text string) (CSV, error) {
	var c csvText
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("there is something after it")
		}
	}
	if err != nil || !utf8.ValidString(text) {
		return CSV{}, &BatchError{HeaderCSV, fmt.Sprintf("%.60q is not a JSON object of comma, names and no_header: %v", text, err)}
	}
	return CSV(c), nil
}

// Headers are those of a record that has this batch as its payload.
func (b Batch) Headers() []record.Header {
	list := []record.Header{{Name: HeaderRows, Value: []byte(b.Rows())}}
	if !b.CSV.usual() {
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		_ = e.Encode(csvText(b.CSV)) // strings cannot fail
		list = append(list, record.Header{Name: HeaderCSV, Value: bytes.TrimSpace(text.Bytes())})
	}
	if b.Expand {
		list = append(list, record.Header{Name: HeaderExpand, Value: []byte("true")})
	}
	return list
}

// IsBatchHeader tells whether a header says how a batch is read, so that a row of it
// does not have it.
func IsBatchHeader(name string) bool {
	return name == HeaderRows || name == HeaderCSV || name == HeaderExpand
}
