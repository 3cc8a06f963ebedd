package inspect

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// world is a topic in memory that a test appends to.
type world struct {
	t     *testing.T
	fs    *memfs.FS
	store *segment.Store
	*Topic
}

// newWorld makes the topic orders; sizes above 0 bytes go to blobs.
func newWorld(t *testing.T, n int) *world {
	t.Helper()
	fs := memfs.New()
	store := segment.NewStore(fs.Client("c", nil), "test")
	store.Inline = 0
	w := &world{t: t, fs: fs, store: store}
	w.create("orders", n)
	return w
}

func (w *world) create(name string, n int) {
	w.t.Helper()
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default", Roots: n}
	_, err := w.store.CreateTopic(w.t.Context(), def, n, noon)
	if err == nil {
		w.Topic, err = Open(w.t.Context(), w.store, name)
	}
	w.check(err)
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// rec is a record of 100 bytes and a bit: where it stands, its slot and its time
// in seconds after noon.
type rec struct {
	seq  uint64
	row  uint32
	slot topic.Slot
	at   int
}

// append commits records of a source in one flush, each to the live segment that
// owns its slot.
func (w *world) append(source string, recs ...rec) {
	w.t.Helper()
	l, err := w.Layout(w.t.Context())
	w.check(err)
	sets := map[topic.SegmentID]*record.Set{}
	for _, r := range recs {
		id := l.Route(r.slot)
		if sets[id] == nil {
			sets[id] = &record.Set{}
		}
		w.check(sets[id].Append(&record.Record{
			Time: noon.Add(time.Duration(r.at) * time.Second), Position: topic.Position{Sequence: r.seq, Row: r.row},
			Value: fmt.Appendf(nil, "%100d", r.seq),
		}, r.slot))
	}
	for id, set := range sets {
		s, err := w.Segment(w.t.Context(), id)
		w.check(err)
		out, err := s.Append(w.t.Context(), segment.Input{
			Source: source, Set: set,
			Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
			Holds:      func(context.Context, segment.SourcePosition) error { return nil },
		})
		w.check(err)
		if out.Taken != len(set.Recs) {
			w.t.Fatalf("%d of %d records taken", out.Taken, len(set.Recs))
		}
	}
}

func (w *world) edit(plan func(topic.Layout) (topic.Edit, error)) topic.Layout {
	w.t.Helper()
	l, err := w.Edit(w.t.Context(), noon, plan)
	w.check(err)
	return l
}

func (w *world) live(ref string) topic.Live {
	w.t.Helper()
	l, err := w.Layout(w.t.Context())
	w.check(err)
	s, err := Resolve(l, ref)
	w.check(err)
	return s
}

func splitFirst(l topic.Layout) (topic.Edit, error) { return l.SplitWays(l.Live[0].ID, 2) }

func mergeAll(l topic.Layout) (topic.Edit, error) {
	var ids []topic.SegmentID
	for _, s := range l.Live {
		ids = append(ids, s.ID)
	}
	return l.Merge(ids...)
}
