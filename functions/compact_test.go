package functions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/work"
)

// catalogue gives a bench a catalog, with faults.
func (b *bench) catalogue(hook tabletest.Hook) *tabletest.Server {
	s := tabletest.NewServer(b.Store.Filer, "warehouse")
	b.Tables = table.New(table.Options{Catalog: s.Client(hook), Store: b.Store.Filer, Bucket: "bench", Logger: b.Logger})
	return s
}

// rolled makes a topic of one segment with 400 records, which is sealed.
func (b *bench) rolled(t *testing.T, name string) *segment.Topic {
	t.Helper()
	top := b.aged(t, name, 1)
	b.surge(t, top)
	b.roll(t, top)
	return top
}

func (b *bench) roll(t *testing.T, top *segment.Topic) {
	t.Helper()
	_, err := top.Edit(t.Context(), time.Now(), func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) })
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) compactOnce(t *testing.T, o CompactOptions) (CompactSummary, error) {
	t.Helper()
	b.fresh()
	o.Once = true
	return Compact(t.Context(), b.Deps, o)
}

// asked puts a token for a topic to be compacted.
func (b *bench) asked(t *testing.T, name string) {
	t.Helper()
	if err := (&nudger{d: b.Deps, kind: work.Compact}).Nudge(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// called lists the topics whose tokens wait for a compactor.
func (b *bench) called(t *testing.T) []string {
	t.Helper()
	s, err := b.js.Stream(t.Context(), work.Stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(work.Filter(work.Compact, 1)))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for subject := range info.State.Subjects {
		names = append(names, strings.TrimPrefix(subject, work.Subject(work.Compact)+"."))
	}
	return names
}

// state is how far the topic's first segment is.
func (b *bench) state(t *testing.T, name string) compactor.Candidate {
	t.Helper()
	d := b.Deps
	d.Metrics = nil
	list, err := NewCompactor(d, CompactOptions{}).Plan(t.Context(), name)
	if err != nil || len(list) == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	return list[0]
}

// TestCompactOnce: what is sealed gets its files, comes into the table, and loses its
// chunks when its grace is over; what the topic holds stays the same.
func TestCompactOnce(t *testing.T) {
	t.Parallel()
	for _, catalog := range []bool{false, true} {
		t.Run(fmt.Sprintf("catalog %t", catalog), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 0)
			want := 0
			if catalog {
				b.catalogue(nil)
				want = 1
			}
			b.rolled(t, "t")
			before := b.read(t, "t")
			sum, err := b.compactOnce(t, CompactOptions{})
			if err != nil || sum.Compacted != 1 || sum.Committed != want || sum.Trimmed != 0 || sum.Waiting != 1 || sum.Records != 400 || sum.Next.IsZero() {
				t.Fatalf("%+v, %v", sum, err)
			}
			sum, err = b.compactOnce(t, CompactOptions{Grace: -1})
			if err != nil || sum.Compacted != 0 || sum.Committed != 0 || sum.Trimmed != 1 || sum.Waiting != 0 {
				t.Fatalf("after the grace time: %+v, %v", sum, err)
			}
			if s := b.state(t, "t"); s.State != compactor.Trimmed || s.Do != compactor.Nothing {
				t.Errorf("%+v", s)
			}
			after := b.read(t, "t")
			if len(after) != len(before) {
				t.Fatalf("%d records, before %d", len(after), len(before))
			}
			for i := range before {
				if string(after[i].Value) != string(before[i].Value) || after[i].Offset != before[i].Offset || after[i].Segment != before[i].Segment {
					t.Fatalf("record %d is %+v, before %+v", i, after[i], before[i])
				}
			}
		})
	}
}

// TestCompactTokens: a topic that is asked for is compacted; its token stays while
// something waits, and goes when nothing does, or when there is no such topic.
func TestCompactTokens(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.catalogue(nil)
	b.rolled(t, "t")
	b.asked(t, "t")
	b.asked(t, "gone")
	b.asked(t, "-")
	sum, err := b.compactOnce(t, CompactOptions{})
	if err != nil || sum.Tokens != 3 || sum.Compacted != 1 || sum.Committed != 1 || sum.Topics != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if left := b.called(t); len(left) != 1 || left[0] != "t" {
		t.Errorf("tokens of %q are left, want that of the topic whose grace is not over", left)
	}
	b.asked(t, "t") // in its place
	if sum, err = b.compactOnce(t, CompactOptions{Grace: -1}); err != nil || sum.Tokens != 1 || sum.Trimmed != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if left := b.called(t); len(left) != 0 {
		t.Errorf("tokens of %q are left for nothing", left)
	}
}

// TestCompactResident: a token is taken up between two sweeps, and told to stop it ends
// without an error.
func TestCompactResident(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.catalogue(nil)
	top := b.aged(t, "t", 1)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Compact(ctx, b.Deps, CompactOptions{Period: time.Hour})
		done <- err
	}()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	until(t, "the first sweep is done", func() bool { return b.compacted(t, "sweep_seconds") > 0 })
	b.surge(t, top)
	b.roll(t, top)
	b.asked(t, "t")
	until(t, "the segment is in the table", func() bool { return b.state(t, "t").State == compactor.InTable })
}

// compacted is the value of a counter of the compactor, or the count of a histogram.
func (b *bench) compacted(t *testing.T, name string) float64 {
	t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_compactor_"+name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return 0
}

// TestCompactOutcomes: what goes wrong has its exit code, and does not keep from being
// done what can be.
func TestCompactOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		setup func(*testing.T, *bench)
		o     CompactOptions
		code  int
		check func(CompactSummary) bool
	}{
		{
			"the catalog is away", func(_ *testing.T, b *bench) {
				b.catalogue(func(tabletest.Op) tabletest.Fault { return tabletest.Fault{Before: tabletest.ErrDown} })
			}, CompactOptions{Grace: -1}, ExitRetry,
			func(s CompactSummary) bool {
				return s.Compacted == 1 && s.Committed == 0 && s.Trimmed == 0 && s.Silent > 0
			},
		},
		{
			"the catalog refuses", func(_ *testing.T, b *bench) {
				b.catalogue(func(tabletest.Op) tabletest.Fault { return tabletest.Fault{Before: tabletest.ErrForbidden} })
			}, CompactOptions{Grace: -1}, ExitConfig,
			func(s CompactSummary) bool {
				return s.Compacted == 1 && s.Committed == 0 && s.Trimmed == 0 && s.Failed > 0
			},
		},
		{
			"the table is another topic's", func(t *testing.T, b *bench) {
				b.catalogue(nil)
				if _, err := b.Tables.Open(t.Context(), table.Topic{Name: "t", Incarnation: "before"}); err != nil {
					t.Fatal(err)
				}
			}, CompactOptions{Grace: -1}, ExitConfig,
			func(s CompactSummary) bool {
				return s.Compacted == 1 && s.Committed == 0 && s.Trimmed == 0 && s.Failed > 0
			},
		},
		{
			"an answer is lost", func(_ *testing.T, b *bench) {
				lost := false
				b.catalogue(func(op tabletest.Op) (f tabletest.Fault) {
					if op.Name == "CommitTable" && !lost {
						lost, f.After = true, tabletest.ErrLost
					}
					return f
				})
			}, CompactOptions{}, ExitDone,
			func(s CompactSummary) bool { return s.Compacted == 1 && s.Committed == 1 },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 0)
			b.rolled(t, "t")
			c.setup(t, b)
			sum, err := b.compactOnce(t, c.o)
			if ExitCode(err) != c.code || !c.check(sum) {
				t.Errorf("exit code %d, want %d: %+v, %v", ExitCode(err), c.code, sum, err)
			}
		})
	}
}

// TestCompactWithoutNATS: the sweep is done, and that the queue is away is told.
func TestCompactWithoutNATS(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.rolled(t, "t")
	b.NATS.Close()
	sum, err := b.compactOnce(t, CompactOptions{})
	if ExitCode(err) != ExitRetry || sum.Compacted != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// TestCatalogOutcome: who can do something about errors of tables.
func TestCatalogOutcome(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, ExitDone},
		{&table.ConfigError{Err: errors.New("x")}, ExitConfig},
		{&table.ForeignError{}, ExitConfig},
		{&table.SchemaError{}, ExitConfig},
		{&table.UnavailableError{Err: errors.New("x")}, ExitRetry},
		{&table.ConflictError{Err: errors.New("x")}, ExitRetry},
		{&UsageError{&table.ConfigError{Err: errors.New("x")}}, ExitUsage},
		{errors.New("x"), ExitBug},
		{&compactor.SweepError{Faults: []error{&table.UnavailableError{Err: errors.New("x")}, fmt.Errorf("t: %w", &table.ForeignError{})}}, ExitConfig},
	} {
		if got := ExitCode(CatalogOutcome(c.err)); got != c.code {
			t.Errorf("%T: exit code %d, want %d", c.err, got, c.code)
		}
	}
}

// A sweep looks only at topics that are not at rest: if the one that has a lasting fault is
// the only one, nothing is wrong with the process.
func TestCompactHealth(t *testing.T) {
	now := time.Now()
	h := ingest.NewHealth(func() time.Time { return now })
	n := &compacted{deps: Deps{Health: h}}
	for range 100 {
		n.health(compactor.Summary{Failed: 1}, errors.New("table spillway.orders belongs to topic orders in an earlier life"))
		now = now.Add(time.Minute)
	}
	if err := h.Err(); err != nil {
		t.Error(err)
	}
}
