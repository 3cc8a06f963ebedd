package functions

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/s3event"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// history is a filer with a bucket and a log of what happens in it, the last minute
// of which it loses when it crashes. Times are virtual.
type history struct {
	mu      sync.Mutex
	entries map[string]seaweed.ObjectEvent // by key, as they are
	log     []seaweed.ObjectEvent          // what it has to tell
	lost    map[string]bool                // ETags, or removals' sequencers, that it told of no more
	all     []seaweed.ObjectEvent          // what happened
	last    int64                          // stamp
	writes  uint64
	crashed chan struct{} // closed when it crashes; another one then
	news    chan struct{}
	silent  bool                                 // subscriptions never say that they are idle
	listing func()                               // called before each object that a listing tells of
	refuse  func(since int64, follow bool) error // of subscriptions
}

func newHistory() *history {
	return &history{entries: map[string]seaweed.ObjectEvent{}, lost: map[string]bool{}, crashed: make(chan struct{}), news: make(chan struct{})}
}

func (h *history) stamp() int64 {
	h.last = max(h.last+1, time.Now().UnixNano())
	return h.last
}

func (h *history) tell(e seaweed.ObjectEvent) {
	h.log = append(h.log, e)
	if e.Kind != seaweed.Touched {
		h.all = append(h.all, e)
	}
	close(h.news)
	h.news = make(chan struct{})
}

func (h *history) put(key string) seaweed.ObjectEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes++
	at := h.stamp()
	e := seaweed.ObjectEvent{
		Kind: seaweed.Created, Name: "ObjectCreated:Put", Object: filer.ObjectName{Bucket: "bkt", Key: key}, Size: 1,
		ETag: fmt.Sprint("w", h.writes), Sequencer: at, Modified: time.Unix(0, at).Truncate(time.Second), Write: h.writes,
	}
	h.entries[key] = e
	h.tell(e)
	return e
}

func (h *history) touch(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.entries[key]
	if !ok {
		return
	}
	was := e.Sequencer
	e.Sequencer = h.stamp()
	h.entries[key] = e
	e.Kind, e.Name, e.Was = seaweed.Touched, "", was
	h.tell(e)
}

func (h *history) remove(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.entries[key]; !ok {
		return
	}
	delete(h.entries, key)
	h.tell(seaweed.ObjectEvent{Kind: seaweed.Removed, Name: "ObjectRemoved:Delete", Object: filer.ObjectName{Bucket: "bkt", Key: key}, Sequencer: h.stamp()})
}

// crash loses the last events, up to a minute of them, and ends subscriptions.
func (h *history) crash(most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	durable := time.Now().Add(-time.Minute).UnixNano()
	for ; most > 0 && len(h.log) > 0 && h.log[len(h.log)-1].Sequencer > durable; most-- {
		e := h.log[len(h.log)-1]
		h.log = h.log[:len(h.log)-1]
		if e.Kind != seaweed.Touched {
			h.lost[nameOf(e.ETag, e.Sequencer)] = true
		}
	}
	close(h.crashed)
	h.crashed = make(chan struct{})
}

// nameOf is the ETag of a write, or for a removal its sequencer.
func nameOf(etag string, sequencer int64) string {
	if etag != "" {
		return etag
	}
	return fmt.Sprintf("%016X", sequencer)
}

var errCrashed = errors.New("the filer has crashed")

func (h *history) Subscribe(ctx context.Context, _ seaweed.Scope, since int64, follow bool, tell func(seaweed.Step) error) error {
	h.mu.Lock()
	crashed, refuse := h.crashed, h.refuse
	h.mu.Unlock()
	if refuse != nil {
		if err := refuse(since, follow); err != nil {
			return err
		}
	}
	for {
		h.mu.Lock()
		step, news := seaweed.Step{}, h.news
		if i := slices.IndexFunc(h.log, func(e seaweed.ObjectEvent) bool { return e.Sequencer > since }); i >= 0 {
			step.Events = []seaweed.ObjectEvent{h.log[i]}
			step.Upto = step.Events[0].Sequencer
		} else if follow && !h.silent {
			step.Idle, step.Upto = true, h.stamp()
		}
		h.mu.Unlock()
		if step.Upto > 0 {
			since = step.Upto
			if err := tell(step); err != nil {
				return err
			}
		}
		select {
		case <-crashed:
			return errCrashed
		case <-ctx.Done():
			return ctx.Err()
		default:
		}
		if len(step.Events) > 0 {
			continue
		}
		if !follow {
			return nil
		}
		select {
		case <-crashed:
		case <-ctx.Done():
		case <-news:
		case <-time.After(5 * time.Second):
		}
	}
}

func (h *history) Written(_ context.Context, _ seaweed.Scope, tell func(seaweed.ObjectEvent) error) error {
	h.mu.Lock()
	var list []seaweed.ObjectEvent
	for _, e := range h.entries {
		list = append(list, e)
	}
	listing := h.listing
	h.mu.Unlock()
	for _, e := range list {
		if listing != nil {
			listing()
		}
		if err := tell(e); err != nil {
			return err
		}
	}
	return nil
}

// lanes is JetStream with a stream that keeps what is published once for two
// minutes. It can be away, refuse, lose acknowledgements, and be slow.
type lanes struct {
	mu      sync.Mutex
	sent    []s3event.Event
	ids     map[string]time.Time
	away    bool
	rng     *rand.Rand
	faulty  float64 // share of publishes that go wrong
	delay   time.Duration
	pending int
	most    int // that were ever pending
}

func newLanes() *lanes { return &lanes{ids: map[string]time.Time{}, rng: rand.New(rand.NewPCG(1, 2))} }

func (l *lanes) set(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

// mortal is one relay's connection.
type mortal struct {
	*lanes
	dead bool
}

type ack struct {
	ok  chan *jetstream.PubAck
	err chan error
	msg *nats.Msg
}

func (a ack) Ok() <-chan *jetstream.PubAck { return a.ok }
func (a ack) Err() <-chan error            { return a.err }
func (a ack) Msg() *nats.Msg               { return a.msg }

func (l *mortal) PublishMsgAsync(m *nats.Msg, _ ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := ack{make(chan *jetstream.PubAck, 1), make(chan error, 1), m}
	if l.dead {
		return nil, nats.ErrConnectionClosed
	}
	l.pending++
	l.most = max(l.most, l.pending)
	wrong := l.away || l.rng.Float64() < l.faulty
	if !wrong || !l.away && l.rng.IntN(2) == 0 { // else it did not even arrive
		l.store(m)
	}
	time.AfterFunc(l.delay, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.pending--; wrong {
			a.err <- jetstream.ErrAsyncPublishTimeout
		} else {
			a.ok <- &jetstream.PubAck{}
		}
	})
	return a, nil
}

func (l *lanes) store(m *nats.Msg) {
	id := m.Header.Get(nats.MsgIdHdr)
	if at, ok := l.ids[id]; ok && time.Since(at) < 2*time.Minute {
		return
	}
	l.ids[id] = time.Now()
	events, err := s3event.Parse(m.Data)
	if err != nil || len(events) != 1 || events[0].Refused != nil {
		panic(fmt.Sprint(string(m.Data), events, err))
	}
	l.sent = append(l.sent, events[0])
}

// published are the names of what the stream has, in order.
func (l *lanes) published() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.sent {
		names = append(names, cmp.Or(e.ETag, e.Sequencer))
	}
	return names
}

// relayWorld is all that relays run on.
type relayWorld struct {
	t    *testing.T
	fs   *memfs.FS
	hist *history
	lane *lanes
	log  bytes.Buffer
	slog *slog.Logger
}

func newRelayWorld(t *testing.T) *relayWorld {
	t.Helper()
	w := &relayWorld{t: t, fs: memfs.New(), hist: newHistory(), lane: newLanes()}
	w.slog = slog.New(slog.NewTextHandler(&w.log, nil))
	c := w.fs.Client("test", nil)
	if _, err := segment.NewStore(c, "store").CreateTopic(t.Context(), topic.Definition{Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: lane.Default, Buckets: []string{"bkt"}}, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), "/buckets/bkt/x", filer.File{ID: filer.NewID(), Content: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	return w
}

// running is a relay that runs.
type running struct {
	*relay
	stop func()
	done chan error
	c    *memfs.Client
	js   *mortal
}

// idle is a relay that does not run.
func (w *relayWorld) idle(o S3EventsOptions) *running {
	o.Bucket, o.Topic = "bkt", "t"
	if o.Reconcile == 0 {
		o.Reconcile = time.Hour
	}
	c, js := w.fs.Client("relay", nil), &mortal{lanes: w.lane}
	r := &relay{
		deps:   Deps{Store: segment.NewStore(c, "store"), Logger: w.slog, Health: ingest.NewHealth(nil)},
		source: w.hist, scope: seaweed.Scope{Bucket: "bkt"}, o: o, now: time.Now, metrics: newRelayMetrics(nil),
	}
	r.out = &relayOut{js: js, subject: "spillway.s3.t", refused: r.refused}
	return &running{relay: r, done: make(chan error, 1), c: c, js: js}
}

func (w *relayWorld) relay(o S3EventsOptions) *running {
	w.t.Helper()
	run := w.idle(o)
	r := run.relay
	ctx, stop := context.WithCancel(w.t.Context())
	run.stop = stop
	go func() {
		if o.Once {
			r.out.patience = onceWait
			run.done <- r.once(ctx, ctx)
		} else {
			run.done <- r.reside(ctx, ctx)
		}
	}()
	return run
}

// end stops a relay in good order.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		t.Errorf("the relay ended with %v", err)
	}
}

// kill ends a relay as a power cut does.
func (r *running) kill() {
	r.c.Kill()
	r.js.mu.Lock()
	r.js.dead = true
	r.js.mu.Unlock()
	r.stop()
	if err := <-r.done; err != nil {
		panic(err) // a relay that is told to stop has no errors
	}
}
