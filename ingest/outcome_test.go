package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// opinion is what a worker finds out about each reference.
type opinion struct {
	of   map[string]error // by key of the object
	mu   sync.Mutex
	pins map[string]bool
}

func (o *opinion) Judge(_ context.Context, _ topic.Definition, f record.Ref) error {
	key := strings.TrimPrefix(f.URL, "s3://allowed/")
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[key] == nil {
		o.pins[key] = true
	}
	return o.of[key]
}

var opinions = map[string]error{
	"verified": nil,
	"refused":  &ref.MismatchError{What: "size", Want: "1", Got: "2"},
	"pending":  object.ErrForbidden,
}

// ends are the ways in which the first worker is stopped at a call to the filer.
var ends = map[string]func(kill func()) memfs.Fault{
	"dies before it": func(kill func()) memfs.Fault { kill(); return memfs.Fault{Before: errors.New("killed")} },
	"dies after it": func(kill func()) memfs.Fault {
		time.AfterFunc(0, kill)
		return memfs.Fault{After: errors.New("killed")}
	},
	"freezes in it": func(func()) memfs.Fault { return memfs.Fault{Delay: time.Minute} },
}

// TestTwoOpinionsOneOutcome: two workers judge the same two references in each way
// there is, the first one dies or freezes at each call that it makes, and the second
// does the work anew. Each record is there once, with an outcome that one of them
// has found, and pinned if it is accepted.
func TestTwoOpinionsOneOutcome(t *testing.T) {
	runs, disputed := 0, 0
	for a := range opinions {
		for b := range opinions {
			for end, fault := range ends {
				for n := 1; ; n++ {
					reached, first := twoOpinions(t, a, b, n, fault)
					if t.Failed() {
						t.Fatalf("the first says %s and then %s, the second the other way round; the first %s at call %d", a, b, end, n)
					}
					if runs++; first && a != b {
						disputed++
					}
					if !reached {
						break
					}
				}
			}
		}
	}
	t.Logf("%d runs, in %d the first worker's verdict counted though the second had another", runs, disputed)
	if runs < 300 || disputed == 0 {
		t.Error("this proves less than it claims")
	}
}

// twoOpinions is one run. It returns whether the first worker got to call n, and
// whether any of its verdicts counts.
func twoOpinions(t *testing.T, a, b string, n int, fault func(kill func()) memfs.Fault) (reached, first bool) {
	synctest.Test(t, func(t *testing.T) {
		c := &clerk{t: t, lane: newQuietLane()}
		fs := memfs.New()
		c.store = segment.NewStore(fs.Client("admin", nil), "test")
		if err := c.store.CreateCheckpoint(t.Context(), laneID.Source("i")); err != nil {
			t.Fatal(err)
		}
		def := topic.Definition{Name: "refs", Key: topic.KeyHeader, FlushAge: topic.Duration(100 * time.Millisecond), Lanes: laneID.Group, Buckets: []string{"allowed"}}
		if _, err := c.store.CreateTopic(t.Context(), def, 2, time.Now()); err != nil {
			t.Fatal(err)
		}
		c.submit(record.Ref{URL: "s3://allowed/x", Size: 1}, record.Ref{URL: "s3://allowed/y", Size: 1})
		worker := func(name string, o *opinion, hook memfs.Hook) (*ingest.Worker, *memfs.Client) {
			client := fs.Client(name, hook)
			return ingest.NewWorker(ingest.Options{Lane: c.lane, ID: laneID, Store: segment.NewStore(client, "test"), Judge: o, Once: true}), client
		}
		one := &opinion{of: map[string]error{"x": opinions[a], "y": opinions[b]}, pins: map[string]bool{}}
		two := &opinion{of: map[string]error{"x": opinions[b], "y": opinions[a]}, pins: map[string]bool{}}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		calls := 0
		var mine *memfs.Client
		w, mine := worker("one", one, func(memfs.Op) memfs.Fault {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls != n {
				return memfs.Fault{}
			}
			reached = true
			return fault(func() { cancel(); mine.Kill() })
		})
		done := make(chan struct{})
		go func() { defer close(done); _ = w.Run(ctx, ctx) }() // what it says does not matter
		bubble.Pass(10 * time.Second)                          // it is done, dead, or frozen
		w2, _ := worker("two", two, nil)
		if err := w2.Run(t.Context(), t.Context()); err != nil {
			t.Error(err)
		}
		bubble.Pass(2 * time.Minute)
		cancel()
		<-done
		first = c.oneOutcome(one, two)
	})
	return reached, first
}

// oneOutcome checks the two records, and tells whether any outcome is the first
// worker's alone.
func (c *clerk) oneOutcome(one, two *opinion) (first bool) {
	got := c.read("refs")
	if len(got) != 2 {
		c.t.Errorf("%d records: %+v", len(got), got)
		return false
	}
	for _, r := range got {
		key := strings.TrimPrefix(r.Ref.URL, "s3://allowed/")
		outcome, _, _ := strings.Cut(outcomeOf(r), ":")
		if outcome == "reference" {
			outcome = "refused"
		}
		is := func(o *opinion) bool { return fmt.Sprint(o.of[key]) == fmt.Sprint(opinions[outcome]) }
		if !is(one) && !is(two) {
			c.t.Errorf("%s is %s, as nobody has found", key, outcome)
		}
		if outcome == "verified" && !one.pins[key] && !two.pins[key] {
			c.t.Errorf("%s is accepted and not pinned", key)
		}
		first = first || is(one) && !is(two)
	}
	return first
}
