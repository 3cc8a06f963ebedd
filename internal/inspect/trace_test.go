package inspect

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// places tells "row@segment:offset" of each.
func places(list []Place) (texts []string) {
	for _, p := range list {
		texts = append(texts, fmt.Sprintf("%s@%s:%d", p.Position, Short(p.Segment), p.Offset))
	}
	return texts
}

// TestFind: rows of messages are found along a lineage, in whatever segment and
// chunk they are, and beside other sources.
func TestFind(t *testing.T) {
	w := newWorld(t, 2)
	const left, right = 100, 40000
	for seq := uint64(1); seq <= 9; seq++ {
		w.append("lane", rec{seq, 0, left, int(seq)}, rec{seq, 1, right, int(seq)}, rec{seq, 2, left, int(seq)})
		w.append("other", rec{seq, 0, left, int(seq)}, rec{seq, 1, left, int(seq)})
	}
	w.edit(mergeAll)
	w.append("lane", rec{10, 0, left, 10}, rec{10, 1, right, 10})
	w.append("other", rec{10, 0, left, 10})
	w.append("lane", rec{10, 2, left, 11}, rec{11, 0, left, 11})
	w.edit(splitFirst)
	w.append("lane", rec{12, 0, right, 12}, rec{13, 0, left, 13}, rec{13, 1, right, 13})
	for _, c := range []struct {
		source string
		rows   Rows
		want   []string
	}{
		{"lane", AllRows(1), []string{"1:0@0-0:0", "1:1@0-1:0", "1:2@0-0:1"}},
		{"lane", AllRows(9), []string{"9:0@0-0:32", "9:1@0-1:8", "9:2@0-0:33"}},
		{"lane", AllRows(10), []string{"10:0@2-0:0", "10:1@2-0:1", "10:2@2-0:3"}},
		{"lane", AllRows(11), []string{"11:0@2-0:4"}},
		{"lane", AllRows(12), []string{"12:0@4-1:0"}},
		{"lane", AllRows(13), []string{"13:0@4-0:0", "13:1@4-1:1"}},
		{"lane", AllRows(14), nil},
		{"other", AllRows(5), []string{"5:0@0-0:18", "5:1@0-0:19"}},
		{"other", AllRows(10), []string{"10:0@2-0:2"}},
		{"nobody", AllRows(1), nil},
		{"lane", OneRow(topic.Position{Sequence: 9, Row: 2}), []string{"9:2@0-0:33"}},
		{"lane", OneRow(topic.Position{Sequence: 10, Row: 2}), []string{"10:2@2-0:3"}},
		{"lane", OneRow(topic.Position{Sequence: 10, Row: 3}), nil},
		{"other", OneRow(topic.Position{Sequence: 1, Row: 1}), []string{"1:1@0-0:3"}},
	} {
		f, err := w.Find(t.Context(), c.source, c.rows)
		if err != nil || !slices.Equal(places(f.Places), c.want) || f.Trimmed != nil {
			t.Errorf("%s %+v: %v %v, %v; want %v", c.source, c.rows, places(f.Places), f.Trimmed, err, c.want)
		}
	}
}

// TestFindsEveryRecord holds Find against reading everything, with chunks of
// several messages, and after a trim.
func TestFindsEveryRecord(t *testing.T) {
	w := newWorld(t, 1)
	seq := uint64(0)
	for i := range 20 {
		var recs []rec
		for range i%4 + 1 {
			seq++
			for row := range uint32(seq%3 + 1) {
				recs = append(recs, rec{seq, row, topic.Slot(uint64(row) * 20011 * seq), i})
			}
		}
		w.append("lane", recs...)
		switch i % 10 {
		case 3, 6:
			w.edit(splitFirst)
		case 9:
			w.edit(mergeAll)
		}
	}
	seen := 0
	r, err := w.Read(t.Context(), nil)
	w.check(err)
	for item, err := range r.Next(t.Context()) {
		w.check(err)
		seen++
		f, err := w.Find(t.Context(), "lane", OneRow(item.Position))
		if err != nil || len(f.Places) != 1 || f.Places[0].Segment != item.Segment || f.Places[0].Offset != item.Offset {
			t.Fatalf("%s at %s:%d: %+v, %v", item.Position, item.Segment, item.Offset, places(f.Places), err)
		}
	}
	if seen < 80 {
		t.Errorf("only %d records", seen)
	}
}

func TestFindTrimmed(t *testing.T) {
	w := newWorld(t, 1)
	for seq := uint64(1); seq <= 9; seq++ {
		w.append("lane", rec{seq, 0, 7, int(seq)})
	}
	w.trim(5)
	if f, err := w.Find(t.Context(), "lane", AllRows(3)); err != nil || f.Places != nil || len(f.Trimmed) != 1 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := w.Find(t.Context(), "lane", AllRows(7)); err != nil || len(f.Places) != 1 || f.Trimmed != nil {
		t.Errorf("%+v, %v", f, err)
	}
}

// laneWorld has a lane too.
type laneWorld struct {
	*world
	Tracer
	js     jetstream.JetStream
	info   lane.Info
	source string
}

var lane0 = lane.ID{Group: lane.Default}

func newLaneWorld(t *testing.T) *laneWorld {
	w := &laneWorld{world: newWorld(t, 1)}
	nc, err := nats.Connect(devtest.NATS(t).ClientURL())
	w.check(err)
	t.Cleanup(nc.Close)
	w.js, err = jetstream.New(nc)
	w.check(err)
	w.info, err = lane.Ensure(t.Context(), w.js, lane0, lane.Settings{MaxBytes: 1 << 20})
	w.check(err)
	w.Tracer = Tracer{w.store, w.js}
	w.source = lane0.Source(w.info.Incarnation)
	w.check(w.store.CreateCheckpoint(t.Context(), w.source))
	return w
}

// publish puts a message into the lane; batch > 0 makes it one of a producer's.
func (w *laneWorld) publish(name string, batch int) {
	w.t.Helper()
	m := nats.NewMsg(lane0.Subject(name))
	if batch > 0 {
		m.Header = nats.Header{
			lane.HeaderBatch: {"1"}, lane.HeaderProducer: {"p"}, lane.HeaderSequence: {fmt.Sprint(batch)},
		}
	}
	_, err := w.js.PublishMsg(w.t.Context(), m)
	w.check(err)
}

func (w *laneWorld) checkpoint(seq uint64, seen ...segment.Producer) {
	w.t.Helper()
	file := w.store.CheckpointFile(w.source)
	c, version, err := file.Load(w.t.Context())
	w.check(err)
	table := map[string]segment.Producer{}
	for _, p := range seen {
		table[p.ID] = p
	}
	_, err = file.Save(w.t.Context(), c.Advance(seq, time.Unix(1, 0), table), version)
	w.check(err)
}

func (w *laneWorld) trace(q Query) Trace {
	w.t.Helper()
	q.Lane = lane0
	got, err := w.Trace(w.t.Context(), q)
	w.check(err)
	return got
}

// TestTrace goes through what can become of a message.
func TestTrace(t *testing.T) {
	w := newLaneWorld(t)
	w.create(topic.Unrouted, 1)
	unrouted := w.Topic
	w.create("orders2", 1)
	for _, m := range []struct {
		topic string
		batch int
	}{
		{"orders", 1}, {"orders", 2}, {"orders", 1}, {"orders", 2}, {"nosuch", 0}, {"orders", 3}, {lane.Control, 0}, {"orders", 0}, {"orders2", 0},
	} {
		w.publish(m.topic, m.batch)
	}
	var err error
	w.Topic, err = Open(t.Context(), w.store, "orders")
	w.check(err)
	w.append(w.source, rec{1, 0, 1, 1}, rec{1, 1, 2, 1}, rec{2, 0, 3, 2}) // 3 and 4 repeat 1 and 2; 8 was lost
	w.append(w.source, rec{6, 0, 3, 3})
	w.Topic = unrouted
	w.append(w.source, rec{5, 0, 1, 2})
	w.checkpoint(8, segment.Producer{ID: "p", Sequence: 3, At: 6})

	for _, c := range []struct {
		q      Query
		fate   Fate
		topic  string
		places int
	}{
		{Query{Rows: AllRows(1)}, FateCommitted, "orders", 2},
		{Query{Rows: AllRows(1), Topic: "orders2"}, FateCommitted, "orders", 2}, // the lane knows better
		{Query{Rows: OneRow(topic.Position{Sequence: 1, Row: 1}), Incarnation: w.info.Incarnation}, FateCommitted, "orders", 1},
		{Query{Rows: AllRows(3)}, FateDuplicate, "orders", 0},
		{Query{Rows: AllRows(5), Topic: "nosuch"}, FateCommitted, topic.Unrouted, 1},
		{Query{Rows: AllRows(6)}, FateCommitted, "orders", 1},
		{Query{Rows: AllRows(7)}, FateControl, "", 0},
		{Query{Rows: AllRows(8)}, FateMissing, "orders", 0},
		{Query{Rows: AllRows(9)}, FateWaiting, "orders2", 0},
		{Query{Rows: AllRows(10)}, FateAbsent, "", 0},
	} {
		got := w.trace(c.q)
		if got.Fate != c.fate || got.Topic != c.topic || len(got.Places) != c.places || got.Partial {
			t.Errorf("%s: %s in topic %q, %d places; want %+v", got.Name(), got.Fate, got.Topic, len(got.Places), c)
		}
	}
	if lag := w.trace(Query{Rows: AllRows(9)}).Lag(); lag != 1 {
		t.Errorf("lag %d", lag)
	}
	twice := w.trace(Query{Rows: OneRow(topic.Position{Sequence: 3, Row: 1})})
	if o := twice.Original; o == nil || o.Fate != FateCommitted || o.Rows != OneRow(topic.Position{Sequence: 1, Row: 1}) || *twice.Producer != (Producer{"p", 1}) {
		t.Errorf("the original of a duplicate: %+v", twice)
	}
	// Found above the checkpoint: whole messages may not be all there.
	w.Topic, err = Open(t.Context(), w.store, "orders2")
	w.check(err)
	w.append(w.source, rec{9, 0, 1, 1})
	if got := w.trace(Query{Rows: AllRows(9)}); got.Fate != FateCommitted || !got.Partial {
		t.Errorf("%+v", got)
	}
	_, err = w.js.Publish(t.Context(), lane.EventSubject("orders"), []byte("{}"))
	w.check(err)
	w.checkpoint(10)
	if got := w.trace(Query{Rows: AllRows(10)}); got.Fate != FateNoRecord || got.Topic != "orders" {
		t.Errorf("an event that leaves no record: %+v", got)
	}
	w.traceTrimmed()
}

// traceTrimmed goes on where the lane does not have the messages any more.
func (w *laneWorld) traceTrimmed() {
	t := w.t
	s, err := w.js.Stream(t.Context(), w.info.Stream)
	w.check(err)
	w.check(s.Purge(t.Context(), jetstream.WithPurgeSequence(8)))
	for _, c := range []struct {
		q     Query
		fate  Fate
		topic string
	}{
		{Query{Rows: AllRows(2)}, FateCommitted, "orders"}, // found by looking through all topics
		{Query{Rows: AllRows(5)}, FateCommitted, topic.Unrouted},
		{Query{Rows: AllRows(2), Topic: "orders"}, FateCommitted, "orders"},
		{Query{Rows: AllRows(2), Topic: "orders2"}, FateMissing, ""},
		{Query{Rows: AllRows(3)}, FateMissing, ""}, // nothing tells any more that it was a duplicate
	} {
		if got := w.trace(c.q); got.Fate != c.fate || got.Topic != c.topic || got.InLane {
			t.Errorf("%s: %s in topic %q; want %+v", got.Name(), got.Fate, got.Topic, c)
		}
	}
	if _, err := w.Trace(t.Context(), Query{Lane: lane0, Rows: AllRows(2), Topic: "nosuch"}); !errors.Is(err, segment.ErrNoTopic) {
		t.Errorf("no such topic: %v", err)
	}
	if _, err := w.Trace(t.Context(), Query{Lane: lane0, Rows: AllRows(2), Incarnation: "never"}); !errors.Is(err, ErrNoIncarnation) {
		t.Errorf("no such incarnation: %v", err)
	}
	w.check(lane.Remove(t.Context(), w.js, lane0))
	if got := w.trace(Query{Rows: AllRows(2), Incarnation: w.info.Incarnation}); got.Fate != FateCommitted || got.Last != 0 {
		t.Errorf("without the lane: %+v", got)
	}
	if _, err := w.Trace(t.Context(), Query{Lane: lane0, Rows: AllRows(2)}); !errors.Is(err, lane.ErrNoLane) {
		t.Errorf("without the lane, and no incarnation: %v", err)
	}
}
