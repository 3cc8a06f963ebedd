package rig

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verify"
)

func TestMain(m *testing.M) { devtest.Main(m) }

const backfilled = "flights"

// flightsWorld is a topic on real servers, with what works on it in this process.
type flightsWorld struct {
	deps    functions.Deps
	objects *object.Store
	bucket  string
	topic   *segment.Topic
}

func newFlightsWorld(t *testing.T) *flightsWorld {
	t.Helper()
	info := devtest.Stack(t).Info
	f, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: info.Filer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	nc, err := nats.Connect(info.NATS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	w := &flightsWorld{bucket: info.Bucket}
	if w.objects, err = object.Open(t.Context(), object.Config{Endpoint: info.S3.URL, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.objects.Close)
	store := segment.NewStore(f, info.Bucket)
	w.deps = functions.Deps{
		NATS: nc, Store: store, Judge: functions.NewJudge(w.objects, info.S3.URL, f), Logger: slog.New(slog.DiscardHandler),
	}
	def := topic.Definition{Name: backfilled, Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: "default"}
	if w.topic, err = store.CreateTopic(t.Context(), def, 2, time.Now()); err != nil {
		t.Fatal(err)
	}
	return w
}

// job makes a job of objects.
func (w *flightsWorld) job(t *testing.T, from *BulkObjects, limits backfill.Limits) backfill.Job {
	t.Helper()
	found, err := backfill.Prefix{Bucket: from.Bucket, Prefix: from.Prefix}.List(t.Context(), w.objects)
	if err != nil {
		t.Fatal(err)
	}
	read, err := backfill.Formats(backfill.Read{Key: KeyColumn}, found.Objects, backfill.As{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := backfill.Of(w.deps.Store, w.topic).Create(t.Context(), backfill.Job{
		By: "test", Origin: from.URL(), Read: read, Limits: limits, Sources: backfill.Divide(found.Objects, "", 4),
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// work runs a job, interrupted a few times, to its end.
func (w *flightsWorld) work(ctx context.Context, j backfill.Job) error {
	for try := 0; ; try++ {
		run, cancel := context.WithCancel(ctx)
		if try < 3 {
			run, cancel = context.WithTimeout(ctx, time.Duration(try+1)*300*time.Millisecond)
		}
		_, err := functions.RunJob(run, w.deps, functions.JobOptions{Topic: backfilled, ID: j.ID, PlanWait: -1})
		cancel()
		if err == nil || functions.ExitCode(err) != functions.ExitRetry || ctx.Err() != nil {
			return err
		}
	}
}

// edit splits and merges the topic over and over until ctx ends.
func (w *flightsWorld) edit(ctx context.Context) (edits int, err error) {
	for ; Pause(ctx, 100*time.Millisecond) == nil; edits++ {
		_, err := w.topic.Edit(ctx, time.Now(), func(l topic.Layout) (topic.Edit, error) {
			if n := len(l.Live); n > 5 {
				return l.Merge(l.Live[n-2].ID, l.Live[n-1].ID)
			}
			return l.SplitWays(l.Live[edits%len(l.Live)].ID, 2)
		})
		if err != nil && ctx.Err() == nil {
			return edits, err
		}
	}
	return edits, nil
}

// live publishes flights until ctx ends.
func (w *flightsWorld) live(ctx context.Context, l *Ledger) error {
	pace, n := rate.NewLimiter(1000, 10), 0
	return PublishPlain(context.WithoutCancel(ctx), w.deps.NATS, backfilled, l, func(context.Context) (int, bool) {
		if pace.Wait(ctx) != nil {
			return 0, false
		}
		n++
		return n % len(l.flights), true
	})
}

// TestFlightsBackfilled: real flights, once as Parquet and once as gzip NDJSON in 30
// objects, go into one topic at once, in runs that are interrupted, while it is edited
// and live records arrive. Every row is there once, in the order of its key in its
// source, and every live record too.
func TestFlightsBackfilled(t *testing.T) {
	w := newFlightsWorld(t)
	sample, err := SampleBulk(4)
	if err != nil {
		t.Fatal(err)
	}
	parquet, err := sample.PutParquet(t.Context(), w.objects, w.bucket, "in/parquet/")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := sample.PutNDJSON(t.Context(), w.objects, w.bucket, "in/ndjson/", 30)
	if err != nil {
		t.Fatal(err)
	}
	limits := backfill.Limits{Rows: uint64(sample.Rows()) / 2}
	from := map[*BulkObjects]backfill.Job{parquet: w.job(t, parquet, limits), lines: w.job(t, lines, limits)}
	flights, err := Flights()
	if err != nil {
		t.Fatal(err)
	}
	ledger := NewLedger(flights)
	w.run(t, from, ledger)
	w.compare(t, from, ledger)
}

// run has everything at work until the jobs are done and the lane is drained.
func (w *flightsWorld) run(t *testing.T, jobs map[*BulkObjects]backfill.Job, ledger *Ledger) {
	t.Helper()
	ingest, stopIngest := context.WithCancel(t.Context())
	defer stopIngest()
	var worker errgroup.Group
	worker.Go(func() error {
		_, err := functions.Ingest(ingest, w.deps, functions.IngestOptions{})
		return err
	})
	js, err := jetstream.New(w.deps.NATS)
	if err != nil {
		t.Fatal(err)
	}
	lane, err := (&Env{JS: js, Store: w.deps.Store}).WaitLane(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	beside, end := context.WithCancel(t.Context())
	defer end()
	edits := 0
	var around errgroup.Group
	around.Go(func() error { return w.live(beside, ledger) })
	around.Go(func() (err error) {
		edits, err = w.edit(beside)
		return err
	})
	var both errgroup.Group
	for _, j := range jobs {
		both.Go(func() error { return w.work(t.Context(), j) })
	}
	err = both.Wait()
	end()
	if err := errors.Join(err, around.Wait()); err != nil {
		t.Fatal(err)
	}
	if err := lane.WaitDrained(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopIngest()
	if err := worker.Wait(); err != nil {
		t.Error(err)
	}
	if n := ledger.Counts(); edits < 5 || n.Sent == 0 || n.Acknowledged != n.Sent {
		t.Errorf("%d edits, and of live records %+v", edits, n)
	}
}

// compare reads the topic back.
func (w *flightsWorld) compare(t *testing.T, jobs map[*BulkObjects]backfill.Job, ledger *Ledger) {
	t.Helper()
	bulk, live := NewBulkComparison(), ledger.Compare()
	want := 0
	for from, j := range jobs {
		if err := bulk.Expect(j, from); err != nil {
			t.Fatal(err)
		}
		want += from.Rows()
	}
	err := ReadSources(t.Context(), w.deps.Store, backfilled, func(r SourcedRecord) {
		if !bulk.Add(r) {
			live.Add(r.Live())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bulk.Done() || bulk.Read != want {
		t.Errorf("%d rows of %d, and %d problems: %q", bulk.Read, want, len(bulk.Problems)+bulk.More, bulk.Problems)
	}
	if !live.Done() {
		t.Errorf("%d problems of live records: %q", len(live.Problems)+live.More, live.Problems)
	}
	js, err := jetstream.New(w.deps.NATS)
	if err != nil {
		t.Fatal(err)
	}
	report, err := verify.Topic(t.Context(), w.deps.Store, verify.JetStream(js), backfilled)
	if err != nil || len(report.Violations) > 0 || report.Records != uint64(bulk.Read+live.Read) {
		t.Errorf("%d records, %v: %+v", report.Records, err, report.Violations)
	}
}
