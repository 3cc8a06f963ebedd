package functions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/followup"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
	"github.com/spillway-mq/spillway/internal/work"
)

// endpoint has the objects that it is told of, by key.
type endpoint struct {
	mu   sync.Mutex
	says map[string]error
	down error
}

func (e *endpoint) Head(_ context.Context, _, key, _ string) (object.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down != nil {
		return object.Info{}, e.down
	}
	err, known := e.says[key]
	if !known {
		err = object.ErrNotFound
	}
	return object.Info{Size: 1}, err
}

func (e *endpoint) put(key string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.says[key] = err
}

func (e *endpoint) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = err
}

var errEndpoint = &object.UnavailableError{Op: "head", Err: errors.New("connection refused")}

// judged gives a bench an endpoint.
func (b *bench) judged() *endpoint {
	e := &endpoint{says: map[string]error{}}
	b.Judge = &verdict.Judge{Objects: e}
	return e
}

// referring makes a topic whose records may refer to a bucket.
func (b *bench) referring(t *testing.T, name, bucket string) *segment.Topic {
	t.Helper()
	top, err := b.Store.CreateTopic(t.Context(), topic.Definition{
		Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default, Buckets: []string{bucket},
	}, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// submit publishes references without a look at their objects, and has them
// committed.
func (b *bench) submit(t *testing.T, name, bucket string, keys ...string) {
	t.Helper()
	p, err := client.NewProducer(b.NATS, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if _, err := p.Submit(t.Context(), name, client.Reference{URL: "s3://" + bucket + "/" + key}, client.Record{}, client.Unchecked()); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.fresh()
	if sum, err := Ingest(t.Context(), b.Deps, IngestOptions{Once: true}); err != nil || sum.Committed != uint64(len(keys)) {
		t.Fatalf("%+v, %v", sum, err)
	}
}

// refsOnce makes one run.
func (b *bench) refsOnce(t *testing.T, o RefsOptions) (RefsSummary, error) {
	t.Helper()
	b.fresh()
	o.Once = true
	return Refs(t.Context(), b.Deps, o)
}

// refs runs a resident follow-up until the test ends.
func (b *bench) refs(t *testing.T, o RefsOptions) {
	t.Helper()
	b.fresh()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	d := b.Deps
	go func() { _, err := Refs(ctx, d, o); done <- err }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("told to stop, the follow-up ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the follow-up does not end")
		}
	})
}

// tokens puts tokens to follow up topics.
func (b *bench) tokens(t *testing.T, names ...string) {
	t.Helper()
	q, err := work.Open(t.Context(), b.js)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := q.Put(t.Context(), work.Subject(work.Refs, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bench) followed(t *testing.T, top *segment.Topic) followup.State {
	t.Helper()
	s, err := followup.Load(t.Context(), b.Store, top)
	if err != nil && !errors.Is(err, filer.ErrNotFound) {
		t.Fatal(err)
	}
	return s
}

// TestRefsFollowAWorker: what a worker commits as pending is looked at again without
// anybody asking for it, and no longer once the object has come.
func TestRefsFollowAWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	e := b.judged()
	top := b.referring(t, "t", "bucket")
	e.put("there", nil)
	b.refs(t, RefsOptions{Period: time.Hour, RetryAfter: time.Second})
	b.submit(t, "t", "bucket", "there", "late", "wrong")
	until(t, "two references are open", func() bool { return len(b.followed(t, top).Open) == 2 })
	e.put("late", nil)
	e.put("wrong", &verdict.NotAllowedError{Topic: "t"})
	until(t, "none is open", func() bool { s := b.followed(t, top); return len(s.Open) == 0 && len(s.GivenUp) == 1 })
	until(t, "the token is done", func() bool { return b.waiting(t) == 0 })
	b.verify(t, "t")
}

// TestRefsOnce: one run looks at what is due, and its exit code tells whether it
// could.
func TestRefsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	if _, err := b.refsOnce(t, RefsOptions{}); ExitCode(err) != ExitConfig || !strings.Contains(err.Error(), "--s3") {
		t.Errorf("without S3: %v, exit code %d", err, ExitCode(err))
	}
	e := b.judged()
	top := b.referring(t, "t", "bucket")
	b.submit(t, "t", "bucket", "a", "b")
	e.put("a", nil)
	sum, err := b.refsOnce(t, RefsOptions{RetryAfter: time.Second})
	if err != nil || sum.Topics != 1 || sum.Looked != 2 || sum.Resolved != 1 || sum.Open != 1 || sum.Tokens != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	if b.waiting(t) != 1 {
		t.Error("no token waits for what is open")
	}
	e.fail(errEndpoint)
	b.submit(t, "t", "bucket", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	sum, err = b.refsOnce(t, RefsOptions{RetryAfter: time.Second})
	if ExitCode(err) != ExitRetry || sum.Silent != 1 || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("the endpoint is away: %+v, %v", sum, err)
	}
	e.fail(nil)
	bad := b.referring(t, "bad", "bucket")
	if err := b.Store.Filer.Create(t.Context(), bad.Dir()+"/refs.json", filer.File{ID: filer.NewID(), Content: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	b.tokens(t, "bad", "gone")
	if _, err := b.js.Publish(t.Context(), "spillway.work.refs.NO-NAME", nil); err != nil {
		t.Fatal(err)
	}
	until(t, "all is due", func() bool {
		s := b.followed(t, top)
		for _, o := range s.Open {
			if time.Now().Before(o.Due) {
				return false
			}
		}
		return true
	})
	sum, err = b.refsOnce(t, RefsOptions{All: true})
	if ExitCode(err) != ExitBug || !errors.Is(err, filer.ErrCorrupt) || sum.Failed != 1 || sum.Topics != 1 || sum.Open != 10 {
		t.Errorf("with a damaged state: %+v, %v", sum, err)
	}
	if n := b.waiting(t); n != 2 {
		t.Errorf("%d tokens wait, want those of the topic with open references and of the damaged one", n)
	}
}

// TestRefsWithoutServers: a run that meets servers that are away does what it can,
// and ends with exit code 75; a queue that is none is for somebody to mend.
func TestRefsWithoutServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := devtest.NATSOn(t, dir, server.RANDOM_PORT)
	o := newOutage(func(memfs.Op) memfs.Fault { return memfs.Fault{Before: errors.New("connection refused")} })
	b := newBenchOn(t, srv, memfs.New().Client("worker", o.hook))
	e := b.judged()
	b.referring(t, "t", "bucket")
	b.submit(t, "t", "bucket", "a", "b")
	e.put("a", nil)

	o.on.Store(true)
	start := time.Now()
	sum, err := b.refsOnce(t, RefsOptions{Deadline: 2 * time.Second})
	if took := time.Since(start); ExitCode(err) != ExitRetry || sum.Topics != 0 || took > 4*time.Second {
		t.Errorf("without a filer: %+v, %v after %s", sum, err, took)
	}
	o.on.Store(false)

	port := devtest.StopNATS(srv)
	sum, err = b.refsOnce(t, RefsOptions{Deadline: 8 * time.Second})
	if ExitCode(err) != ExitRetry || sum.Resolved != 1 {
		t.Errorf("without NATS: %+v, %v", sum, err)
	}
	devtest.NATSOn(t, dir, port)
	until(t, "NATS is back", func() bool { return b.NATS.IsConnected() })

	if err := b.js.DeleteStream(t.Context(), work.Stream); err != nil {
		t.Fatal(err)
	}
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: work.Stream, Subjects: []string{"spillway.work.>"}}); err != nil {
		t.Fatal(err)
	}
	sum, err = b.refsOnce(t, RefsOptions{})
	if ExitCode(err) != ExitConfig || sum.Topics != 1 {
		t.Errorf("another queue: %+v, %v, exit code %d", sum, err, ExitCode(err))
	}
}

// TestRefsAtTheDeadline: what is under way when the deadline is near is saved, and the
// exit code tells that there is more.
func TestRefsAtTheDeadline(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.judged()
	top := b.referring(t, "t", "bucket")
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	b.submit(t, "t", "bucket", keys...)
	b.Judge = &verdict.Judge{Objects: slowly{}}
	sum, err := b.refsOnce(t, RefsOptions{Deadline: 2 * time.Second})
	if ExitCode(err) != ExitRetry || sum.Left != 1 || sum.Looked == 0 || sum.Looked >= len(keys) {
		t.Errorf("%+v, %v", sum, err)
	}
	if open := len(b.followed(t, top).Open); open != sum.Looked {
		t.Errorf("%d were looked at, and %d are open", sum.Looked, open)
	}
}

// slowly is an endpoint that takes its time, and has nothing.
type slowly struct{}

func (slowly) Head(ctx context.Context, _, _, _ string) (object.Info, error) {
	select {
	case <-ctx.Done():
		return object.Info{}, ctx.Err()
	case <-time.After(400 * time.Millisecond):
		return object.Info{}, object.ErrNotFound
	}
}

// TestRefsHealth: a follow-up that can tell of some topic is healthy; one for which
// nobody answers is not.
func TestRefsHealth(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := ingest.NewHealth(func() time.Time { return now })
	n := &pending{deps: Deps{Health: h}}
	fault := errors.New("connection refused")
	for _, step := range []struct {
		sum  followup.Summary
		err  error
		sick bool
	}{
		{followup.Summary{Topics: 3, Failed: 1}, fault, false},
		{followup.Summary{Failed: 1}, fault, true},
		{followup.Summary{Topics: 3, Silent: 1, Fault: fault}, nil, false},
		{followup.Summary{Topics: 3, Silent: 3, Fault: fault}, nil, true},
		{followup.Summary{Topics: 3, Open: 100, Full: 1}, nil, false},
		{followup.Summary{}, nil, false},
	} {
		for range 4 { // for longer than a fault is nobody's business
			n.health(step.sum, step.err)
			now = now.Add(20 * time.Second)
		}
		if err := h.Err(); (err != nil) != step.sick {
			t.Errorf("%+v, %v: health %v", step.sum, step.err, err)
		}
	}
}
