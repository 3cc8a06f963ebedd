package functions

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestJobKilled: a job of objects of several formats goes into a topic that is edited
// meanwhile, by run after run that is killed, and by one that is not.
func TestJobKilled(t *testing.T) {
	t.Parallel()
	fs := memfs.New()
	b := newBenchOn(t, devtest.NATS(t), fs.Client("test", nil))
	y := newYard(t, b, 4)
	parquet, flights := flightRows(t)
	const each = 40_000
	var objects []backfill.Object
	all := [][]string{flights}
	for i := range 3 {
		data := lines(i*each, each)
		objects = append(objects, y.put(string(rune('a'+i))+".ndjson.gz", zipped(t, data)))
		all = append(all, texts(data))
	}
	objects = append(objects, y.put("flights.parquet", parquet))
	id := y.job(t, 3, backfill.Limits{}, objects...)
	defer y.editing(t)()

	kills := 0
	for done := false; !done; {
		client := fs.Client("worker", nil)
		y.fresh()
		d := y.Deps
		d.NATS, d.Store = nil, segment.NewStore(client, "bench")
		r := newJobRunner(d)
		r.sources.Store(20) // so that flushes are small
		hard, kill := context.WithCancel(t.Context())
		timer := time.AfterFunc(200*time.Millisecond+rand.N(800*time.Millisecond), func() { client.Kill(); kill() })
		sum, err := r.run(hard, t.Context(), JobOptions{Topic: "t", ID: id, Force: true})
		if timer.Stop() && err != nil {
			t.Fatalf("%+v, %v", sum, err)
		}
		kill()
		if done = err == nil; !done {
			kills++
			if code := ExitCode(err); code != ExitRetry {
				t.Fatalf("killed: %v, exit code %d", err, code)
			}
		}
	}
	s := y.state(t, id)
	if sum := s.Summary; s.Phase != backfill.Done || sum.Rows != 3*each+6000 || sum.Objects != 4 || sum.Failed+sum.Rejected+sum.Filtered != 0 || kills == 0 {
		t.Errorf("%d kills, %+v, %+v", kills, s, sum)
	}
	y.holds(t, all...)
}

// editing edits the topic until the returned function is called.
func (y *yard) editing(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	edits := 0
	go func() {
		for ; ctx.Err() == nil; edits++ {
			_, err := y.top.Edit(ctx, time.Now(), func(l topic.Layout) (topic.Edit, error) {
				if len(l.Live) < 6 {
					large := slices.MaxFunc(l.Live, func(a, b topic.Live) int { return cmp.Compare(a.Size(), b.Size()) })
					return l.SplitWays(large.ID, 2)
				}
				at := rand.IntN(len(l.Live) - 1)
				return l.Merge(l.Live[at].ID, l.Live[at+1].ID)
			})
			if err != nil && ctx.Err() == nil {
				done <- err
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(100 * time.Millisecond)):
			}
		}
		done <- nil
	}()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil || edits < 2 {
			t.Errorf("%d edits, %v", edits, err)
		}
	})
}
