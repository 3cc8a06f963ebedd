package ingest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verify"
)

// randomName matches what differs from run to run in paths: incarnations and the
// last part of segment ids.
var randomName = regexp.MustCompile(`\b[a-z2-7]{8}\b`)

var (
	errBefore = errors.New("filer: unavailable")
	errLost   = errors.New("filer: connection lost")
)

const (
	simMessages   = 90
	simAfterwards = 8 // more messages, after a long silence
	simKeys       = 9
)

// world is one simulation: a filer, a lane or two, producers, places in which
// workers live and die, somebody who trims, and, with edits, two planners.
type world struct {
	dice      dice
	mutant    mutant.Set
	stats     *simStats
	fs        *memfs.FS
	servers   []*simServer // the lanes
	topics    []string     // the fourth is created in mid-run; the last is for what named it before
	objects   *simObjects
	edits     bool
	backfills []*simBackfill
	goBack    bool
	calm      atomic.Bool // faults are over
	mu        sync.Mutex
	trimmed   map[string]map[uint64]record.Record // read before they were trimmed
	lost      map[string]bool                     // values that the lane lost
}

func newWorld(seed uint64, m mutant.Variant, stats *simStats) *world {
	d := dice(seed)
	return &world{
		dice: d, mutant: mutant.Set{On: m}, stats: stats, fs: memfs.New(), servers: []*simServer{newSimServer()}, objects: newSimObjects(d, stats),
		topics: []string{"t0", "t1", "t2", "t3", topic.Unrouted},
		goBack: m == "" && d.chance(100, "go back"), trimmed: map[string]map[uint64]record.Record{}, lost: map[string]bool{},
	}
}

// withEdits adds a second lane, which is a second source for every topic, and planners.
func (w *world) withEdits() *world {
	w.edits = true
	w.servers = append(w.servers, newSimServer())
	return w
}

// store is an actor's view of the filer.
func (w *world) store(c *memfs.Client) *segment.Store {
	s := segment.NewStore(c, "sim")
	s.Codec, s.Mutant = record.CodecNull, w.mutant
	if w.dice.chance(500, "inline") {
		s.Inline = 0
	}
	return s
}

// hook decides the fate of a worker's filer calls.
func (w *world) hook(pause func() time.Duration, slow time.Duration) memfs.Hook {
	var mu sync.Mutex
	times := map[string]int{}
	return func(op memfs.Op) memfs.Fault {
		// What is asked must not depend on the random names, nor on which of two
		// calls at the same instant comes first, or the seed would not replay.
		what := op.Name + randomName.ReplaceAllString(op.Path, "*")
		mu.Lock()
		times[what]++
		q := []any{op.Client, what, times[what]}
		mu.Unlock()
		ask := func(permille uint64, what string) bool { return w.dice.chance(permille, append(q, what)...) }
		f := memfs.Fault{Delay: pause() + w.dice.span(4*time.Millisecond+slow, append(q, "delay")...)}
		if w.calm.Load() {
			return f
		}
		writes := op.Name == "Create" || op.Name == "Update" || op.Name == "Delete"
		switch {
		case ask(15, "before"):
			f.Before = errBefore
		case writes && ask(40, "after"):
			f.After = errLost
			w.stats.lostReplies.Add(1)
		case writes && ask(15, "late"):
			f.Late = w.dice.span(8*time.Second, append(q, "late for")...)
			w.stats.late.Add(1)
		case ask(10, "hold"):
			f.Hold = w.dice.span(2*time.Second, append(q, "hold for")...)
		}
		return f
	}
}

// run plays the simulation. The error, if any, is the first thing that is wrong.
func (w *world) run(ctx context.Context) error {
	admin := w.store(w.fs.Client("admin", nil))
	if err := w.setUp(ctx, admin); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	live, die := context.WithCancel(ctx)
	var wg sync.WaitGroup
	workers := 2 + len(w.servers) - 1 // two workers on the first lane, one on another
	fatal := make([]error, workers+2*len(w.backfills))
	for place := range fatal {
		wg.Go(func() {
			if place < workers {
				fatal[place] = w.place(live, place)
			} else {
				fatal[place] = w.backfillPlace(live, place-workers)
			}
		})
	}
	wg.Go(func() { w.trimmer(live, admin) })
	wg.Go(func() { w.creator(live) })
	if w.edits {
		for i := range 2 {
			wg.Go(func() { w.planner(live, i) })
		}
	}
	w.produce(ctx)
	time.Sleep(2 * time.Second)
	die()
	wg.Wait()
	time.Sleep(10 * time.Second) // late requests arrive
	w.calm.Store(true)
	for _, err := range fatal {
		if err != nil {
			return w.stopped(err)
		}
	}
	if err := w.create(ctx, admin, 3, topic.KeyHeader); err != nil && !errors.Is(err, segment.ErrTopicExists) {
		return err
	}
	if err := w.silence(ctx, admin); err != nil {
		return err
	}
	for l := range w.servers {
		final, err := w.worker(ctx, l, fmt.Sprintf("final%d", l), func() time.Duration { return 0 })
		w.note(final)
		if err != nil {
			return w.stopped(err)
		}
	}
	if err := w.finishBackfills(ctx, admin); err != nil {
		return err
	}
	if err := w.checkMarks(ctx, admin); err != nil {
		return err
	}
	if err := w.checkEdits(ctx, admin); err != nil {
		return err
	}
	if err := w.check(ctx, admin); err != nil {
		return err
	}
	return w.verify(ctx, admin)
}

// verify asks `spillway verify`, which shares nothing with the checks here, of
// the files alone. A lane that lost its tail may have lost the rest of a message
// of which some rows are committed; verify then rightly misses them.
func (w *world) verify(ctx context.Context, s *segment.Store) error {
	if w.servers[0].back > 0 || !w.dice.chance(250, "verify") {
		return nil
	}
	for _, name := range w.topics {
		report, err := verify.Topic(ctx, s, nil, name)
		if errors.Is(err, segment.ErrNoTopic) && name == topic.Unrouted {
			continue
		}
		if err != nil {
			return err
		}
		if !report.OK {
			return fmt.Errorf("verify: %s", report.Violations[0])
		}
	}
	return nil
}

// stopped judges a worker that refused to go on: that is right if the lane did
// go back, and only then.
func (w *world) stopped(err error) error {
	var back *LaneBackError
	if w.servers[0].back > 0 && (errors.As(err, &back) || errors.Is(err, segment.ErrSourceWentBack)) {
		w.stats.backStops.Add(1)
		return nil
	}
	return fmt.Errorf("worker stopped: %w", err)
}

func (w *world) setUp(ctx context.Context, s *segment.Store) error {
	for i, key := range []topic.Key{topic.KeyHeader, topic.KeyHeader, topic.KeyNone} {
		if err := w.create(ctx, s, i, key); err != nil {
			return err
		}
	}
	for l := range w.servers {
		if err := s.CreateCheckpoint(ctx, lane.ID{Group: lane.Default, N: l}.Source("sim")); err != nil {
			return err
		}
	}
	for _, b := range w.backfills {
		t, err := s.Topic(ctx, b.topic)
		if err != nil {
			return err
		}
		b.incarnation = t.Incarnation
		if err := s.CreateCheckpoint(ctx, b.source()); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) create(ctx context.Context, s *segment.Store, i int, key topic.Key) error {
	def := topic.Definition{
		Name: w.topics[i], Key: key, Lanes: lane.Default, Buckets: []string{"refs"},
		FlushAge: topic.Duration(20*time.Millisecond + w.dice.span(400*time.Millisecond, "age", i)),
	}
	_, err := s.CreateTopic(ctx, def, 1+int(w.dice.roll("segments", i)%3), time.Now())
	return err
}

// creator creates the fourth topic while messages for it are under way, and may
// die while it does: whoever meets the topic then finishes it.
func (w *world) creator(ctx context.Context) {
	for try := 0; ctx.Err() == nil; try++ {
		name := fmt.Sprintf("creator%d", try)
		time.Sleep(w.dice.span(8*time.Second, name))
		mine, kill := context.WithTimeout(ctx, w.dice.span(200*time.Millisecond, name, "lives"))
		client := w.fs.Client(name, w.hook(func() time.Duration { return 0 }, 0))
		stop := context.AfterFunc(mine, client.Kill)
		err := w.create(mine, w.store(client), 3, topic.KeyHeader)
		stop()
		kill()
		if err == nil {
			return
		}
	}
}

// place is where one worker after another lives and is killed.
func (w *world) place(ctx context.Context, place int) error {
	for life := 0; ctx.Err() == nil; life++ {
		name := fmt.Sprintf("w%d.%d", place, life)
		mine, kill := context.WithTimeout(ctx, 200*time.Millisecond+w.dice.span(4*time.Second, name, "lives"))
		var frozen atomic.Int64
		if w.dice.chance(300, name, "freezes") {
			at := w.dice.span(time.Second, name, "freezes at")
			length := w.dice.span(6*time.Second, name, "freezes for")
			time.AfterFunc(at, func() { frozen.Store(time.Now().Add(length).UnixNano()) })
		}
		worker, err := w.worker(mine, max(0, place-1), name, func() time.Duration {
			return max(0, time.Until(time.Unix(0, frozen.Load())))
		})
		kill()
		w.note(worker)
		if err != nil && mine.Err() == nil {
			return err
		}
		if life > 0 && worker.Counts().Messages > 0 {
			w.stats.takeovers.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.dice.span(time.Second, name, "rests")):
		}
	}
	return nil
}

// worker runs one worker until ctx ends, and kills its connections then: what
// it has sent may still arrive.
func (w *world) worker(ctx context.Context, l int, name string, pause func() time.Duration) (*Worker, error) {
	slow := time.Duration(0)
	if w.dice.chance(250, name, "slow") {
		slow = w.dice.span(300*time.Millisecond, name, "how slow")
	}
	client := w.fs.Client(name, w.hook(pause, slow))
	stopKill := context.AfterFunc(ctx, client.Kill)
	defer stopKill()
	lag := 500 * time.Millisecond
	if w.goBack {
		lag = time.Hour // what was trimmed cannot be compared
	}
	worker := NewWorker(Options{
		Lane:  &simLane{server: w.servers[l], dice: w.dice, name: name, calm: w.calm.Load(), pause: pause, stats: w.stats},
		ID:    lane.ID{Group: lane.Default, N: l},
		Store: w.store(client), TrimLag: lag, Once: w.calm.Load(), Mutant: w.mutant,
		Judge: &simJudge{w.objects, name, w.calm.Load()},
	})
	err := worker.Run(ctx, ctx)
	return worker, err
}

func (w *world) note(worker *Worker) {
	c := worker.Counts()
	w.stats.conflicts.Add(int64(c.Conflicts))
	w.stats.partialDrops.Add(int64(c.PartialDrops))
	w.stats.duplicates.Add(int64(c.Duplicates))
	w.stats.rejected.Add(int64(c.Rejected))
	w.stats.regrouped.Add(int64(c.Regrouped))
}

// trimmer is the retention of this world: it reads chunks, then trims them.
func (w *world) trimmer(ctx context.Context, s *segment.Store) {
	over := map[topic.SegmentID]bool{} // sealed, and trimmed to the seal
	for round := 0; ctx.Err() == nil; round++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.dice.span(1500*time.Millisecond, "trim", round)):
		}
		for i, name := range w.topics {
			t, err := s.Topic(ctx, name)
			if err != nil {
				continue
			}
			segments, err := t.Segments(ctx)
			if err != nil {
				continue
			}
			for _, seg := range segments {
				if !over[seg.ID] && w.dice.chance(400, "trims", round, seg.Range.Lo, i) {
					over[seg.ID] = w.trim(ctx, seg)
				}
			}
		}
	}
}

func (w *world) trim(ctx context.Context, seg *segment.Segment) (over bool) {
	tail, err := seg.Tail(ctx)
	if err != nil || tail.Entry.ID == "" {
		return false
	}
	for c, err := range seg.Chunks(ctx, 0) {
		if err != nil || c.Entry.N >= tail.Entry.N {
			break
		}
		if err := w.keep(ctx, seg, c); err != nil {
			return false
		}
	}
	if seg.Trim(ctx, tail.Entry.N) != nil {
		return false
	}
	w.stats.trims.Add(1)
	return tail.Sealed
}

func (w *world) keep(ctx context.Context, seg *segment.Segment, c segment.Chunk) error {
	offset := c.Base
	for r, err := range seg.Records(ctx, c) {
		if err != nil {
			return err
		}
		w.mu.Lock()
		id := string(seg.ID)
		if w.trimmed[id] == nil {
			w.trimmed[id] = map[uint64]record.Record{}
		}
		w.trimmed[id][offset] = r
		w.mu.Unlock()
		offset++
	}
	return nil
}

var _ filer.Store = (*memfs.Client)(nil)
