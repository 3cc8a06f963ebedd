package verify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// editWorld is a topic that the real store writes: two sources are taken in, now
// and then by a worker that dies, while the layout is edited, now and then by a
// planner that dies.
type editWorld struct {
	fs    *memfs.FS
	store *segment.Store
	topic *segment.Topic
	roll  func(n int, what string) int
	steps int
	on    mutant.Set
	edits int
}

func newEditWorld(ctx context.Context, on mutant.Set, roll func(n int, what string) int) (*editWorld, error) {
	w := &editWorld{fs: memfs.New(), roll: roll, on: on}
	w.store = w.client(nil)
	def := topic.Definition{Name: "edited", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default"}
	var err error
	if w.topic, err = w.store.CreateTopic(ctx, def, 1+roll(3, "roots"), began); err != nil {
		return nil, err
	}
	return w, errors.Join(w.store.CreateCheckpoint(ctx, sourceA), w.store.CreateCheckpoint(ctx, sourceB))
}

func (w *editWorld) client(hook memfs.Hook) *segment.Store {
	s := segment.NewStore(w.fs.Client("world", hook), "test")
	s.Mutant = w.on
	return s
}

// now is a planner's clock.
func (w *editWorld) now() time.Time {
	return began.Add(time.Hour + time.Duration(w.steps)*time.Second)
}

// step is one flush or one edit.
func (w *editWorld) step(ctx context.Context) error {
	w.steps++
	if w.roll(2, "edit or flush") == 1 {
		return w.flush(ctx, []string{sourceA, sourceB}[w.roll(2, "source")])
	}
	die := w.dies(40, "planner") // few edits make more calls
	mine, kill := context.WithCancel(ctx)
	defer kill()
	var calls atomic.Int64
	t, err := w.client(func(memfs.Op) memfs.Fault {
		if calls.Add(1) <= int64(die) {
			return memfs.Fault{}
		}
		kill()
		return memfs.Fault{Before: errors.New("died")}
	}).Topic(mine, "edited")
	if err == nil {
		_, err = t.Edit(mine, w.now(), w.edit)
	}
	var refused *topic.EditError
	if err == nil {
		w.edits++
	}
	if err == nil || errors.As(err, &refused) || mine.Err() != nil {
		return nil
	}
	return err
}

// dies is after how much somebody dies: mostly not at all.
func (w *editWorld) dies(n int, who string) int {
	if w.roll(4, who+" dies") < 3 {
		return math.MaxInt
	}
	return w.roll(n, who+" dies at")
}

func (w *editWorld) edit(l topic.Layout) (topic.Edit, error) {
	i := w.roll(len(l.Live), "which")
	switch kind := w.roll(4, "kind"); {
	case kind == 0:
		return l.Roll(l.Live[i].ID)
	case kind == 1 || len(l.Live) < 3:
		return l.SplitWays(l.Live[i].ID, 2+w.roll(2, "ways"))
	}
	var ids []topic.SegmentID
	for _, s := range l.Live[i:min(len(l.Live), i+2+w.roll(2, "parents"))] {
		ids = append(ids, s.ID)
	}
	return l.Merge(ids...)
}

// flush takes in the next messages of a source, as a worker does that starts from
// the checkpoint. It may die before it has committed to every segment.
func (w *editWorld) flush(ctx context.Context, source string) error {
	file := w.store.CheckpointFile(source)
	c, version, err := file.Load(ctx)
	if err != nil {
		return err
	}
	last := c.Sequence + 1 + uint64(w.roll(4, "messages"))
	l, err := w.topic.Finish(ctx)
	if err != nil {
		return err
	}
	sets, err := route(l, source, c.Sequence+1, last)
	if err != nil {
		return err
	}
	die := w.dies(len(l.Live), "worker")
	for i, live := range l.Live {
		if i == die {
			return nil
		}
		if err := w.append(ctx, live.ID, segment.Input{Source: source, From: topic.Whole(c.Sequence), Set: sets[live.ID]}); err != nil {
			return err
		}
	}
	if w.roll(4, "checkpoint is late") < 3 {
		_, err = file.Save(ctx, c.Advance(last, sent(last), nil), version)
	}
	return err
}

func (w *editWorld) append(ctx context.Context, id topic.SegmentID, in segment.Input) error {
	s, err := w.topic.Segment(ctx, id)
	if err != nil || in.Set == nil {
		return err
	}
	in.Holds = func(context.Context, segment.SourcePosition) error { return nil }
	in.Checkpoint = func(ctx context.Context) (topic.Position, error) {
		c, _, err := w.store.CheckpointFile(in.Source).Load(ctx)
		return topic.Whole(c.Sequence), err
	}
	_, err = s.Append(ctx, in)
	return err
}

func sent(seq uint64) time.Time { return began.Add(time.Duration(seq) * time.Second) }

// route divides messages of three rows by the segments that own them.
func route(l topic.Layout, source string, first, last uint64) (map[topic.SegmentID]*record.Set, error) {
	sets := map[topic.SegmentID]*record.Set{}
	for seq := first; seq <= last; seq++ {
		for i := range uint32(3) {
			key := fmt.Appendf(nil, "%s %d", source, (seq*3+uint64(i))%17)
			slot := topic.SlotOf(key)
			id := l.Route(slot)
			if sets[id] == nil {
				sets[id] = &record.Set{}
			}
			r := record.Record{Time: sent(seq), Position: topic.Position{Sequence: seq, Row: i}, Key: key, Value: key}
			if err := sets[id].Append(&r, slot); err != nil {
				return nil, err
			}
		}
	}
	return sets, nil
}

// TestEditsAreSound: whatever chain of edits the real store makes, whoever dies in
// it, the topic is sound after each step.
func TestEditsAreSound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, err := newEditWorld(t.Context(), mutant.Set{}, func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(rt, what) })
		if err != nil {
			rt.Fatal(err)
		}
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			if err := w.step(t.Context()); err != nil {
				rt.Fatal(err)
			}
			r, err := Topic(t.Context(), w.store, nil, "edited")
			if err != nil {
				rt.Fatal(err)
			}
			for _, v := range r.Violations {
				rt.Error(v)
			}
		}
	})
}

// TestVerifyWhileEditing: verifying goes on while the topic changes under it. At
// each of its calls to the filer, a step or two may be made.
func TestVerifyWhileEditing(t *testing.T) {
	edits := 0
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w, err := newEditWorld(t.Context(), mutant.Set{}, func(n int, _ string) int { return rnd.IntN(n) })
		for range rnd.IntN(10) {
			err = errors.Join(err, w.step(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		often := 1 + rnd.IntN(8)
		var one sync.Mutex // some calls are made at once
		watched := w.client(func(op memfs.Op) memfs.Fault {
			one.Lock()
			defer one.Unlock()
			if w.steps < 40 && rnd.IntN(often) == 0 {
				if err := w.step(t.Context()); err != nil {
					t.Errorf("seed %d: at %s %s: %v", seed, op.Name, op.Path, err)
				}
			}
			return memfs.Fault{}
		})
		r, err := Topic(t.Context(), watched, nil, "edited")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range r.Violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		edits += w.edits
	}
	if edits < 300 {
		t.Errorf("only %d edits were made", edits)
	}
}

// TestBrokenEdits: topics that broken variants of the store make are not sound, and
// what is wrong is named: where it is made, and where it has doubled or lost a
// record.
func TestBrokenEdits(t *testing.T) {
	for variant, want := range map[mutant.Variant][]Kind{
		mutant.FloorFromOneParent: {"segment.floors", "records.lineage"},
		mutant.FloorIsOneNumber:   {"segment.floors", "rows.missing"},
		mutant.FloorsNotComposed:  {"seal.floors", "records.lineage"},
	} {
		t.Run(string(variant), func(t *testing.T) {
			caught := map[Kind]int{}
			for seed := range uint64(25) {
				rnd := rand.New(rand.NewPCG(seed, 0))
				w, err := newEditWorld(t.Context(), mutant.Set{On: variant}, func(n int, _ string) int { return rnd.IntN(n) })
				for range 30 {
					if err == nil {
						err = w.step(t.Context())
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				r, err := Topic(t.Context(), w.store, nil, "edited")
				if err != nil {
					t.Fatal(err)
				}
				for _, kind := range found(r) {
					if caught[kind]++; !slices.Contains(want, kind) {
						t.Errorf("seed %d: found %v", seed, r.Violations)
					}
				}
			}
			if len(caught) != len(want) {
				t.Errorf("found %v, want %q", caught, want)
			}
		})
	}
}

// TestCompletedTwice: a helper that slept while another one completed the edit.
func TestCompletedTwice(t *testing.T) {
	for on, want := range map[mutant.Variant][]Kind{"": nil, mutant.CompletionAtNextFree: one("layout.order")} {
		w, err := newEditWorld(t.Context(), mutant.Set{On: on}, func(int, string) int { return 0 })
		if err != nil {
			t.Fatal(err)
		}
		helped := false
		slow, err := w.client(func(op memfs.Op) memfs.Fault {
			if op.Name == "Create" && strings.HasSuffix(op.Path, "segment.json") && !helped {
				helped = true
				if _, err := w.topic.Finish(t.Context()); err != nil {
					t.Error(err)
				}
			}
			return memfs.Fault{}
		}).Topic(t.Context(), "edited")
		if err == nil {
			_, err = slow.Edit(t.Context(), w.now(), w.edit)
		}
		if err != nil || !helped {
			t.Fatal(err, helped)
		}
		r, err := Topic(t.Context(), w.store, nil, "edited")
		if err != nil {
			t.Fatal(err)
		}
		if got := found(r); !slices.Equal(got, want) {
			t.Errorf("%s: found %v, want %q", on, r.Violations, want)
		}
	}
}
