package rows_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/rows"
)

const (
	gib = 1 << 30
	// mostMemory is what reading any file may take, of the 256 MiB that a process has.
	mostMemory = 160 << 20
)

// made is a file that consists of a head and then a unit, over and over.
type made struct {
	head, unit []byte
	size       int64
}

func newMade(head, unit string, size int64) *made {
	n := int64(len(head)) + (size-int64(len(head)))/int64(len(unit))*int64(len(unit))
	long := strings.Repeat(unit, 1+(256<<10)/len(unit))
	return &made{head: []byte(head), unit: []byte(long), size: n}
}

func (m *made) Size() int64 { return m.size }

func (m *made) ReadAt(p []byte, at int64) (int, error) {
	p = p[:min(int64(len(p)), m.size-at)]
	n := 0
	if at < int64(len(m.head)) {
		n = copy(p, m.head[at:])
	}
	for n < len(p) {
		n += copy(p[n:], m.unit[(at+int64(n)-int64(len(m.head)))%int64(len(m.unit)):])
	}
	return n, nil
}

// Files of 1 GiB, unpacked, take little memory, whatever is in them.
func TestMemory(t *testing.T) {
	names := rows.CSVOptions{Names: []string{"a", "b"}, NoHeader: true}
	csv := rows.Options{Format: rows.CSV, CSV: names}
	ndjson := rows.Options{Format: rows.NDJSON}
	packed := func(o rows.Options, c rows.Compression) rows.Options { o.Compression = c; return o }
	object := `{"id":123456,"text":"` + strings.Repeat("some text ", 90) + "\"}\n"
	row := `"` + strings.Repeat(`some ""text"", `, 60) + "\",2\n"
	control := `"` + strings.Repeat("\x01", 7<<20) + "\",2\n"
	for name, c := range map[string]struct {
		file *made
		o    rows.Options
		rows int64
		good int64
	}{
		"NDJSON":                   {newMade("", object, gib), ndjson, gib / int64(len(object)), gib / int64(len(object))},
		"one line":                 {newMade("\n{\"", "x", gib), ndjson, 1, 0},
		"zeros":                    {newMade("", "\x00", gib), ndjson, 1, 0},
		"blank":                    {newMade("", " ", gib), ndjson, 0, 0},
		"arrays in arrays":         {newMade("", "[", gib), ndjson, 1, 0},
		"lines just too long":      {newMade("", strings.Repeat("x", 8<<20)+"x\n", gib), ndjson, 127, 0},
		"CSV":                      {newMade("", row, gib/4), csv, gib / 4 / int64(len(row)), gib / 4 / int64(len(row))},
		"commas":                   {newMade("", ",", gib), csv, 1, 0},
		"a quote that never ends":  {newMade(`x,"`+strings.Repeat("y", 1020), "\n"+strings.Repeat("y", 1023), gib), csv, gib / 1024, 0},
		"a quote on each line":     {newMade("", strings.Repeat("y", 500)+",\"z\n", gib/4), csv, gib / 4 / 504, 0},
		"much larger as JSON":      {newMade("", control, gib/4), csv, gib / 4 / int64(len(control)), 0},
		"rows of 12 MiB in quotes": {newMade("", `"`+strings.Repeat("1234567\n", (12<<20)/8-1)+"\",2\n", gib/4), csv, 21, 0},
		"a gzip bomb":              {packedFile(t, rows.Gzip, "x", gib), packed(ndjson, rows.Gzip), 1, 0},
		"zstd, a window of 64 MiB": {packedFile(t, rows.Zstd, `"`+strings.Repeat("1234567\n", (12<<20)/8-1)+"\",2\n", gib/2), packed(csv, rows.Zstd), 44, 0},
		"zstd bomb":                {packedFile(t, rows.Zstd, "x", gib), packed(ndjson, rows.Zstd), 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var n, good int64
			used := memoryOf(t, func() { n, good = count(t, c.file, c.o) })
			if n != c.rows || good != c.good {
				t.Errorf("%d rows, %d of them good", n, good)
			}
			if used > mostMemory {
				t.Errorf("%d MiB of memory", used>>20)
			}
		})
	}
}

// memoryOf is the most memory that was in use while f ran, beyond what was before.
func memoryOf(t *testing.T, f func()) int64 {
	t.Helper()
	debug.FreeOSMemory() // collects garbage too
	inUse := func() int64 {
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapInuse + stats.StackInuse)
	}
	before, most, done := inUse(), int64(0), make(chan struct{})
	var sampler errgroup.Group
	sampler.Go(func() error {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			most = max(most, inUse())
			select {
			case <-done:
				return nil
			case <-tick.C:
			}
		}
	})
	f()
	close(done)
	if err := sampler.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB", (most-before)>>20)
	return most - before
}

func count(t testing.TB, f rows.File, o rows.Options) (n, good int64) {
	r, err := rows.Open(f, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return n, good
		}
		if err != nil {
			t.Fatal(err)
		}
		if n++; row.Rejected == "" {
			good++
		}
		if len(row.Value) > rows.DefaultMaxRow {
			t.Fatalf("row %d has %d bytes", row.N, len(row.Value))
		}
	}
}

// packedFile packs about that many bytes of a unit, as members or frames of 128 MiB.
func packedFile(t *testing.T, c rows.Compression, unit string, size int) *made {
	var b bytes.Buffer
	var w io.WriteCloser
	var err error
	if c == rows.Gzip {
		w, err = gzip.NewWriterLevel(&b, gzip.BestSpeed)
	} else {
		w, err = zstd.NewWriter(&b, zstd.WithWindowSize(64<<20), zstd.WithEncoderConcurrency(1))
	}
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Repeat(unit, max(1, (1<<20)/len(unit)))
	for n := 0; n < 128<<20; n += len(part) {
		if _, err := io.WriteString(w, part); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := strings.Repeat(b.String(), size/(128<<20))
	return &made{unit: []byte(whole), size: int64(len(whole))}
}
