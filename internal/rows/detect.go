package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"
)

// HeadSize is how much of a file's start Detect can make use of.
const HeadSize = 4 << 10

// FormatError tells why it is not clear how a file is to be read. Whoever knows
// gives format and compression, and Detect need not be asked.
type FormatError struct {
	Name string
	What string
}

func (e *FormatError) Error() string { return fmt.Sprintf("%.200q: %s", e.Name, e.What) }

var extensions = map[string]Format{
	".ndjson": NDJSON, ".jsonl": NDJSON, ".jsonlines": NDJSON, ".json": NDJSON, ".csv": CSV, ".tsv": TSV, ".avro": Avro, ".parquet": Parquet,
}

var packings = map[string]Compression{".gz": Gzip, ".gzip": Gzip, ".zst": Zstd, ".zstd": Zstd}

// kinds are what files begin with. Those without a format are only known to be none
// of ours.
var kinds = []struct {
	magic  string
	name   string
	format Format
}{
	{"PAR1", "Parquet", Parquet},
	{"PARE", "encrypted Parquet", Parquet},
	{"Obj\x01", "Avro", Avro},
	{"ORC", "ORC", ""},
	{"ARROW1", "Arrow", ""},
	{"PK\x03\x04", "a ZIP archive", ""},
	{"BZh", "bzip2", ""},
	{"\xFD7zXZ\x00", "xz", ""},
	{"\x04\x22\x4D\x18", "LZ4", ""},
	{"\xFF\x06\x00\x00sNaPpY", "Snappy", ""},
	{"\xFF\xFE", "UTF-16 text", ""},
	{"\xFE\xFF", "UTF-16 text", ""},
	{"\x1F\x8B", "gzip", ""},
	{"\x28\xB5\x2F\xFD", "zstd", ""},
	{"SQLite format 3\x00", "an SQLite database", ""},
	{"%PDF-", "a PDF document", ""},
	{"\x89PNG", "a PNG image", ""},
}

// Detect finds out how to read the file whose name ends in name and that begins with
// head, its first HeadSize bytes or all of it. What the bytes say for certain has to
// agree with the name; the error is always a *FormatError, which says both. Text is
// not looked at closely: whether NDJSON is JSON shows row by row.
func Detect(name string, head []byte) (Format, Compression, error) {
	format, packing, ext := byName(name)
	if strings.HasSuffix(name, "/") {
		return "", None, &FormatError{name, "the name is a folder's"}
	}
	if len(head) == 0 {
		if format == "" {
			return "", None, &FormatError{name, "the file is empty and its name does not say how to read it"}
		}
		return format, packing, nil
	}
	format, err := claim{byItsName, format, packing}.agree(ext, head)
	if err != nil {
		return "", None, &FormatError{name, err.Error()}
	}
	return format, packing, nil
}

// Check compares the first bytes of a file, as Detect takes them, with how it is
// going to be read. The error is always a *FormatError. Where the name says the same,
// it is what Detect would say; where it does not, somebody knew better.
func Check(name string, f Format, c Compression, head []byte) error {
	if len(head) == 0 {
		return nil
	}
	said := claim{byItsName, f, c}
	named, packing, ext := byName(name)
	if named != f || packing != c {
		said.says, ext = "it should be", ""
	}
	if _, err := said.agree(ext, head); err != nil {
		return &FormatError{name, err.Error()}
	}
	return nil
}

// claim is what is said of a file, and how that is told.
type claim struct {
	says    string
	format  Format // empty: not said
	packing Compression
}

const byItsName = "by its name it is"

// agree compares what is said of a file with its first bytes, and gives the format.
func (c claim) agree(ext string, head []byte) (Format, error) {
	says, format, packing := c.says, c.format, c.packing
	if found := packed(head); found != packing {
		return "", fmt.Errorf("%s %s, by its first bytes %s",
			says, describe(format, packing), describe(inside(head, found), found))
	}
	unpacked := unpackHead(head, packing)
	all := len(head) < HeadSize && len(unpacked) < HeadSize
	format, err := judge(says, format, unpacked, all)
	if err == nil && format == NDJSON && ext == ".json" {
		err = oneDocument(unpacked, all)
	}
	if err == nil && format == Parquet && packing != None {
		err = errors.New("a Parquet file that is packed as a whole cannot be read: unpack it")
	}
	return format, err
}

func byName(name string) (f Format, c Compression, ext string) {
	name = strings.ToLower(name)
	packing := packings[path.Ext(name)]
	if packing != None {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	ext = path.Ext(name)
	return extensions[ext], packing, ext
}

// packed tells by the first bytes how a file is packed.
func packed(head []byte) Compression {
	switch {
	case bytes.HasPrefix(head, []byte("\x1F\x8B")):
		return Gzip
	case bytes.HasPrefix(head, []byte("\x28\xB5\x2F\xFD")),
		len(head) >= 4 && head[0]&0xF0 == 0x50 && string(head[1:4]) == "\x2A\x4D\x18": // a frame to be skipped
		return Zstd
	}
	return None
}

// unpackHead gives as much of the file as its packed head tells.
func unpackHead(head []byte, c Compression) []byte {
	var in io.Reader
	switch c {
	case None:
		return head
	case Gzip:
		z, err := gzip.NewReader(bytes.NewReader(head))
		if err != nil {
			return nil
		}
		in = z
	case Zstd:
		z, err := zstd.NewReader(bytes.NewReader(head), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil
		}
		defer z.Close()
		in = z
	}
	out := make([]byte, HeadSize)
	n, _ := io.ReadFull(in, out) // what stops it shows when the file is read
	return out[:n]
}

// inside is the format of what is packed, where it can be told.
func inside(head []byte, c Compression) Format {
	f, err := judge(byItsName, "", unpackHead(head, c), false)
	if err != nil {
		return ""
	}
	return f
}

// judge compares the format that is said, which may be none, with the unpacked
// bytes, which may be all that there are.
func judge(says string, named Format, head []byte, all bool) (Format, error) {
	for _, k := range kinds {
		if !bytes.HasPrefix(head, []byte(k.magic)) {
			continue
		}
		if k.format != "" && (named == "" || named == k.format) {
			return k.format, nil
		}
		return "", fmt.Errorf("%s %s, by its first bytes %s", says, describe(named, None), k.name)
	}
	first, whole := firstLine(head, all)
	object := bytes.HasPrefix(first, []byte("{")) && (!whole || gjson.ValidBytes(first))
	switch {
	case len(head) == 0 && named != "": // packed, and not to be seen
		return named, nil
	case named == Avro, named == Parquet:
		return "", fmt.Errorf("%s %s, but it does not begin as such", says, describe(named, None))
	case bytes.IndexByte(head, 0) >= 0:
		return "", fmt.Errorf("%s %s, but it is not text", says, describe(named, None))
	case named == "" && object:
		return NDJSON, nil
	case named == "":
		return "", errors.New("neither its name nor its first bytes say how to read it")
	case named != NDJSON && object && whole:
		return "", fmt.Errorf("%s %s, by its first line NDJSON", says, describe(named, None))
	}
	return named, nil
}

// firstLine gives the first line that is not blank, or as much of it as is there.
func firstLine(head []byte, all bool) (first []byte, whole bool) {
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xEF\xBB\xBF")), " \t\r\n")
	first, _, whole = bytes.Cut(text, []byte{'\n'})
	return first, whole || all
}

// oneDocument tells of a file named .json that it is hardly a JSON value per line.
func oneDocument(head []byte, all bool) error {
	first, whole := firstLine(head, all)
	if bytes.HasPrefix(first, []byte("[")) || bytes.HasPrefix(first, []byte("{")) && whole && !gjson.ValidBytes(first) {
		return errors.New("it seems to be one JSON document over several lines, or a JSON array, and not a JSON value per line (NDJSON)")
	}
	return nil
}

func describe(f Format, c Compression) string {
	names := map[Format]string{NDJSON: "NDJSON", CSV: "CSV", TSV: "TSV", Avro: "Avro", Parquet: "Parquet", "": "of no known kind"}
	switch {
	case c == None:
		return names[f]
	case f == "":
		return "packed as " + string(c)
	}
	return names[f] + " packed as " + string(c)
}
