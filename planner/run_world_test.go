package planner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const orders = "orders"

// world is a topic on a fake filer with a writer that does what an ingest worker
// does to segments. Tests run it in a synctest bubble.
type world struct {
	t      *testing.T
	fs     *memfs.FS
	store  *segment.Store
	topic  *segment.Topic
	open   map[topic.SegmentID]*segment.Segment
	next   uint64 // sequence in the one lane
	random *rand.Rand
	value  []byte
	when   string // what has happened, for messages
}

// small is a policy with targets that a test can afford: 100 KB/s, 100 records/s.
func small() Policy {
	p := DefaultPolicy()
	p.TargetBytes, p.TargetRecords = 100_000, 100
	return p
}

func storeOn(fs *memfs.FS, hook memfs.Hook) *segment.Store {
	s := segment.NewStore(fs.Client("c", hook), "test")
	s.Codec = record.CodecNull
	return s
}

func newWorld(t *testing.T, roots int) *world {
	t.Helper()
	w := &world{t: t, fs: memfs.New(), random: rand.New(rand.NewPCG(1, 2)), value: make([]byte, 900)}
	w.store = storeOn(w.fs, nil)
	w.create(roots)
	return w
}

// planner returns one of its own, as another process would have.
func (w *world) planner(p Policy) *Planner {
	return New(Options{Store: w.store, Policies: Policies{Default: p}, Logger: slog.New(slog.DiscardHandler)})
}

// flush commits n records to slots that pick chooses, as one flush of the lane. The
// key of a record is its slot.
func (w *world) flush(n int, pick func() topic.Slot) {
	w.t.Helper()
	all := &record.Set{}
	for range n {
		slot := pick()
		r := record.Record{
			Time: time.Now(), Position: topic.Position{Sequence: w.next}, Value: w.value,
			Key: binary.BigEndian.AppendUint16(nil, uint16(slot)),
		}
		if err := all.Append(&r, slot); err != nil {
			w.t.Fatal(err)
		}
		w.next++
	}
	for !w.settle(all) {
		if _, err := w.topic.Finish(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// settle appends a flush to the segments that its records belong to, and tells
// whether none of them was sealed (rule 14: otherwise all of it is to be grouped
// anew).
func (w *world) settle(all *record.Set) bool {
	w.t.Helper()
	l := w.layout()
	sets := map[topic.SegmentID]*record.Set{}
	for _, r := range all.Recs {
		id := l.Route(r.Slot)
		if sets[id] == nil {
			sets[id] = &record.Set{}
		}
		if err := sets[id].Copy(all, r); err != nil {
			w.t.Fatal(err)
		}
	}
	settled := true
	for id, set := range sets {
		if w.open[id] == nil {
			var err error
			if w.open[id], err = w.topic.Segment(w.t.Context(), id); err != nil {
				w.t.Fatal(err)
			}
		}
		_, err := w.open[id].Append(w.t.Context(), segment.Input{
			Source: "lane.default.0.x", Set: set,
			Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
			Holds:      func(context.Context, segment.SourcePosition) error { return nil },
		})
		settled = settled && err == nil
		if err != nil && !errors.Is(err, segment.ErrSealed) {
			w.t.Fatal(err)
		}
	}
	return settled
}

// anywhere picks slots evenly.
func (w *world) anywhere() topic.Slot { return topic.Slot(w.random.Uint32()) }

// run flushes each second for a time, and plans each period.
func (w *world) run(p *Planner, d time.Duration, perSecond int, pick func() topic.Slot) (reports []Report) {
	w.t.Helper()
	for s := range int(d / time.Second) {
		bubble.Pass(time.Second)
		if perSecond > 0 {
			w.flush(perSecond, pick)
		}
		if s%5 == 4 {
			r, err := p.Topic(w.t.Context(), orders)
			if err != nil {
				w.t.Fatal(err)
			}
			reports = append(reports, r)
		}
	}
	return reports
}

func (w *world) layout() topic.Layout {
	w.t.Helper()
	l, err := w.topic.Layout(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// made sums up what reports did: "split 1 into 8".
func made(reports []Report) (list []string) {
	for _, r := range reports {
		for _, m := range r.Made {
			list = append(list, fmt.Sprintf("%s %d into %d", m.Kind, len(m.Segments), len(m.Cuts)+1))
		}
	}
	return list
}
