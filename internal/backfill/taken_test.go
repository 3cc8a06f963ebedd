package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

const takenDir = "/buckets/spill/topics/t/i/schedules/s/x/taken"

// takenJobs are the objects of jobs, as a ledger asks for them.
type takenJobs struct {
	jobs  [][]Object
	asked atomic.Int64
}

func (j *takenJobs) ledger(store filer.Store) *ledger {
	return &ledger{store: store, dir: takenDir, log: slog.New(slog.DiscardHandler), objects: func(_ context.Context, n uint64) ([]Object, error) {
		j.asked.Add(1)
		return j.jobs[n], nil
	}}
}

func names(fs *memfs.FS) (list []string) {
	for _, p := range fs.Paths() {
		list = append(list, path.Base(p))
	}
	return list
}

func thing(key, version, etag string) Object {
	return Object{Bucket: "in", Key: key, Version: version, ETag: etag, Size: 1}
}

// jobsOf makes n jobs of m objects each.
func jobsOf(n, m int) *takenJobs {
	j := &takenJobs{}
	for i := range n {
		var list []Object
		for k := range m {
			list = append(list, thing(fmt.Sprintf("y/%d/%d.json", k, i), "", fmt.Sprint("e", i)))
		}
		j.jobs = append(j.jobs, list)
	}
	return j
}

// check compares with all objects of the first n jobs, and with others.
func (j *takenJobs) check(t interface{ Fatalf(string, ...any) }, files []*takenFile, n int) {
	var list []Object
	for _, job := range j.jobs {
		list = append(list, job...)
	}
	for _, o := range slices.Clone(list) {
		list = append(list, thing(o.Key, o.Version, o.ETag+"'"), thing(o.Key, o.Version+"'", o.ETag), thing(o.Key+"/", o.Version, o.ETag), thing("0"+o.Key, o.Version, o.ETag))
	}
	want := map[takenEntry]bool{}
	for _, job := range j.jobs[:n] {
		for _, o := range job {
			want[entryOf(o)] = true
		}
	}
	taken, err := struck(context.Background(), files, list)
	if err != nil {
		t.Fatalf("%v", err)
	}
	for i, o := range list {
		if taken[i] != want[entryOf(o)] {
			t.Fatalf("of %d jobs: %+v is taken: %v", n, o, taken[i])
		}
	}
}

func TestLedgerMerges(t *testing.T) {
	fs := memfs.New()
	j := jobsOf(300, 2)
	l := j.ledger(fs.Client("c", nil))
	for n := range 301 {
		files, err := l.open(t.Context(), uint64(n))
		if err != nil {
			t.Fatal(err)
		}
		j.check(t, files, n)
		if most := 2*(takenFanout-1) + 1; len(files) > most || len(fs.Paths()) != len(files) {
			t.Fatalf("%d files of %d jobs are there, %d needed", len(fs.Paths()), n, len(files))
		}
	}
	if j.asked.Load() != 300 {
		t.Errorf("jobs were read %d times", j.asked.Load())
	}
	got := names(fs)
	if len(got) != 1+2+12 || got[0] != "000000000000-000000000256" || got[2] != "000000000272-000000000288" || got[14] != "000000000299-000000000300" {
		t.Errorf("files: %q", got)
	}
	if fs.Blobs() > 0 || len(fs.Problems()) > 0 {
		t.Error(fs.Blobs(), fs.Problems())
	}
}

// TestLedgerIsMadeAgain: whatever is missing or damaged follows from the jobs.
func TestLedgerIsMadeAgain(t *testing.T) {
	for name, harm := range map[string]func(*memfs.FS, filer.Store, string) error{
		"gone":         func(_ *memfs.FS, c filer.Store, p string) error { return c.Delete(context.Background(), p, "") },
		"damaged":      func(fs *memfs.FS, _ filer.Store, p string) error { return fs.Corrupt(p) },
		"without data": func(fs *memfs.FS, _ filer.Store, p string) error { _ = fs.LoseBlobs(p); return nil },
		"another file": func(_ *memfs.FS, c filer.Store, p string) error {
			_ = c.Delete(context.Background(), p, "")
			return c.Create(context.Background(), p, filer.File{ID: "1", Content: []byte(strings.Repeat("x", 100))})
		},
		"empty": func(_ *memfs.FS, c filer.Store, p string) error {
			_ = c.Delete(context.Background(), p, "")
			return c.Create(context.Background(), p, filer.File{ID: "1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memfs.New()
			c := fs.Client("c", nil)
			j := jobsOf(35, 3000)
			if _, err := j.ledger(c).open(t.Context(), 35); err != nil {
				t.Fatal(err)
			}
			before := names(fs)
			for _, p := range fs.Paths()[:2] {
				if err := harm(fs, c, p); err != nil {
					t.Fatal(err)
				}
				err := errMerged
				for tries := 0; errors.Is(err, errMerged) && tries < 5; tries++ { // as Tick does
					var files []*takenFile
					if files, err = j.ledger(c).open(t.Context(), 35); err == nil {
						_, err = struck(t.Context(), files, j.jobs[0])
					}
					err = j.ledger(c).heal(t.Context(), err)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(names(fs), before) {
				t.Errorf("files: %q, before %q", names(fs), before)
			}
		})
	}
}

// TestLedgerKilled: killed after any call, the next one finishes.
func TestLedgerKilled(t *testing.T) {
	j := jobsOf(17, 2)
	for i := range 8000 { // so many that they are in a blob
		j.jobs[3] = append(j.jobs[3], thing(fmt.Sprint("z/", i), "", fmt.Sprint(i)))
	}
	all := slices.Concat(j.jobs...)
	for i := 0; ; i++ {
		fs := memfs.New()
		ctx, kill := context.WithCancel(t.Context())
		c := &crash{n: i/2 + 1, lost: i%2 == 1, kill: kill}
		_, err := j.ledger(fs.Client("c", c.hook)).open(ctx, 17)
		kill()
		files, again := j.ledger(fs.Client("d", nil)).open(t.Context(), 17)
		if again != nil {
			t.Fatal(again)
		}
		if taken, err := struck(t.Context(), files, all); err != nil || slices.Contains(taken, false) {
			t.Fatal("an object that was taken is not in the ledger, or ", err)
		}
		if got := names(fs); !slices.Equal(got, []string{"000000000000-000000000016", "000000000016-000000000017"}) {
			t.Fatalf("killed at call %d: %q", c.n, got)
		}
		if p := fs.Problems(); len(p) > 0 {
			t.Fatal(p)
		}
		if err == nil {
			return
		}
	}
}

func listed(list []Object) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for _, o := range list {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// TestFreshInAnyOrder: SeaweedFS lists folder by folder, which is not the order of
// keys. The order makes no difference, and is kept.
func TestFreshInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []Object {
			keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "a/b", "a-b", "a.b", "a/b/c", "ä", "b", "\u2028", "b/"}), 0, 12).Draw(t, name)
			var list []Object
			for i, k := range keys {
				list = append(list, thing(k, fmt.Sprint(rapid.IntRange(0, 1).Draw(t, "v")), fmt.Sprint(i%3)))
			}
			return list
		}
		j := &takenJobs{}
		for range rapid.IntRange(0, 40).Draw(t, "jobs") {
			j.jobs = append(j.jobs, draw("job"))
		}
		files, err := j.ledger(memfs.New().Client("c", nil)).open(context.Background(), uint64(len(j.jobs)))
		if err != nil {
			t.Fatal(err)
		}
		taken := map[takenEntry]bool{}
		for _, job := range j.jobs {
			for _, o := range job {
				taken[entryOf(o)] = true
			}
		}
		listing := draw("listing")
		want := slices.DeleteFunc(slices.Clone(listing), func(o Object) bool { return taken[entryOf(o)] })
		var got []Object
		err = fresh(context.Background(), files, listed(listing), func(o Object) bool { got = append(got, o); return true })
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v, error %v", got, want, err)
		}
	})
}

// TestLedgerReadsWhatItNeeds: of a large file only the blocks that keys can be in.
func TestLedgerReadsWhatItNeeds(t *testing.T) {
	fs := memfs.New()
	j := &takenJobs{jobs: [][]Object{nil}}
	for i := range 120_000 {
		j.jobs[0] = append(j.jobs[0], thing(fmt.Sprintf("%s/%07d.json", strings.Repeat("long", 30), i), "", fmt.Sprint(rand.Uint64())))
	}
	opens := 0
	c := fs.Client("c", func(op memfs.Op) memfs.Fault {
		if op.Name == "Open" {
			opens++
		}
		return memfs.Fault{}
	})
	files, err := j.ledger(c).open(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(files[0].blocks); n < 10 || files[0].count != 120_000 {
		t.Fatalf("%d blocks of %d entries", n, files[0].count)
	}
	for _, c := range []struct {
		list []Object
		want int
	}{{nil, 0}, {j.jobs[0][77_777:77_778], 1}, {[]Object{thing("zzz", "", "")}, 1}, {[]Object{thing("a", "", "")}, 0}} {
		opens = 0
		taken, err := struck(t.Context(), files, c.list)
		if err != nil || opens != c.want || len(c.list) > 0 && taken[0] != (len(c.list[0].Key) > 3) {
			t.Errorf("%v: %v after %d reads, error %v", c.list, taken, opens, err)
		}
	}
}

func TestParseSpan(t *testing.T) {
	for name, want := range map[string]bool{
		"000000000000-000000000001": true, "000000000016-000000000032": true, "000000000256-000000000512": true,
		"000000000001-000000000017": false, "000000000000-000000000002": false, "000000000016-000000000015": false,
		"0-1": false, "": false, "x": false, "000000000000-000000000001.json": false, "000000000000-000000000000": false,
		"99999999999999999999-999999999999999999999": false, "-00000000001-000000000001": false,
	} {
		if s, ok := parseSpan(name); ok != want {
			t.Errorf("%q: %v %v", name, s, ok)
		}
	}
}

// FuzzTakenFile: whatever a ledger file holds, it is read or refused.
func FuzzTakenFile(f *testing.F) {
	fs := memfs.New()
	j := jobsOf(1, 5)
	if _, err := j.ledger(fs.Client("c", nil)).open(f.Context(), 1); err != nil {
		f.Fatal(err)
	}
	e, err := fs.Client("c", nil).Lookup(f.Context(), fs.Paths()[0])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(e.Content)
	f.Add([]byte("SpwlTkn1"))
	f.Add(footerOf(1<<40, 0, nil))
	f.Add(append(blockEncoder.EncodeAll([]byte("\x01a\x00\x01"), nil), footerOf(1, 0, blockEncoder.EncodeAll([]byte("\x01a\x00\x01"), nil))...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > filer.MaxInline {
			return
		}
		c := memfs.New().Client("c", nil)
		if err := c.Create(t.Context(), takenDir+"/f", filer.File{ID: "1", Content: data}); err != nil {
			t.Fatal(err)
		}
		file, err := openTaken(t.Context(), c, takenDir+"/f")
		if err == nil {
			_, err = struck(t.Context(), []*takenFile{file}, j.jobs[0])
		}
		if err != nil && !errors.Is(err, filer.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
