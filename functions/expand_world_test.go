package functions

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/followup"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// stillLane is a lane in memory that has all of its messages.
type stillLane []ingest.Message

func (l stillLane) State(context.Context) (ingest.State, error) {
	return ingest.State{Incarnation: "i", First: 1, Last: uint64(len(l))}, nil
}

func (l stillLane) TimeOf(_ context.Context, sequence uint64) (time.Time, error) {
	if sequence == 0 || sequence > uint64(len(l)) {
		return time.Time{}, ingest.ErrNoMessage
	}
	return l[sequence-1].Time, nil
}

func (l stillLane) Read(_ context.Context, from uint64) (ingest.Reader, error) {
	return &stillReader{l, from}, nil
}

func (l stillLane) Announce(context.Context, string, uint64) error { return nil }
func (l stillLane) Trim(context.Context, uint64) error             { return nil }

type stillReader struct {
	lane stillLane
	next uint64
}

func (r *stillReader) Next(ctx context.Context) (ingest.Message, error) {
	if r.next > uint64(len(r.lane)) {
		<-ctx.Done()
		return ingest.Message{}, ctx.Err()
	}
	r.next++
	return r.lane[r.next-2], nil
}

func (r *stillReader) Close() {}

// asking is a batch of references whose rows are to become records, by their keys.
func asking(t *testing.T, f func(*record.Record), keys ...string) ingest.Message {
	t.Helper()
	var data []byte
	for _, key := range keys {
		r := record.Record{Key: []byte(key), Ref: &record.Ref{URL: "s3://allowed/" + key}, Headers: ref.Batch{Format: "ndjson", Expand: true}.Headers()}
		if f != nil {
			f(&r)
		}
		var err error
		if data, err = record.AppendMessage(data, &r); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := record.EncodeBatch(nil, record.CodecNull, len(keys), data)
	if err != nil {
		t.Fatal(err)
	}
	return ingest.Message{
		Topic: "refs", Data: batch, Sequence: 1, Time: time.Now(), Header: map[string][]string{
			lane.HeaderBatch: {"1"}, lane.HeaderCodec: {record.CodecNull}, lane.HeaderProducer: {"p"}, lane.HeaderSequence: {"1"},
		},
	}
}

// foundOut is what a worker finds out about an object: first when it judges, then when it
// makes the job.
type foundOut struct{ first, then error }

var errOther = &ref.MismatchError{What: "size", Want: "1", Got: "2"}

var findings = map[string]foundOut{
	"verified": {},
	"refused":  {first: errOther},
	"pending":  {first: object.ErrForbidden},
	"vanished": {then: object.ErrNotFound},
	"changed":  {then: errOther},
}

// judgement is what a worker finds out about all objects, by key.
type judgement map[string]foundOut

func (j judgement) Judge(_ context.Context, _ topic.Definition, f record.Ref) error {
	return j[strings.TrimPrefix(f.URL, "s3://allowed/")].first
}

func (j judgement) Look(ctx context.Context, d topic.Definition, f record.Ref) (object.Info, error) {
	err := j.Judge(ctx, d, f)
	if err == nil {
		err = j[strings.TrimPrefix(f.URL, "s3://allowed/")].then
	}
	return object.Info{Size: 1, ETag: "e"}, err
}

// scene is a filer in memory with a topic, on which workers and runs of jobs come and
// go.
type scene struct {
	*testing.T
	fs    *memfs.FS
	store *segment.Store
	lane  stillLane
	// nudged counts calls for somebody to work on jobs.
	nudged int
}

func newScene(t *testing.T, key topic.Key) *scene {
	t.Helper()
	s := &scene{T: t, fs: memfs.New()}
	s.store = segment.NewStore(s.fs.Client("admin", nil), "test")
	if err := s.store.CreateCheckpoint(t.Context(), laneID.Source("i")); err != nil {
		t.Fatal(err)
	}
	s.create(key)
	return s
}

func (s *scene) create(key topic.Key) {
	s.Helper()
	def := topic.Definition{Name: "refs", Key: key, FlushAge: topic.Duration(100 * time.Millisecond), Lanes: lane.Default, Buckets: []string{"allowed"}}
	if _, err := s.store.CreateTopic(s.Context(), def, 2, time.Now()); err != nil {
		s.Fatal(err)
	}
}

func (s *scene) topic() *segment.Topic {
	s.Helper()
	t, err := s.store.Topic(s.Context(), "refs")
	if err != nil {
		s.Fatal(err)
	}
	return t
}

func (s *scene) worker(name string, j judgement, hook memfs.Hook) (*ingest.Worker, *memfs.Client) {
	client := s.fs.Client(name, hook)
	store := segment.NewStore(client, "test")
	return ingest.NewWorker(ingest.Options{
		Lane: s.lane, ID: laneID, Store: store, Judge: j, Expander: &expander{store, j}, Once: true,
	}), client
}

// follow follows up what is pending: by now all objects are there.
func (s *scene) follow() {
	s.Helper()
	f := followup.New(followup.Options{Store: s.store, Judge: judgement{}, Expander: &lateExpander{expander: expander{s.store, judgement{}}, jobs: s}})
	if _, err := f.Topic(s.Context(), s.Context(), "refs"); err != nil {
		s.Error(err)
	}
}

// Nudge stands for a work queue that is not there.
func (s *scene) Nudge(context.Context, string) error { s.nudged++; return errors.New("no queue") }

// work works on all jobs that may be worked on: each object has the same two rows.
func (s *scene) work() (states []backfill.State) {
	s.Helper()
	t := s.topic()
	jobs := backfill.Of(s.store, t)
	for l, err := range jobs.List(s.Context()) {
		if err == nil {
			err = l.Err
		}
		if err == nil && l.State.Phase == backfill.Open {
			err = s.run(t, jobs, l.ID)
		}
		if err != nil {
			s.Error(err)
		}
		states = append(states, l.State)
	}
	return states
}

func (s *scene) run(t *segment.Topic, jobs *backfill.Jobs, id string) error {
	j, err := jobs.Load(s.Context(), id)
	if err != nil {
		return err
	}
	closed := 0
	objects, err := newSourceObjects(j.Read, j.Sources[0].Objects, func(context.Context, backfill.Object) (objectFile, error) {
		return inMemory{Reader: bytes.NewReader([]byte("{\"n\":1}\n{\"n\":2}\n")), closed: &closed}, nil
	})
	if err != nil {
		return err
	}
	return ingest.NewBackfill(ingest.BackfillOptions{
		Source: j.Sources[0].Name, Topic: t.Name, Incarnation: t.Incarnation, Objects: objects, Store: s.store,
	}).Run(s.Context(), s.Context())
}

// records are those of the topic: the references, and how many rows there are of each key.
func (s *scene) records() (refs []record.Record, rows map[string]int) {
	s.Helper()
	r, err := s.topic().Read(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	rows = map[string]int{}
	for item, err := range r.Next(s.Context()) {
		switch {
		case err != nil:
			s.Fatal(err)
		case item.Ref != nil:
			refs = append(refs, item.Clone())
		default:
			rows[string(item.Key)]++
		}
	}
	return refs, rows
}

// checkOutcome: each reference is there once, and has its rows once if it is accepted,
// and else never; no job waits.
func (s *scene) checkOutcome(want int) (refs []record.Record) {
	s.Helper()
	states := s.work()
	refs, rows := s.records()
	if len(refs) != want {
		s.Errorf("%d references", len(refs))
	}
	for _, r := range refs {
		n := 2
		if r.Rejected != "" {
			n = 0
		}
		if rows[string(r.Key)] != n {
			s.Errorf("%d rows of %s, rejected %q, pending %v", rows[string(r.Key)], r.Key, r.Rejected, r.Pending)
		}
	}
	for _, state := range states {
		if state.Phase != backfill.Open && (state.Phase != backfill.Cancelled || !strings.Contains(state.Reason, "was refused")) {
			s.Errorf("a job is %s: %s", state.Phase, state.Reason)
		}
	}
	return refs
}
