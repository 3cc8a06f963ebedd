package functions

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/followup"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
	"github.com/spillway-mq/spillway/internal/work"
)

// TestRefsLeaveTokensToOthers: a follow-up that cannot look at a topic's objects, for
// they are at another endpoint, leaves the token to one that can.
func TestRefsLeaveTokensToOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	e := &endpoint{says: map[string]error{}}
	here := &verdict.Judge{Objects: e, Endpoint: "http://here:8333"}
	there := &verdict.Judge{Objects: e, Endpoint: "http://there:8333"}
	top, err := b.Store.CreateTopic(t.Context(), topic.Definition{
		Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default,
		Buckets: []string{"bucket"}, Endpoint: there.Endpoint,
	}, 1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b.Judge = here
	b.submit(t, "t", "bucket", "a")
	b.tokens(t, "t")
	if sum, err := b.refsOnce(t, RefsOptions{}); err != nil || sum.Tokens != 1 || sum.Elsewhere != 1 || sum.Looked != 0 {
		t.Errorf("here: %+v, %v", sum, err)
	}
	if n := b.waiting(t); n != 1 {
		t.Fatalf("%d tokens are left for whoever has the endpoint", n)
	}
	e.put("a", nil)
	b.Judge = there
	until(t, "the one that has the endpoint takes the token, and is done", func() bool {
		if sum, err := b.refsOnce(t, RefsOptions{}); err != nil || sum.Elsewhere != 0 {
			t.Fatalf("there: %+v, %v", sum, err)
		}
		return b.waiting(t) == 0
	})
	if s := b.followed(t, top); len(s.Open)+len(s.GivenUp) != 0 {
		t.Errorf("%+v", s)
	}
}

// TestElsewhereLater: a token is soon for the one who can use it, and costs little if
// there is none.
func TestElsewhereLater(t *testing.T) {
	last := time.Duration(0)
	for _, tries := range []uint64{0, 1, 2, 3, 4} {
		d := elsewhereLater(tries)
		if d <= last || d < refsSoonest || d >= refsLater {
			t.Errorf("try %d: %s, before that %s", tries, d, last)
		}
		last = d
	}
	for _, tries := range []uint64{5, 63, 64, 1 << 40} {
		if d := elsewhereLater(tries); d != refsLater {
			t.Errorf("try %d: %s", tries, d)
		}
	}
}

// stopping is an endpoint that has everything, and after so many looks tells whoever
// follows up to stop.
type stopping struct {
	left atomic.Int64
	stop context.CancelFunc
}

func (s *stopping) Head(context.Context, string, string, string) (object.Info, error) {
	if s.left.Add(-1) == 0 {
		s.stop()
	}
	return object.Info{Size: 1}, nil
}

// TestRefsStoppedKeepTheToken: a follow-up that is told to stop in the middle of a
// topic leaves the token to the next one.
func TestRefsStoppedKeepTheToken(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.judged()
	b.referring(t, "t", "bucket")
	keys := make([]string, 200)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	b.submit(t, "t", "bucket", keys...)
	b.tokens(t, "t")
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	e := &stopping{stop: cancel}
	e.left.Store(20)
	n := &pending{deps: b.Deps, follower: followup.New(followup.Options{Store: b.Store, Judge: &verdict.Judge{Objects: e}})}
	calls := &taker{kind: work.Refs, js: b.js, log: b.Logger, handle: n.handle}
	if taken, err := calls.drain(t.Context(), stop); err != nil || taken != 1 || n.sum.Left != 1 || n.sum.Looked >= len(keys) || n.sum.Open != 0 {
		t.Fatalf("%d tokens, %+v, %v", taken, n.sum, err)
	}
	if left := b.waiting(t); left != 1 {
		t.Errorf("%d tokens are left, and %d of %d were looked at", left, n.sum.Looked, len(keys))
	}
}
