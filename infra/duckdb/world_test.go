//go:build duckdb

package duckdb

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// world is a topic on real servers, and its table.
type world struct {
	info     devstack.Info
	deps     functions.Deps
	objects  *object.Store
	producer *client.Producer
	topic    *segment.Topic
}

func newWorld(t *testing.T, name string) *world {
	t.Helper()
	w := &world{info: devtest.Stack(t).Info}
	s3 := w.info.S3
	f, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: w.info.Filer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	nc, err := nats.Connect(w.info.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if w.objects, err = object.Open(t.Context(), object.Config{Endpoint: s3.URL, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.objects.Close)
	catalog := w.connect(t)
	store := segment.NewStore(f, w.info.Bucket)
	w.deps = functions.Deps{
		NATS: nc, Store: store, Judge: functions.NewJudge(w.objects, s3.URL, f), Logger: slog.New(slog.DiscardHandler),
		Tables: table.New(table.Options{Catalog: catalog, Store: f, Warehouse: w.info.Catalog.Warehouse, Bucket: w.info.Bucket}),
	}
	def := topic.Definition{
		Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: "default", Buckets: []string{w.info.Bucket},
	}
	if w.topic, err = store.CreateTopic(t.Context(), def, 2, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.OpenLane(t.Context(), nc, store, lane.ID{Group: lane.Default}, lane.Settings{}); err != nil {
		t.Fatal(err)
	}
	if w.producer, err = client.NewProducer(nc, client.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.producer.Close(context.WithoutCancel(t.Context())) })
	return w
}

// connect connects to the catalog. SeaweedFS makes the table bucket a moment after it
// answers.
func (w *world) connect(t *testing.T) table.Catalog {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s := table.Settings{
		URL: w.info.Catalog.URL, Warehouse: w.info.Catalog.Warehouse, AccessKey: w.info.S3.AccessKey, SecretKey: w.info.S3.SecretKey,
	}
	for {
		catalog, err := table.Connect(ctx, s)
		if err == nil {
			return catalog
		}
		if rig.Pause(ctx, 100*time.Millisecond) != nil {
			t.Fatal(err)
		}
	}
}

// publish publishes records in their order.
func (w *world) publish(t *testing.T, records ...client.Record) {
	t.Helper()
	for _, r := range records {
		if _, err := w.producer.Publish(t.Context(), w.topic.Name, r); err != nil {
			t.Fatal(err)
		}
	}
	w.flush(t)
}

func (w *world) flush(t *testing.T) {
	t.Helper()
	if err := w.producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ingest moves all that was published into the topic.
func (w *world) ingest(t *testing.T) {
	t.Helper()
	if sum, err := functions.Ingest(t.Context(), w.deps, functions.IngestOptions{Once: true}); err != nil || !sum.Drained {
		t.Fatalf("%+v, %v", sum, err)
	}
}

// seal rolls all segments of the topic.
func (w *world) seal(t *testing.T) {
	t.Helper()
	live, err := w.topic.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range live.Live {
		_, err := w.topic.Edit(t.Context(), time.Now(), func(l topic.Layout) (topic.Edit, error) { return l.Roll(s.ID) })
		if err != nil {
			t.Fatal(err)
		}
	}
}

// compact compacts what is sealed, whose chunks go at once, and gives the table's files
// as DuckDB reads them.
func (w *world) compact(t *testing.T) (files []string) {
	t.Helper()
	sum, err := functions.Compact(t.Context(), w.deps, functions.CompactOptions{Once: true, Grace: -1})
	if err != nil {
		t.Fatalf("%+v, %v", sum, err)
	}
	tab, err := w.deps.Tables.Find(t.Context(), table.Topic{Name: w.topic.Name, Incarnation: w.topic.Incarnation})
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for f, err := range tab.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, f.URL)
	}
	if files, err = Fetch(t.Context(), w.deps.Store.Filer, t.TempDir(), urls); err != nil {
		t.Fatal(err)
	}
	w.chunksGone(t)
	return files
}

// chunksGone: what is read from now on is read from data files.
func (w *world) chunksGone(t *testing.T) {
	t.Helper()
	segments, err := w.topic.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		for c, err := range s.Chunks(t.Context(), 0) {
			var trimmed *segment.TrimmedError
			if err != nil && !errors.As(err, &trimmed) {
				t.Fatal(err)
			}
			if err == nil && !c.Sealed {
				t.Errorf("chunk %s is still there", c.Entry.Path)
			}
		}
	}
}
