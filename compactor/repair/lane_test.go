package repair_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/compactor/repair"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// lived is a world whose topic has been split and merged while it was written to.
func lived(t *testing.T, def topic.Definition, inline int) *world {
	t.Helper()
	w := newWorld(t, def, inline)
	w.send(40)
	w.batch(1, 30)
	w.ingest()
	w.send(20)
	w.batch(2, 50)
	w.ingest()
	w.edit(func(l topic.Layout) (topic.Edit, error) { return l.Split(l.Live[0].ID, 9000) })
	w.send(30)
	w.batch(3, 20)
	w.ingest()
	w.edit(func(l topic.Layout) (topic.Edit, error) { return l.Merge(l.Live[1].ID, l.Live[2].ID) })
	w.send(30)
	w.ingest()
	return w
}

// TestEveryChunk: each chunk of a topic is damaged, in one way or the other, and comes
// back as it was.
func TestEveryChunk(t *testing.T) {
	for name, c := range map[string]struct {
		key    topic.Key
		inline int
	}{
		"keys of headers, blobs":  {topic.KeyHeader, 0},
		"keys of headers, inline": {topic.KeyHeader, 64 << 10},
		"keys of values":          {"json:/text", 0},
		"no keys":                 {topic.KeyNone, 0},
		"keys of values, refused": {"json:/n/deep", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lived(t, topic.Definition{Key: c.key}, c.inline)
			w.sound()
			chunks := 0
			for _, s := range w.segments() {
				for i, c := range w.chunks(s) {
					chunks++
					w.mendOne(s, c, i%2 == 1 && len(c.Entry.Blobs) > 0)
				}
			}
			if chunks < 8 {
				t.Errorf("%d chunks only", chunks)
			}
			w.sound()
		})
	}
}

// mendOne damages a chunk and has it mended.
func (w *world) mendOne(s *segment.Segment, c segment.Chunk, lose bool) {
	w.Helper()
	before, data := w.state(c.Entry.Path)
	damage := w.fs.Corrupt
	if lose {
		damage = w.fs.LoseBlobs
	}
	if err := damage(c.Entry.Path); err != nil {
		w.Fatal(err)
	}
	if r := w.verify(); r.OK {
		w.Fatal("the damage is not seen")
	}
	for _, dry := range []bool{true, false} {
		report, err := w.repairer(w.store).FromLane(w.Context(), "orders", s.ID, dry)
		if err != nil {
			w.Fatal(err)
		}
		want := map[bool]repair.Outcome{true: repair.Mendable, false: repair.Mended}[dry]
		if len(report.Damaged) != 1 || report.Damaged[0].Outcome != want || report.Damaged[0].First != c.Base || report.Lost() != 0 {
			w.Fatalf("%s: %+v", c.Entry.Path, report)
		}
	}
	after, mended := w.state(c.Entry.Path)
	if !bytes.Equal(mended, data) || after.ID != before.ID || !maps.Equal(after.Attrs, before.Attrs) || !after.MTime.Equal(before.MTime) {
		w.Fatalf("%s: %d bytes of %d, or its entry changed: %v, was %v", c.Entry.Path, len(mended), len(data), after, before)
	}
	if report, err := w.repairer(w.store).FromLane(w.Context(), "orders", s.ID, false); err != nil || len(report.Damaged) != 0 {
		w.Fatalf("again: %+v, %v", report, err)
	}
}

// TestSeveralChunks of one segment are mended in one call.
func TestSeveralChunks(t *testing.T) {
	w := lived(t, topic.Definition{Key: topic.KeyHeader}, 0)
	s := w.segments()[1]
	chunks := w.chunks(s)
	for _, c := range chunks {
		if err := w.fs.Corrupt(c.Entry.Path); err != nil {
			t.Fatal(err)
		}
	}
	report, err := w.repairer(w.store).FromLane(t.Context(), "orders", s.ID, false)
	if err != nil || len(report.Damaged) != len(chunks) || len(chunks) < 2 || report.Lost() > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	w.sound()
}

// TestCannotBeMended: what the lane does not hold any more is told, and nothing changes.
func TestCannotBeMended(t *testing.T) {
	for name, c := range map[string]struct {
		with func(w *world)
		want string
	}{
		"the lane is trimmed": {func(w *world) {
			if err := w.lane.Trim(w.Context(), 30); err != nil {
				w.Fatal(err)
			}
		}, "its lane still holds"},
		"the lane is gone": {func(w *world) {
			if err := w.js.DeleteStream(w.Context(), laneID.Stream()); err != nil {
				w.Fatal(err)
			}
		}, "the lane does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			w := lived(t, topic.Definition{Key: topic.KeyHeader}, 0)
			s := w.segments()[0]
			chunk := w.chunks(s)[0]
			if err := w.fs.Corrupt(chunk.Entry.Path); err != nil {
				t.Fatal(err)
			}
			c.with(w)
			before, data := w.state(chunk.Entry.Path)
			report, err := w.repairer(w.store).FromLane(t.Context(), "orders", s.ID, false)
			if err != nil || report.Lost() != 1 || !strings.Contains(report.Damaged[0].Why, c.want) {
				t.Errorf("%+v, %v", report, err)
			}
			after, same := w.state(chunk.Entry.Path)
			if !bytes.Equal(data, same) || len(after.Blobs) != len(before.Blobs) || after.Blobs[0].ID != before.Blobs[0].ID {
				t.Error("the chunk was changed")
			}
		})
	}
}

// TestRefusedReference: a reference that was refused for what its object was cannot be
// told from the lane.
func TestRefusedReference(t *testing.T) {
	def := topic.Definition{Key: topic.KeyHeader}
	def.AllowOnly("others")
	w := newWorld(t, def, 0)
	w.batchOf(record.Record{Key: []byte("k"), Ref: &record.Ref{URL: "s3://bucket/key", Size: 3}})
	w.send(3)
	w.ingest()
	for _, s := range w.segments() {
		for _, c := range w.chunks(s) {
			if err := w.fs.Corrupt(c.Entry.Path); err != nil {
				t.Fatal(err)
			}
		}
		report, err := w.repairer(w.store).FromLane(t.Context(), "orders", s.ID, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range report.Damaged {
			switch {
			case d.Outcome == repair.Mended:
			case !strings.Contains(d.Why, "1 of its references were refused"):
				t.Errorf("%+v", d)
			default:
				return
			}
		}
	}
	t.Error("no chunk has a refused reference")
}

// batchOf publishes one record as a batch.
func (w *world) batchOf(r record.Record) {
	w.Helper()
	row, err := record.AppendMessage(nil, &r)
	if err != nil {
		w.Fatal(err)
	}
	data, err := record.EncodeBatch(nil, record.CodecNull, 1, row)
	if err != nil {
		w.Fatal(err)
	}
	w.publish("orders", nats.Header{lane.HeaderBatch: {"1"}, lane.HeaderCodec: {record.CodecNull}, lane.HeaderProducer: {"p9"}, lane.HeaderSequence: {"1"}}, string(data))
}

// TestWrongMessages: a lane that shows other messages mends nothing.
func TestWrongMessages(t *testing.T) {
	w := lived(t, topic.Definition{Key: topic.KeyHeader}, 0)
	s := w.segments()[0]
	if err := w.fs.Corrupt(w.chunks(s)[0].Entry.Path); err != nil {
		t.Fatal(err)
	}
	r := w.repairer(w.store)
	real := r.Lane
	r.Lane = func(ctx context.Context, source string, t topic.Definition, to uint64) iter.Seq2[*record.Set, error] {
		return func(yield func(*record.Set, error) bool) {
			for set, err := range real(ctx, source, t, to) {
				if err == nil {
					set.Data[len(set.Data)-1] ^= 1
				}
				if !yield(set, err) {
					return
				}
			}
		}
	}
	report, err := r.FromLane(t.Context(), "orders", s.ID, false)
	if err != nil || report.Lost() != 1 || !strings.Contains(report.Damaged[0].Why, "other bytes") {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestTwoOperators mend the same chunks at once, on a filer that loses replies and
// delays requests.
func TestTwoOperators(t *testing.T) {
	w := lived(t, topic.Definition{Key: topic.KeyHeader}, 0)
	s := w.segments()[1]
	for round := range 6 {
		for _, c := range w.chunks(s) {
			if err := w.fs.Corrupt(c.Entry.Path); err != nil {
				t.Fatal(err)
			}
		}
		var calls atomic.Int64
		hook := func(op memfs.Op) memfs.Fault {
			n := calls.Add(1)
			switch {
			case op.Name == "Update" && n%3 == 0:
				return memfs.Fault{After: memfs.ErrLost}
			case op.Name == "Update" && n%5 == int64(round%5):
				return memfs.Fault{Before: memfs.ErrLost}
			}
			return memfs.Fault{}
		}
		var both errgroup.Group
		for i := range 2 {
			store := *w.store
			store.Filer = w.fs.Client(fmt.Sprint("operator", i), hook)
			both.Go(func() error {
				_, err := w.repairer(&store).FromLane(t.Context(), "orders", s.ID, false)
				return err
			})
		}
		if err := both.Wait(); err != nil {
			t.Fatal(err)
		}
		if report, err := w.repairer(w.store).FromLane(t.Context(), "orders", s.ID, true); err != nil || len(report.Damaged) > 0 {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	w.sound()
}

// TestCrash: a repair ends after each of its calls, and another one finishes.
func TestCrash(t *testing.T) {
	w := lived(t, topic.Definition{Key: topic.KeyHeader}, 0)
	s := w.segments()[0]
	path := w.chunks(s)[0].Entry.Path
	for n := 0; ; n++ {
		if err := w.fs.Corrupt(path); err != nil {
			t.Fatal(err)
		}
		ctx, kill := context.WithCancel(t.Context())
		var calls atomic.Int64
		store := *w.store
		store.Filer = w.fs.Client("crashing", func(memfs.Op) memfs.Fault {
			if calls.Add(1) <= int64(n) {
				return memfs.Fault{}
			}
			kill()
			return memfs.Fault{Before: errors.New("crashed")}
		})
		_, err := w.repairer(&store).FromLane(ctx, "orders", s.ID, false)
		kill()
		if err == nil {
			break
		}
		report, err := w.repairer(w.store).FromLane(t.Context(), "orders", s.ID, false)
		if err != nil || report.Lost() > 0 {
			t.Fatalf("after call %d: %+v, %v", n, report, err)
		}
	}
	w.sound()
}

// TestSilentFiler: a filer that does not answer makes no chunk damaged.
func TestSilentFiler(t *testing.T) {
	w := lived(t, topic.Definition{Key: topic.KeyHeader}, 0)
	var silent atomic.Bool
	store := *w.store
	store.Filer = w.fs.Client("silent", func(op memfs.Op) memfs.Fault {
		if op.Name == "Open" {
			silent.Store(true)
		}
		if silent.Load() {
			return memfs.Fault{Before: errors.New("no answer")}
		}
		return memfs.Fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r := w.repairer(&store)
	r.ReadLimit = 100 * time.Millisecond
	if report, err := r.FromLane(ctx, "orders", w.segments()[0].ID, false); err == nil {
		t.Errorf("%+v", report)
	}
}
