package ingest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// quietLane is a lane in memory, without faults, to be used in virtual time.
type quietLane struct {
	mu       sync.Mutex
	messages []ingest.Message
	news     chan struct{} // closed at the next message
}

func newQuietLane() *quietLane { return &quietLane{news: make(chan struct{})} }

func (l *quietLane) publish(topic string, data []byte) { l.publishWith(topic, data, nil) }

func (l *quietLane) publishWith(topic string, data []byte, header map[string][]string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages = append(l.messages, ingest.Message{Topic: topic, Header: header, Data: data, Sequence: uint64(len(l.messages)) + 1, Time: time.Now()})
	close(l.news)
	l.news = make(chan struct{})
}

// at is a message, or nil and how to hear of more.
func (l *quietLane) at(sequence uint64) (*ingest.Message, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sequence == 0 || sequence > uint64(len(l.messages)) {
		return nil, l.news
	}
	m := l.messages[sequence-1]
	return &m, nil
}

func (l *quietLane) State(context.Context) (ingest.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return ingest.State{Incarnation: "i", First: 1, Last: uint64(len(l.messages))}, nil
}

func (l *quietLane) TimeOf(_ context.Context, sequence uint64) (time.Time, error) {
	m, _ := l.at(sequence)
	if m == nil {
		return time.Time{}, ingest.ErrNoMessage
	}
	return m.Time, nil
}

func (l *quietLane) Read(_ context.Context, from uint64) (ingest.Reader, error) {
	return &quietReader{l, from}, nil
}

func (l *quietLane) Announce(context.Context, string, uint64) error { return nil }
func (l *quietLane) Trim(context.Context, uint64) error             { return nil }

type quietReader struct {
	lane *quietLane
	next uint64
}

func (r *quietReader) Next(ctx context.Context) (ingest.Message, error) {
	for {
		m, news := r.lane.at(r.next)
		if m != nil {
			r.next++
			return *m, nil
		}
		select {
		case <-ctx.Done():
			return ingest.Message{}, ctx.Err()
		case <-news:
		}
	}
}

func (r *quietReader) Close() {}

// TestCreateBudget: with 1,000 topics in one lane a worker asks the filer for at
// most 200 creates a second in the long run, and yet keeps up: the more segments
// a flush touches, the longer the next one waits (rule 30).
func TestCreateBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			topics  = 1000
			budget  = 200 // creates a second
			seconds = 60
		)
		var creates atomic.Int64
		hook := func(op memfs.Op) memfs.Fault {
			if op.Name == "Create" {
				creates.Add(1)
			}
			return memfs.Fault{Delay: time.Millisecond}
		}
		fs, l := memfs.New(), newQuietLane()
		store := segment.NewStore(fs.Client("setup", nil), "bench")
		if err := store.CreateCheckpoint(t.Context(), laneID.Source("i")); err != nil {
			t.Fatal(err)
		}
		name := func(i int) string { return fmt.Sprintf("topic-%03d", i) }
		for i := range topics {
			def := topic.Definition{Name: name(i), Key: topic.KeyHeader, FlushAge: topic.Duration(topic.DefaultFlushAge), Lanes: laneID.Group}
			if _, err := store.CreateTopic(t.Context(), def, 1, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		stop, end := context.WithCancel(t.Context())
		w := ingest.NewWorker(ingest.Options{Lane: l, ID: laneID, Store: segment.NewStore(fs.Client("worker", hook), "bench")})
		done := make(chan error, 1)
		go func() { done <- w.Run(t.Context(), stop) }()
		start := time.Now()
		for range seconds {
			for i := range topics {
				l.publish(name(i), []byte("x"))
			}
			<-time.After(time.Second)
			// One flush may come at once, and one may be under way.
			allowed := time.Since(start).Seconds()*budget + 2*topics
			if n := float64(creates.Load()); n > allowed {
				t.Fatalf("%g creates after %s, %g are allowed", n, time.Since(start), allowed)
			}
		}
		if n := creates.Load(); n < seconds*budget/2 {
			t.Errorf("%d creates in %d s: the worker does not use its budget", n, seconds)
		}
		end()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := w.Counts().Committed; n != seconds*topics {
			t.Errorf("%d records are committed, %d were sent", n, seconds*topics)
		}
	})
}
