package rows_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/internal/rows"
)

// A packed file that is cut off anywhere gives the rows that were whole, and tells.
func TestCutOff(t *testing.T) {
	lines := make([]string, 40)
	for i := range lines {
		lines[i] = fmt.Sprintf("{\"n\":%d,\"text\":\"%x\"}\n", i, i*i*i*7919)
	}
	text := strings.Join(lines, "")
	for packing, data := range map[rows.Compression][]byte{rows.Gzip: gzipped(t, text), rows.Zstd: zstded(t, text)} {
		most := 0
		for end := 1; end < len(data); end++ {
			got, err := all(t, data[:end], rows.Options{Format: rows.NDJSON, Compression: packing})
			var typed *rows.FileError
			if !errors.As(err, &typed) || typed.Row != uint64(len(got)) || !strings.Contains(err.Error(), "it is cut off") {
				t.Fatalf("%s, %d of %d bytes: %v, %d rows", packing, end, len(data), err, len(got))
			}
			for i, r := range got {
				if string(r.Value)+"\n" != lines[i] {
					t.Fatalf("%s, %d of %d bytes: row %d is %q", packing, end, len(data), i, r.Value)
				}
			}
			most = max(most, len(got))
		}
		if packing == rows.Gzip && most < 30 {
			t.Errorf("%s: at most %d rows before the cut", packing, most)
		}
	}
}

func TestBrokenPacking(t *testing.T) {
	good := "{\"a\":1}\n{\"a\":2}\n"
	sum := gzipped(t, good)
	sum[len(sum)-8] ^= 1
	for name, c := range map[string]struct {
		packing rows.Compression
		data    []byte
		rows    int
		want    string
	}{
		"rubbish after gzip":   {rows.Gzip, append(gzipped(t, good), "rubbish and more of it"...), 2, "gzip file cannot be unpacked further: "},
		"rubbish after zstd":   {rows.Zstd, append(zstded(t, good), "rubbish and more of it"...), 2, "zstd file cannot be unpacked further: "},
		"another checksum":     {rows.Gzip, sum, 2, "checksum"},
		"text, not gzip":       {rows.Gzip, []byte(good), 0, "gzip file cannot be unpacked further: "},
		"text, not zstd":       {rows.Zstd, []byte(good), 0, "zstd file cannot be unpacked further: "},
		"a large zstd window":  {rows.Zstd, wide(t, 128<<20), 0, "window is larger than 67108864 bytes"},
		"cut within a line":    {rows.Gzip, append(gzipped(t, "1\n{\"a\":"), gzipped(t, "1}\n")[:12]...), 1, "it is cut off"},
		"some bytes of a head": {rows.Gzip, append(gzipped(t, good), 0x1F), 2, "it is cut off"},
	} {
		got, err := all(t, c.data, rows.Options{Format: rows.NDJSON, Compression: c.packing})
		var typed *rows.FileError
		if !errors.As(err, &typed) || !strings.Contains(err.Error(), c.want) || len(got) != c.rows {
			t.Errorf("%s: %d rows, %v", name, len(got), err)
		}
	}
	for name, c := range map[string]struct {
		packing rows.Compression
		data    []byte
	}{
		"several gzip members": {rows.Gzip, gzipped(t, good[:3], "", good[3:])},
		"several zstd frames":  {rows.Zstd, append(zstded(t, good[:3]), append([]byte("\x51\x2A\x4D\x18\x03\x00\x00\x00abc"), zstded(t, good[3:])...)...)},
		"a zstd window of 64M": {rows.Zstd, wide(t, 64<<20)},
	} {
		if got, err := all(t, c.data, rows.Options{Format: rows.NDJSON, Compression: c.packing}); err != nil || len(got) < 2 {
			t.Errorf("%s: %d rows, %v", name, len(got), err)
		}
	}
	for _, packing := range []rows.Compression{rows.None, rows.Gzip, rows.Zstd} {
		if got, err := all(t, nil, rows.Options{Format: rows.NDJSON, Compression: packing}); err != nil || len(got) != 0 {
			t.Errorf("no bytes, packed as %q: %d rows, %v", packing, len(got), err)
		}
	}
}

// wide packs lines as zstd whose window is that large.
func wide(t *testing.T, window int) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.WriteString(w, strings.Repeat("1\n", 200_000)); err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sick is a file that cannot be read beyond a byte, or that ends there.
type sick struct {
	data []byte
	at   int64
	err  error
}

func (s *sick) Size() int64 { return int64(len(s.data)) }

func (s *sick) ReadAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) <= s.at {
		return copy(p, s.data[at:]), nil
	}
	return copy(p, s.data[min(at, s.at):s.at]), s.err
}

// What the File's own error is, is not taken for the file's fault, nor for its end.
func TestErrorsOfTheFile(t *testing.T) {
	text := strings.Repeat("{\"some\":\"text\"}\n", 1000)
	gone := errors.New("the server is gone")
	for packing, data := range map[rows.Compression][]byte{rows.None: []byte(text), rows.Gzip: gzipped(t, text), rows.Zstd: zstded(t, text)} {
		for _, own := range []error{gone, io.EOF} {
			want := own
			if own == io.EOF { //nolint:errorlint // it is the very value
				want = io.ErrUnexpectedEOF
			}
			for _, at := range []int{0, 1, 7, len(data) / 2, len(data) - 1} {
				got, err := drain(t, &sick{data, int64(at), own}, rows.Options{Format: rows.NDJSON, Compression: packing})
				var typed *rows.FileError
				if !errors.Is(err, want) || errors.As(err, &typed) || packing == rows.None && len(got) > at {
					t.Errorf("%q, %v at byte %d: %d rows, %v", packing, own, at, len(got), err)
				}
			}
		}
	}
}
