package repair_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/compactor/repair"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verify"
)

// world is a topic that a real worker filled from a real lane, on a filer in memory.
type world struct {
	*testing.T
	fs    *memfs.FS
	store *segment.Store
	nc    *nats.Conn
	js    jetstream.JetStream
	lane  *ingest.JetStream
	sent  int
}

var laneID = lane.ID{Group: lane.Default}

func newWorld(t *testing.T, def topic.Definition, inline int) *world {
	t.Helper()
	fs := memfs.New()
	w := newWorldOn(t, segment.NewStore(fs.Client("world", nil), "test"), def, inline)
	w.fs = fs
	return w
}

func newWorldOn(t *testing.T, store *segment.Store, def topic.Definition, inline int) *world {
	t.Helper()
	w := &world{T: t, store: store}
	w.store.Inline = inline
	def.Name, def.FlushAge, def.Lanes = "orders", topic.Duration(time.Second), lane.Default
	if _, err := w.store.CreateTopic(t.Context(), def, 2, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.nc, err = nats.Connect(devtest.NATS(t).ClientURL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.nc.Close)
	if w.js, err = jetstream.New(w.nc); err != nil {
		t.Fatal(err)
	}
	if w.lane, err = ingest.OpenLane(t.Context(), w.nc, w.store, laneID, lane.Settings{}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) publish(name string, header nats.Header, data string) {
	w.Helper()
	if _, err := w.js.PublishMsg(w.Context(), &nats.Msg{Subject: laneID.Subject(name), Header: header, Data: []byte(data)}); err != nil {
		w.Fatal(err)
	}
}

// send publishes messages of all kinds, for this topic and for others.
func (w *world) send(n int) {
	w.Helper()
	for range n {
		w.sent++
		key, value := fmt.Sprintf("key%d", w.sent%17), fmt.Sprintf(`{"n":%d,"text":"%0*d"}`, w.sent, w.sent%50, w.sent)
		header := nats.Header{lane.HeaderKey: {key}, "Trace": {"a", "b"}}
		switch w.sent % 7 {
		case 1:
			w.publish("others", header, value)
		case 2:
			header[lane.HeaderKey] = []string{"two", "keys"} // refused
		case 3:
			delete(header, lane.HeaderKey)
		case 4:
			header[lane.HeaderEventTime] = []string{"2026-01-02T03:04:05Z"}
		}
		w.publish("orders", header, value)
	}
}

// batch publishes a batch twice, as a producer does that had no answer.
func (w *world) batch(seq, rows int) {
	w.Helper()
	var encoded []byte
	for i := range rows {
		r := record.Record{Key: fmt.Appendf(nil, "batch%d", i%5), Value: fmt.Appendf(nil, "%d of %d", i, seq)}
		var err error
		if encoded, err = record.AppendMessage(encoded, &r); err != nil {
			w.Fatal(err)
		}
	}
	data, err := record.EncodeBatch(nil, record.CodecNull, rows, encoded)
	if err != nil {
		w.Fatal(err)
	}
	header := nats.Header{lane.HeaderBatch: {"1"}, lane.HeaderCodec: {record.CodecNull}, lane.HeaderProducer: {"p1"}, lane.HeaderSequence: {fmt.Sprint(seq)}}
	w.publish("orders", header, string(data))
	w.publish("orders", header, string(data))
}

// ingest commits all that is in the lane.
func (w *world) ingest() {
	w.Helper()
	worker := ingest.NewWorker(ingest.Options{Lane: w.lane, ID: laneID, Store: w.store, AutoCreate: true, Once: true})
	if err := worker.Run(w.Context(), w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) topic() *segment.Topic {
	w.Helper()
	t, err := w.store.Topic(w.Context(), "orders")
	if err != nil {
		w.Fatal(err)
	}
	return t
}

// edit makes an edit.
func (w *world) edit(plan func(topic.Layout) (topic.Edit, error)) {
	w.Helper()
	if _, err := w.topic().Edit(w.Context(), time.Now(), plan); err != nil {
		w.Fatal(err)
	}
}

func (w *world) segments() []*segment.Segment {
	w.Helper()
	list, err := w.topic().Segments(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return list
}

// chunks are those of all segments, without the seals.
func (w *world) chunks(s *segment.Segment) (list []segment.Chunk) {
	w.Helper()
	for c, err := range s.Chunks(w.Context(), 0) {
		if err != nil {
			w.Fatal(err)
		}
		if !c.Sealed {
			list = append(list, c)
		}
	}
	return list
}

func (w *world) repairer(store *segment.Store) *repair.Repairer {
	return &repair.Repairer{
		Store: store, By: "me@here", Now: time.Now, Logger: slog.New(slog.DiscardHandler), ReadLimit: 5 * time.Second,
		Lane: func(ctx context.Context, source string, t topic.Definition, to uint64) iter.Seq2[*record.Set, error] {
			again, err := ingest.OpenReread(ctx, w.nc, source, t)
			if err != nil {
				return func(yield func(*record.Set, error) bool) { yield(nil, &repair.LostError{Reason: err.Error()}) }
			}
			return again.Records(ctx, to)
		},
	}
}

// state is a chunk's file as it is.
func (w *world) state(path string) (e filer.Entry, data []byte) {
	w.Helper()
	e, err := w.store.Filer.Lookup(w.Context(), path)
	if err != nil {
		w.Fatal(err)
	}
	r, err := w.store.Filer.Open(w.Context(), e, 0)
	if err != nil {
		w.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // read-only
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		w.Fatal(err)
	}
	return e, b.Bytes()
}

// verify proves the topic from its files and its lane.
func (w *world) verify() verify.Report {
	w.Helper()
	r, err := verify.Topic(w.Context(), w.store, verify.JetStream(w.js), "orders")
	if err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) sound() {
	w.Helper()
	for _, v := range w.verify().Violations {
		w.Error(v)
	}
	for _, p := range w.fs.Problems() {
		w.Error(p)
	}
}
