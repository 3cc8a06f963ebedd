package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestUnrouted: messages that came before their topic are in "unrouted", and
// need not be in the topic. The real writer makes that one.
func TestUnrouted(t *testing.T) {
	f := newFixture()
	f.feed().send(laneA, sourceA, 5)
	f.write(t)
	if got := found(f.verify(t)); !slices.Equal(got, one("lane.uncommitted")) {
		t.Fatalf("found %q", got)
	}
	store := segment.NewStore(f.client, "test")
	write(t, store, topic.Unrouted, sourceA, 5, 5)
	if r := f.verify(t); !r.OK {
		t.Errorf("%v", r.Violations)
	}
}

// TestRootFloors: what was refused because the topic did not exist is a floor of
// its first segments (ADR 0006).
func TestRootFloors(t *testing.T) {
	const source = "lane.other.0.cccccccc"
	for floors, want := range map[string][]Kind{
		`[{"lo":32768,"hi":65536,"source":"` + source + `","at":"7","time":"2026-03-01T12:00:00Z"}]`:   nil,
		`[{"lo":32768,"hi":65536,"source":"` + source + `","at":"8","time":"2026-03-01T12:00:00Z"}]`:   one("segment.floors"),
		`[{"lo":32768,"hi":65536,"source":"` + source + `","at":"7:1","time":"2026-03-01T12:00:00Z"}]`: one("segment.floors"),
		`[{"lo":32768,"hi":65535,"source":"` + source + `","at":"7","time":"2026-03-01T12:00:00Z"}]`:   one("segment.floors"),
		`[{"lo":32768,"hi":65536,"source":"` + source + `x","at":"1","time":"2026-03-01T12:00:00Z"}]`:  one("segment.floors"),
	} {
		f := newFixture()
		f.segs[1].with("floors", floors)
		f.write(t)
		write(t, segment.NewStore(f.client, "test"), topic.Unrouted, source, 5, 7)
		if got := found(f.verify(t)); !slices.Equal(got, want) {
			t.Errorf("floors %s: found %q, want %q", floors, got, want)
		}
	}
}

// TestRealRootFloors: the store makes such floors, and they go on to descendants.
func TestRealRootFloors(t *testing.T) {
	store := segment.NewStore(memfs.New().Client("test", nil), "test")
	if err := store.CreateCheckpoint(t.Context(), sourceA); err != nil {
		t.Fatal(err)
	}
	write(t, store, topic.Unrouted, sourceA, 1, 7)
	write(t, store, "late", sourceA, 8, 9)
	tp, err := store.Topic(t.Context(), "late")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = tp.Edit(t.Context(), began.Add(time.Hour), func(l topic.Layout) (topic.Edit, error) { return l.SplitWays(l.Live[0].ID, 3) }); err != nil {
		t.Fatal(err)
	}
	segments, err := tp.Segments(t.Context())
	if err != nil || len(segments[0].Floors) != 1 || len(segments[1].Floors) != 1 {
		t.Fatalf("%v, %+v", err, segments)
	}
	for _, name := range []string{topic.Unrouted, "late"} {
		r, err := Topic(t.Context(), store, nil, name)
		if err != nil {
			t.Fatal(err)
		}
		if got := found(r); !slices.Equal(got, one("checkpoint.back")) && !r.OK { // as in TestRealWriter
			t.Errorf("%s: %v", name, r.Violations)
		}
	}
}

// write appends messages of three rows to a topic with the real store.
func write(t testing.TB, store *segment.Store, name, source string, first, last uint64) {
	t.Helper()
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default"}
	tp, err := store.CreateTopic(t.Context(), def, 1, began)
	if err != nil && !errors.Is(err, segment.ErrTopicExists) {
		t.Fatal(err)
	}
	segments, err := tp.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	set := &record.Set{}
	for seq := first; seq <= last; seq++ {
		for i := range uint32(3) {
			key := fmt.Appendf(nil, "key %d", i)
			r := record.Record{Time: began.Add(time.Duration(seq) * time.Second), Position: topic.Position{Sequence: seq, Row: i}, Key: key, Value: key}
			if i == 1 {
				r.Ref = &record.Ref{URL: "s3://bucket/key"}
			}
			if err := set.Append(&r, topic.SlotOf(key)); err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				judge(t, set, seq)
			}
		}
	}
	_, err = segments[0].Append(t.Context(), segment.Input{Source: source, From: topic.Whole(first - 1), Set: set,
		Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
		Holds:      func(context.Context, segment.SourcePosition) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
}

// judge refuses some references, and leaves others pending: more than a chunk can
// name one by one.
func judge(t testing.TB, set *record.Set, seq uint64) {
	t.Helper()
	last := len(set.Recs) - 1
	switch {
	case seq%7 == 0:
		if err := set.Refuse(last, "no such object"); err != nil {
			t.Fatal(err)
		}
	case seq%3 > 0:
		set.Recs[last].Pending = true
	}
}

// TestRealWriter: what the store writes is sound by what this package reads.
func TestRealWriter(t *testing.T) {
	store := segment.NewStore(memfs.New().Client("test", nil), "test")
	if err := store.CreateCheckpoint(t.Context(), sourceA); err != nil {
		t.Fatal(err)
	}
	write(t, store, "real", sourceA, 1, 2000)
	write(t, store, "real", sourceA, 2001, 2002)
	r, err := Topic(t.Context(), store, nil, "real")
	if err == nil { // its writer said that it started from 2000, but the checkpoint never moved
		if got := found(r); !slices.Equal(got, one("checkpoint.back")) {
			t.Errorf("found %v", r.Violations)
		}
	}
	file := store.CheckpointFile(sourceA)
	c, version, err2 := file.Load(t.Context())
	if err = errors.Join(err, err2); err == nil {
		_, err = file.Save(t.Context(), c.Advance(2002, began, nil), version)
	}
	if err == nil {
		r, err = Topic(t.Context(), store, nil, "real")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK || r.Records != 6006 || r.Rejected != 286 || r.Chunks != 2 {
		t.Errorf("%+v", r)
	}
}
