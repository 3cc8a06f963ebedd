package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/s3event"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verify"
)

// simNotifications is how many there are in a simulation of events.
const simNotifications = 70

// eventStats counts what simulations of events went through.
type eventStats struct {
	simStats
	accepted, late, removals atomic.Int64
}

func (s *eventStats) all() map[string]*atomic.Int64 {
	return map[string]*atomic.Int64{
		"conflicts": &s.conflicts, "lost replies": &s.lostReplies, "takeovers": &s.takeovers, "partial drops": &s.partialDrops,
		"duplicates": &s.duplicates, "rejected": &s.rejected, "accepted": &s.accepted, "late events": &s.late, "removals": &s.removals,
	}
}

// eventWorld is a world whose lane has S3 events and nothing else.
type eventWorld struct {
	*world
	stats *eventStats
}

func newEventWorld(seed uint64, m mutant.Variant, stats *eventStats) *eventWorld {
	w := &eventWorld{newWorld(seed, m, &stats.simStats), stats}
	w.goBack, w.topics = false, []string{"t0", "t1"}
	return w
}

// definition: of two topics one records removals.
func (w *eventWorld) definition(i int) topic.Definition {
	return topic.Definition{
		Name: w.topics[i], Key: topic.KeyHeader, Lanes: lane.Default, Buckets: []string{"bkt"}, RecordRemovals: i == 1,
		FlushAge: topic.Duration(20*time.Millisecond + w.dice.span(400*time.Millisecond, "age", i)),
	}
}

func (w *eventWorld) run(ctx context.Context) error {
	admin := w.store(w.fs.Client("admin", nil))
	for i := range w.topics {
		if _, err := admin.CreateTopic(ctx, w.definition(i), 1+i, time.Now()); err != nil {
			return err
		}
	}
	if err := admin.CreateCheckpoint(ctx, lane.ID{Group: lane.Default}.Source("sim")); err != nil {
		return err
	}
	live, die := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var fatal [2]error
	for place := range fatal {
		wg.Go(func() { fatal[place] = w.place(live, place) })
	}
	for i := range simNotifications {
		bubble.Pass(w.dice.span(120*time.Millisecond, "produce", i))
		m := w.notification(i)
		w.servers[0].publish(m)
		if w.dice.chance(150, "again", i) { // a bridge that did not see the acknowledgement
			bubble.Pass(w.dice.span(1500*time.Millisecond, "again after", i))
			w.servers[0].publish(m)
		}
	}
	bubble.Pass(2 * time.Second)
	die()
	wg.Wait()
	bubble.Pass(10 * time.Second) // late requests arrive
	w.calm.Store(true)
	final, err := w.worker(ctx, 0, "final", func() time.Duration { return 0 })
	w.note(final)
	if err := errors.Join(fatal[0], fatal[1], err); err != nil {
		return fmt.Errorf("worker stopped: %w", err)
	}
	if err := w.check(ctx, admin); err != nil {
		return err
	}
	for _, name := range w.topics {
		report, err := verify.Topic(ctx, admin, nil, name)
		if err != nil || !report.OK {
			return fmt.Errorf("verify %s: %v, %w", name, report.Violations, err)
		}
	}
	return nil
}

// notification is the i-th message: events of four objects, whose order is a little
// mixed up, or something that is no notification.
func (w *eventWorld) notification(i int) Message {
	m := Message{Topic: w.topics[w.dice.roll("topic", i)%2], Event: true}
	if w.dice.chance(60, "garbage", i) {
		m.Data = fmt.Appendf(nil, "garbage %d", i)
		return m
	}
	kinds := []string{"put", "put", "put", "copy", "del", "tag"}
	var events []string
	for row := range 1 + w.dice.roll("rows", i)%4 {
		key := fmt.Sprintf("k%d", w.dice.roll("key", i, row)%4)
		seq := i
		switch {
		case w.dice.chance(200, "older", i, row):
			seq = max(0, i-1-int(w.dice.roll("how old", i, row)%6))
		case w.dice.chance(30, "bad", i, row):
			key = "%zz"
		}
		what := kinds[w.dice.roll("kind", i, row)%uint64(len(kinds))]
		events = append(events, fmt.Sprintf("%s %s %04x", what, key, seq))
	}
	m.Data = notification(events...)
	return m
}

// outcomes is what must be read of the lane: nothing, "accepted", "late", or
// "refused", by topic and position. It is told by the whole lane from its start,
// in which so few events are never forgotten.
func (w *eventWorld) outcomes() map[string]string {
	want, newest := map[string]string{}, map[string]string{}
	for _, m := range w.servers[0].archive {
		place := func(row int) string { return fmt.Sprintf("%s %d:%d", m.Topic, m.Sequence, row) }
		events, err := s3event.Parse(m.Data)
		if err != nil {
			want[place(0)] = "refused"
		}
		for row, e := range events {
			object := m.Topic + " " + e.Object.String()
			last, known := newest[object]
			silent := e.Kind == s3event.Ignored || e.Kind == s3event.Removed && m.Topic != "t1"
			switch {
			case e.Refused != nil:
				want[place(row)] = "refused"
				continue
			case e.Kind == s3event.Ignored || known && e.Sequencer == last:
				continue
			case known && e.Sequencer < last:
				if !silent {
					want[place(row)] = "late"
				}
				continue
			}
			newest[object] = e.Sequencer
			if !silent {
				want[place(row)] = "accepted"
			}
		}
	}
	return want
}

// check: each (object, sequencer) is accepted at most once, and every event of which
// there should be a record has one, with its verdict, whatever the workers went
// through.
func (w *eventWorld) check(ctx context.Context, s *segment.Store) error {
	want, got, once := w.outcomes(), map[string]string{}, map[string]string{}
	for _, name := range w.topics {
		t, err := s.Topic(ctx, name)
		if err != nil {
			return err
		}
		segments, err := t.Segments(ctx)
		if err != nil {
			return err
		}
		for _, seg := range segments {
			records, err := w.segment(ctx, seg)
			if err != nil {
				return err
			}
			for offset, r := range records {
				at := fmt.Sprintf("%s %s", name, r.Position)
				if got[at] != "" {
					return fmt.Errorf("%s is there twice, also in %s@%d", at, seg.ID, offset)
				}
				switch {
				case r.Rejected == lateEvent:
					got[at] = "late"
					w.stats.late.Add(1)
				case r.Rejected != "":
					got[at] = "refused"
				default:
					got[at] = "accepted"
					w.stats.accepted.Add(1)
					_, what, _ := strings.Cut(outcome(r), `"`)
					if event := name + what; once[event] == "" {
						once[event] = at
					} else {
						return fmt.Errorf("%s is accepted both at %s and at %s", event, once[event], at)
					}
					if r.Ref == nil {
						w.stats.removals.Add(1)
					}
				}
			}
		}
	}
	for at, outcome := range want {
		if got[at] != outcome {
			return fmt.Errorf("%s is %q, want %q", at, got[at], outcome)
		}
	}
	for at, outcome := range got {
		if want[at] == "" {
			return fmt.Errorf("%s is %q, want nothing there", at, outcome)
		}
	}
	return nil
}

// playEvents plays one seed in virtual time.
func playEvents(t *testing.T, seed uint64, m mutant.Variant, stats *eventStats) (err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err = newEventWorld(seed, m, stats).run(ctx)
	})
	return err
}

// TestSimulationEvents: S3 events with duplicates and out of order, through faults
// before, in and after every call, crashes, and two workers at once. Every worker
// decides the same about every event, whatever checkpoint it starts from.
func TestSimulationEvents(t *testing.T) {
	stats := &eventStats{}
	seeds := max(*simSeeds/10, 1)
	parallelSeeds(t, seeds, func(t *testing.T, seed uint64) bool {
		err := playEvents(t, seed, "", stats)
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		return err == nil
	})
	for name, n := range stats.all() {
		t.Logf("%-16s %d", name, n.Load())
		if n.Load() == 0 && seeds >= 100 {
			t.Errorf("no simulation met %s: they prove less than they claim", name)
		}
	}
}

// TestForgottenObjectsAreNoticed: workers that do not keep what their predecessors
// knew take events twice.
func TestForgottenObjectsAreNoticed(t *testing.T) {
	for seed := range uint64(200) {
		if err := playEvents(t, seed+1, mutant.ForgetProducers, &eventStats{}); err != nil {
			t.Logf("noticed by seed %d: %v", seed+1, err)
			return
		}
	}
	t.Error("200 simulations did not notice")
}
