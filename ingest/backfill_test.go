package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// listed are objects in memory, each a list of rows, or an error in a row's place.
type listed [][]any

func (l listed) Len() uint64        { return uint64(len(l)) }
func (listed) Name(n uint64) string { return fmt.Sprintf("s3://box/%d", n) }

func (l listed) Open(_ context.Context, n uint64, from uint32) (RowReader, error) {
	return &listedRows{rows: l[n-1], next: int(from)}, nil
}

type listedRows struct {
	rows []any
	next int
}

func (*listedRows) Close() error { return nil }

func (r *listedRows) Next(context.Context) (BackfillRow, error) {
	if r.next >= len(r.rows) {
		return BackfillRow{}, io.EOF
	}
	at := r.rows[r.next]
	if err, bad := at.(error); bad {
		return BackfillRow{}, err
	}
	row := at.(BackfillRow)
	row.N = uint32(r.next)
	r.next++
	return row, nil
}

func keyed(values ...string) (rows []any) {
	for _, v := range values {
		rows = append(rows, BackfillRow{Key: []byte(v), Value: []byte(v)})
	}
	return rows
}

// quarry is a topic and a source with a checkpoint.
type quarry struct {
	t     *testing.T
	store *segment.Store
	topic *segment.Topic
}

func newQuarry(t *testing.T, key topic.Key) *quarry {
	t.Helper()
	store := segment.NewStore(memfs.New().Client("backfill", nil), "box")
	def := topic.Definition{Name: "t", Key: key, FlushAge: topic.Duration(time.Second), Lanes: "default"}
	top, err := store.CreateTopic(t.Context(), def, 2, time.Now())
	if err == nil {
		err = store.CreateCheckpoint(t.Context(), segment.BackfillSource("j", 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &quarry{t, store, top}
}

func (q *quarry) options(objects Objects) BackfillOptions {
	return BackfillOptions{Source: segment.BackfillSource("j", 0), Topic: "t", Incarnation: q.topic.Incarnation, Objects: objects, Store: q.store}
}

func (q *quarry) checkpoint() segment.Checkpoint {
	q.t.Helper()
	c, _, err := q.store.CheckpointFile(segment.BackfillSource("j", 0)).Load(q.t.Context())
	if err != nil {
		q.t.Fatal(err)
	}
	return c
}

// records are all that the topic holds, by position.
func (q *quarry) records() (all []record.Record) {
	q.t.Helper()
	segments, err := q.topic.Segments(q.t.Context())
	if err != nil {
		q.t.Fatal(err)
	}
	for _, s := range segments {
		for c, err := range s.Chunks(q.t.Context(), 0) {
			if err != nil {
				q.t.Fatal(err)
			}
			for r, err := range s.Records(q.t.Context(), c) {
				if err != nil {
					q.t.Fatal(err)
				}
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b record.Record) int { return a.Position.Compare(b.Position) })
	return all
}

// TestBackfill: rows become records at their positions, with what was picked of them;
// what is rejected says where it comes from; what is left out is counted.
func TestBackfill(t *testing.T) {
	q := newQuarry(t, topic.KeyHeader)
	event := time.Date(2001, 1, 2, 3, 4, 5, 0, time.UTC)
	objects := listed{
		{
			BackfillRow{Key: []byte("SAN"), Time: event, Value: []byte(`{"a":1}`), Headers: []record.Header{{Name: "h", Value: []byte("x")}}},
			BackfillRow{Skip: true},
			BackfillRow{Value: []byte("oops"), Rejected: "no JSON"},
		},
		nil,
		append(keyed("a", "b"), &ObjectError{Reason: "it is another object", Err: errors.New("etag e2")}, BackfillRow{Value: []byte("never")}),
		keyed("c"),
	}
	b := NewBackfill(q.options(objects))
	if err := b.Run(t.Context(), t.Context()); err != nil || !b.Done() {
		t.Fatalf("done %v, %v", b.Done(), err)
	}
	var got []string
	for _, r := range q.records() {
		s := fmt.Sprintf("%s %s=%s", r.Position, r.Key, r.Value)
		for _, h := range r.Headers {
			s += fmt.Sprintf(" %s:%s", h.Name, h.Value)
		}
		if !r.EventTime.IsZero() {
			s += " " + r.EventTime.Format(time.RFC3339)
		}
		got = append(got, strings.TrimSpace(s+" "+r.Rejected))
	}
	want := []string{
		`1:0 SAN={"a":1} h:x 2001-01-02T03:04:05Z`,
		`1:2 =oops Spillway-Object:s3://box/1 Spillway-Row:2 no JSON`,
		`3:0 a=a`, `3:1 b=b`, `4:0 c=c`,
		`5:0 = Spillway-Object:s3://box/3 Spillway-Row:2 s3://box/3 from row 2 on: it is another object: etag e2`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	c := q.checkpoint()
	if tally := *c.Tally; c.Sequence != 5 || tally.Objects != 4 || tally.Rows != 4 || tally.Rejected != 1 || tally.Filtered != 1 ||
		tally.Bytes != 10 || tally.Dropped != 0 || len(tally.Failures) != 1 || tally.Failures[0].Object != 3 || tally.Failures[0].Row != 2 {
		t.Errorf("checkpoint %+v with %+v", c, tally)
	}
	again := NewBackfill(q.options(objects))
	if err := again.Run(t.Context(), t.Context()); err != nil || !again.Done() || len(q.records()) != len(want) {
		t.Errorf("once more: done %v, %v, %d records", again.Done(), err, len(q.records()))
	}
}

// TestBackfillKeys: the topic's partition key is applied to rows as to all that comes.
func TestBackfillKeys(t *testing.T) {
	q := newQuarry(t, "json:/id")
	objects := listed{{
		BackfillRow{Value: []byte(`{"id":"k"}`)},
		BackfillRow{Value: []byte(`{"id":{}}`)},
		BackfillRow{Value: []byte(`{}`)},
		BackfillRow{Key: []byte(strings.Repeat("k", record.MaxRecord)), Value: []byte(`{"id":7}`)},
	}}
	if err := NewBackfill(q.options(objects)).Run(t.Context(), t.Context()); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, r := range q.records() {
		keys = append(keys, fmt.Sprintf("%q %v", r.Key, r.Rejected != ""))
	}
	if want := []string{`"k" false`, `"" true`, `"" false`, `"7" false`}; !slices.Equal(keys, want) {
		t.Errorf("keys %v, want %v", keys, want)
	}
}

// TestBackfillStops: told to stop in the middle of an object, it commits what it has
// read, and the next one goes on there.
func TestBackfillStops(t *testing.T) {
	q := newQuarry(t, topic.KeyHeader)
	var values []string
	for i := range 3 * waitRows {
		values = append(values, fmt.Sprint("v", i))
	}
	objects := listed{keyed(values...)}
	stop, cancel := context.WithCancel(t.Context())
	o := q.options(objects)
	waits := 0
	o.Wait = func(ctx context.Context, _, _ int) error {
		if waits++; waits < 2 {
			return nil
		}
		cancel()
		<-ctx.Done() // a limit that would hold it up for long
		return ctx.Err()
	}
	b := NewBackfill(o)
	if err := b.Run(t.Context(), stop); err != nil || b.Done() {
		t.Fatalf("done %v, %v", b.Done(), err)
	}
	c := q.checkpoint()
	if c.Sequence != 0 || c.Rows < waitRows || int(c.Rows) == len(values) || uint64(c.Rows) != c.Tally.Rows {
		t.Fatalf("checkpoint %s, %d rows", c.Position(), c.Tally.Rows)
	}
	b = NewBackfill(q.options(objects))
	if err := b.Run(t.Context(), t.Context()); err != nil || !b.Done() {
		t.Fatalf("done %v, %v", b.Done(), err)
	}
	if got := q.checkpoint(); got.Tally.Rows != uint64(len(values)) || got.Tally.Dropped != 0 || len(q.records()) != len(values) {
		t.Errorf("%d rows, %d dropped, %d records, want %d", got.Tally.Rows, got.Tally.Dropped, len(q.records()), len(values))
	}
}

// TestBackfillGivesUp: what needs somebody to look is told, and nothing is committed
// to a topic that only has the name.
func TestBackfillGivesUp(t *testing.T) {
	many := make(listed, segment.MaxFailures+1)
	for i := range many {
		many[i] = []any{&ObjectError{Reason: "gone"}}
	}
	for name, c := range map[string]struct {
		objects Objects
		before  func(*quarry)
		want    error
	}{
		"too many failures": {many, func(*quarry) {}, ErrTooManyFailures},
		"deleted topic": {listed{keyed("a")}, func(q *quarry) {
			if err := q.store.DeleteTopic(t.Context(), "t", time.Now()); err != nil {
				t.Fatal(err)
			}
		}, ErrTopicGone},
		"another topic": {listed{keyed("a")}, func(q *quarry) {
			err := q.store.DeleteTopic(t.Context(), "t", time.Now())
			if err == nil {
				q.topic, err = q.store.CreateTopic(t.Context(), topic.Definition{Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default"}, 1, time.Now())
			}
			if err != nil {
				t.Fatal(err)
			}
		}, ErrTopicGone},
		"no checkpoint": {listed{keyed("a")}, func(q *quarry) {
			if err := q.store.Filer.Delete(t.Context(), q.store.CheckpointFile(segment.BackfillSource("j", 0)).Path(), ""); err != nil {
				t.Fatal(err)
			}
		}, ErrNoCheckpoint},
		"checkpoint behind the list": {listed{}, func(q *quarry) {
			file := q.store.CheckpointFile(segment.BackfillSource("j", 0))
			now, version, err := file.Load(t.Context())
			if err == nil {
				_, err = file.Save(t.Context(), now.AdvanceRows(2, 0, segment.Tally{}, time.Now()), version)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, segment.ErrSourceWentBack},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQuarry(t, topic.KeyHeader)
			o := q.options(c.objects)
			c.before(q)
			b := NewBackfill(o)
			if err := b.Run(t.Context(), t.Context()); !errors.Is(err, c.want) || b.Done() {
				t.Errorf("done %v, %v, want %v", b.Done(), err, c.want)
			}
			if name == "another topic" && len(q.records()) > 0 {
				t.Error("it has records")
			}
		})
	}
}

// TestBackfillPace: with many segments the filer is not asked for more commits than a
// worker may ask for (rule 30), and rows that come slowly are committed in time.
func TestBackfillPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuarry(t, topic.KeyHeader)
		var values []string
		for i := range 400 {
			values = append(values, fmt.Sprint("v", i))
		}
		start := time.Now()
		b := NewBackfill(q.options(listed{keyed(values...)}))
		b.most = 4 // rows a flush, for two segments
		if err := b.Run(t.Context(), t.Context()); err != nil {
			t.Fatal(err)
		}
		if took, least := time.Since(start), 150*time.Second/commitsPerSecond; took < least {
			t.Errorf("%d chunks took %s, want %s at least", b.Counts().Chunks, took, least)
		}
	})
}
