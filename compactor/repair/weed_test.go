package repair_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/compactor/repair"
	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/doctor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verify"
)

// realWorld is a world on a real filer, with a real catalog.
type realWorld struct {
	*world
	client *seaweed.Client
	tables *table.Tables
}

func newRealWorld(t *testing.T) *realWorld {
	t.Helper()
	info := devtest.Weed(t).Info
	client, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: info.Filer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	bucket := "repair" + filer.Token(6)
	w := &realWorld{world: newWorldOn(t, segment.NewStore(client, bucket), topic.Definition{Key: topic.KeyHeader}, 0), client: client}
	w.tables = table.New(table.Options{
		Catalog: catalog(t), Store: client, Warehouse: info.Catalog.Warehouse, Bucket: bucket, Namespace: bucket,
	})
	return w
}

// catalog is the real one, once its table bucket is there: weed makes it after its
// servers answer.
func catalog(t *testing.T) table.Catalog {
	t.Helper()
	info := devtest.Weed(t).Info
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := table.Connect(ctx, table.Settings{
			URL: info.Catalog.URL, Warehouse: info.Catalog.Warehouse, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey,
		})
		var missing *table.ConfigError
		switch {
		case err == nil:
			t.Cleanup(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
			return c
		case !errors.As(err, &missing) || ctx.Err() != nil:
			t.Fatal(err)
		}
		<-tick.C
	}
}

// corrupt puts other bytes in the place of a chunk's, as a volume server does that lost
// some.
func (w *realWorld) corrupt(c segment.Chunk) {
	w.Helper()
	e, data := w.state(c.Entry.Path)
	data[len(data)/2] ^= 1
	blob, err := w.client.Upload(w.Context(), e.Path, data)
	if err == nil {
		err = w.client.Update(w.Context(), e.Path, e.ID, filer.File{ID: e.ID, Attrs: e.Attrs, Blobs: []filer.Blob{blob}, MTime: e.MTime})
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *realWorld) compact() compactor.Report {
	w.Helper()
	r, err := compactor.New(compactor.Options{Store: w.store, Tables: w.tables, Holder: "test"}).Topic(w.Context(), w.Context(), "orders")
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// diagnosis is what doctor says of compaction.
func (w *realWorld) diagnosis() doctor.Finding {
	w.Helper()
	r := doctor.Run(w.Context(), doctor.Setup{Filer: w.client, Store: w.store, Now: time.Now})
	for _, f := range r.Findings {
		if f.Check == "compaction" {
			return f
		}
	}
	w.Fatalf("%+v", r)
	return doctor.Finding{}
}

// proof verifies the topic with its lane and its table.
func (w *realWorld) proof() verify.Report {
	w.Helper()
	open := func(ctx context.Context, t *segment.Topic) (verify.Table, error) {
		found, err := w.tables.Find(ctx, table.Topic{Name: t.Name, Incarnation: t.Incarnation})
		if errors.Is(err, table.ErrNoTable) {
			return nil, nil
		}
		return tableOf{found}, err
	}
	r, err := verify.Topic(w.Context(), w.store, verify.JetStream(w.js), "orders", verify.InTable(open))
	if err != nil {
		w.Fatal(err)
	}
	return r
}

type tableOf struct{ *table.Table }

func (t tableOf) Files(ctx context.Context) iter.Seq2[verify.TableFile, error] {
	return func(yield func(verify.TableFile, error) bool) {
		for f, err := range t.Table.Files(ctx) {
			if !yield(verify.TableFile{URL: f.URL, Rows: uint64(f.Rows)}, err) {
				return
			}
		}
	}
}

// damaged is a world with a rolled segment of three chunks, of which the second is
// damaged, whose other segments are compacted.
func damaged(t *testing.T) (*realWorld, *segment.Segment, []segment.Chunk, uint64) {
	t.Helper()
	w := newRealWorld(t)
	for range 3 {
		w.send(30)
		w.ingest()
	}
	w.edit(func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) })
	w.edit(func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[1].ID) })
	whole := w.proof()
	if !whole.OK {
		t.Fatalf("%+v", whole.Violations)
	}
	s := w.segments()[0]
	chunks := w.chunks(s)
	w.corrupt(chunks[1])
	if v := w.proof().Violations; len(v) != 1 || v[0].Kind != "chunk.digest" {
		t.Fatalf("verify: %+v", v)
	}
	if r := w.compact(); r.Quarantined != 1 || r.Compacted != 1 || r.Committed != 1 {
		t.Fatalf("%+v", r)
	}
	f := w.diagnosis()
	if f.Status != doctor.Fail || !strings.Contains(f.Seen, string(s.ID)) || !strings.Contains(f.Do, fmt.Sprintf("--drop %d-%d", chunks[1].Base, chunks[1].End()-1)) {
		t.Errorf("doctor: %+v", f)
	}
	return w, s, chunks, whole.Records
}

// TestWeedFromLane: a damaged chunk is found, told of, mended from the lane, and its
// segment compacted like any other.
func TestWeedFromLane(t *testing.T) {
	w, s, chunks, records := damaged(t)
	report, err := w.repairer(w.store).FromLane(t.Context(), "orders", s.ID, false)
	if err != nil || len(report.Damaged) != 1 || report.Damaged[0].Outcome != repair.Mended || report.Damaged[0].Chunk != chunks[1].Entry.N {
		t.Fatalf("%+v, %v", report, err)
	}
	if r := w.proof(); !r.OK {
		t.Fatalf("%+v", r.Violations)
	}
	if r := w.compact(); r.Quarantined != 0 || r.Compacted != 1 || r.Committed != 1 || r.Trimmed == 0 {
		t.Errorf("%+v", r)
	}
	w.done(records, records, 0)
}

// TestWeedDrop: what cannot be mended is given up, and the rest compacted.
func TestWeedDrop(t *testing.T) {
	w, s, chunks, records := damaged(t)
	o := repair.Drop{First: chunks[1].Base, Last: chunks[1].End() - 1, Reason: "it was an exercise"}
	if report, err := w.repairer(w.store).Drop(t.Context(), "orders", s.ID, o); err != nil || len(report.Dropped) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if f := w.diagnosis(); f.Status == doctor.Fail {
		t.Errorf("doctor: %+v", f)
	}
	if r := w.compact(); r.Quarantined != 0 || r.Compacted != 1 || r.Committed != 1 {
		t.Errorf("%+v", r)
	}
	w.done(records-chunks[1].Count, records-chunks[1].Count, 1)
	read, err := w.topic().Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var gap *segment.TrimmedError
	n := uint64(0)
	for again := true; again; {
		again = false
		for _, err := range read.Next(t.Context()) {
			if errors.As(err, &gap) {
				read.Skip(gap)
				again = true
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	if n != records-chunks[1].Count || gap == nil || gap.At != chunks[1].Base || !strings.Contains(gap.Reason, "exercise") {
		t.Errorf("%d records read, %+v", n, gap)
	}
}

// done checks that all is compacted and in the table.
func (w *realWorld) done(records, rows uint64, givenUp int) {
	w.Helper()
	r := w.proof()
	for _, v := range r.Violations {
		w.Error(v)
	}
	if r.Records != records || r.TableRows != rows || r.InTable != 2 || r.Compacted != 2 || len(r.GivenUp) != givenUp {
		w.Errorf("%d records of %d, %d rows of %d: %+v", r.Records, records, r.TableRows, rows, r)
	}
	if f := w.diagnosis(); f.Status != doctor.OK {
		w.Errorf("doctor: %+v", f)
	}
}
