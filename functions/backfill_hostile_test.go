package functions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/rows"
)

// hostileDir is set in the process that reads hostile files, to where they are.
const hostileDir = "SPILLWAY_TEST_HOSTILE_FILES"

// mostResident is what a process that reads any file may take.
const mostResident = 256 << 20

// hostileCase is a file with its outcome.
type hostileCase struct {
	name string
	read backfill.Read
	make func(t *testing.T, w io.Writer) // nil: it is empty
	made objectFile                      // instead of make: nothing is written
	// What comes of it: each row in a line, or how many rows there are, and how many
	// are good; of those that are rejected, what the last says.
	lines      []string
	rows, good int
	rejected   string
	fails      string // what the *ingest.ObjectError says; empty: none comes
}

// TestBackfillHostileFiles reads files of every hostile kind as a backfill does, each
// with its outcome, in a process of its own, which has to stay small.
func TestBackfillHostileFiles(t *testing.T) {
	if dir := os.Getenv(hostileDir); dir != "" {
		readHostile(t, dir)
		return
	}
	dir := t.TempDir()
	for _, c := range hostileCases() {
		if c.made == nil {
			writeHostile(t, filepath.Join(dir, c.name), c.make)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self, "-test.run=^TestBackfillHostileFiles$", "-test.v")
	child.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GOMEMLIMIT=") || strings.HasPrefix(v, "GOGC=")
	}), hostileDir+"="+dir)
	out, err := child.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// readHostile reads the files in dir.
func readHostile(t *testing.T, dir string) {
	for _, c := range hostileCases() {
		t.Run(c.name, func(t *testing.T) {
			c.check(t, c.objects(t, filepath.Join(dir, c.name)))
			peak := ownPeak(t)
			t.Logf("%d MiB at most up to here", peak>>20)
			if peak > mostResident {
				t.Errorf("the process took %d MiB", peak>>20)
			}
		})
	}
}

// objects are the one file, on disk or made while it is read.
func (c hostileCase) objects(t *testing.T, path string) *sourceObjects {
	t.Helper()
	o, open := backfill.Object{Path: path}, openWith(nil)
	if c.made != nil {
		open = func(context.Context, backfill.Object) (objectFile, error) { return c.made, nil }
	} else {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		o.ETag, o.Size = backfill.FileETag(info), info.Size()
	}
	s, err := newSourceObjects(c.read, []backfill.Object{o}, open)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// check reads the one object of s.
func (c hostileCase) check(t *testing.T, s *sourceObjects) {
	var lines []string
	n, good, rejected := 0, 0, ""
	err := eachRow(t.Context(), s, func(row ingest.BackfillRow) {
		n++
		line := fmt.Sprintf("%d %s", row.N, clipped(row.Value))
		if row.Rejected != "" {
			rejected = row.Rejected
			line += " rejected: " + row.Rejected
		} else {
			good++
		}
		if len(lines) < 100 {
			lines = append(lines, line)
		}
	})
	var bad *ingest.ObjectError
	if c.fails == "" && err != nil || c.fails != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.fails)) {
		t.Errorf("it fails with %v", err)
	}
	if c.lines != nil {
		if d := cmp.Diff(c.lines, lines); d != "" {
			t.Error(d)
		}
		return
	}
	if n != c.rows || good != c.good || c.rejected == "" && rejected != "" || !strings.Contains(rejected, c.rejected) {
		t.Errorf("%d rows, %d of them good, and %q", n, good, rejected)
	}
}

func eachRow(ctx context.Context, s *sourceObjects, take func(ingest.BackfillRow)) error {
	r, err := s.Open(ctx, 1, 0)
	if err != nil {
		return err
	}
	for err == nil {
		var row ingest.BackfillRow
		if row, err = r.Next(ctx); err == nil {
			take(row)
		}
	}
	if closing := r.Close(); closing != nil {
		return closing
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func clipped(value []byte) string {
	const most = 200
	if len(value) > most {
		return string(value[:most/10]) + "…"
	}
	return string(value)
}

// writeHostile writes a file, with holes where it is zeros.
func writeHostile(t *testing.T, path string, content func(*testing.T, io.Writer)) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := &sparse{to: f}
	if content != nil {
		content(t, w)
	}
	if err := errors.Join(f.Truncate(w.size), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// sparse leaves holes in a file where zeros are written.
type sparse struct {
	to   *os.File
	size int64
}

func (s *sparse) Write(p []byte) (n int, err error) {
	at := s.size
	s.size += int64(len(p))
	if len(p) >= 4<<10 && len(bytes.TrimLeft(p, "\x00")) == 0 {
		return len(p), nil
	}
	return s.to.WriteAt(p, at)
}

// repeating is a file of a head, of a unit n times, and of a tail.
type repeating struct {
	head, unit string
	n          int
	tail       string
}

func (r repeating) Check(context.Context) error { return nil }
func (r repeating) Close() error                { return nil }

func (r repeating) Size() int64 { return int64(len(r.head) + len(r.unit)*r.n + len(r.tail)) }

func (r repeating) ReadAt(p []byte, off int64) (n int, err error) {
	units := len(r.unit) * r.n
	for n < len(p) {
		switch at := int(off) + n; {
		case at < len(r.head):
			n += copy(p[n:], r.head[at:])
		case at < len(r.head)+units:
			at -= len(r.head)
			n += copy(p[n:min(len(p), n+units-at)], r.unit[at%len(r.unit):])
		case int64(at) < r.Size():
			n += copy(p[n:], r.tail[at-len(r.head)-units:])
		default:
			return n, io.EOF
		}
	}
	return n, nil
}

// csvFile and the like say how a file is read.
var (
	ndjsonFile  = backfill.Read{Format: rows.NDJSON}
	csvFile     = backfill.Read{Format: rows.CSV}
	avroFile    = backfill.Read{Format: rows.Avro}
	parquetFile = backfill.Read{Format: rows.Parquet}
)

func packedAs(r backfill.Read, c rows.Compression) backfill.Read {
	r.Compression = c
	return r
}
