package segment

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestManySources: positions of other sources are left out once their checkpoints have
// passed them, and of no others, so that a chunk does not list every backfill that ever was.
func TestManySources(t *testing.T) {
	top, segs := newTopic(t, memfs.New(), 1)
	seg := segs[0]
	open := 0
	for i := range 200 {
		source := BackfillSource(fmt.Sprint("job", i), 0)
		if err := seg.topic.store.CreateCheckpoint(t.Context(), source); err != nil {
			t.Fatal(err)
		}
		out := mustAppend(t, seg, input(t, source, 1, 3))
		if at := out.Chunk.PositionOf(source).At; at != (topic.Position{Sequence: 3}) {
			t.Fatalf("%s is at %s", source, at)
		}
		if i%50 == 7 { // this one never ends
			open++
			continue
		}
		file := top.store.CheckpointFile(source)
		c, version, err := file.Load(t.Context())
		if err == nil {
			_, err = file.Save(t.Context(), c.AdvanceRows(2, 1, Tally{}, time.Now()), version) // 3:0
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := len(out.Chunk.Positions); n > mostForeign+2*open+2 {
			t.Fatalf("chunk %d has %d positions", i, n)
		}
	}
	end, err := other(t, seg).Tail(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := 7; i < 200; i += 50 {
		if at := end.PositionOf(BackfillSource(fmt.Sprint("job", i), 0)).At; at != (topic.Position{Sequence: 3}) {
			t.Errorf("source %d, which no checkpoint has passed, is at %s", i, at)
		}
	}
}

// TestCheckpointRows: a checkpoint's position grows with rows and objects as they are
// done, and lies at the last row that is.
func TestCheckpointRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		objects := rapid.SliceOfN(rapid.Uint32Range(0, 5), 1, 6).Draw(t, "rows of objects")
		c, last := Checkpoint{}, topic.Position{}
		for n, rows := range objects {
			for row := range rows {
				c = c.AdvanceRows(uint64(n), row+1, Tally{Rows: 1}, time.Now())
				if at, want := c.Position(), (topic.Position{Sequence: uint64(n) + 1, Row: row}); at != want || !at.After(last) {
					t.Fatalf("after row %d of object %d: %s, before it %s", row, n+1, at, last)
				}
				last = c.Position()
			}
			c = c.AdvanceRows(uint64(n)+1, 0, Tally{Objects: 1}, time.Now())
			if at := c.Position(); at != topic.Whole(uint64(n)+1) || !at.After(last) {
				t.Fatalf("after object %d: %s, before it %s", n+1, at, last)
			}
			last = c.Position()
			if done := c.Finished(uint64(len(objects))); done != (n+1 == len(objects)) {
				t.Fatalf("after object %d of %d: finished %v", n+1, len(objects), done)
			}
		}
		if c.Tally.Objects != uint64(len(objects)) {
			t.Fatalf("counted %d objects", c.Tally.Objects)
		}
	})
	failed := Checkpoint{Sequence: 2, Tally: &Tally{Failures: []Failure{{Object: 1}}}}
	if failed.Finished(2) || !failed.AdvanceRows(3, 0, Tally{}, time.Now()).Finished(2) {
		t.Error("a source with a failure is finished when that is told, and not before")
	}
}

// TestTally: adding tallies shares no memory with either, and names segments once.
func TestTally(t *testing.T) {
	var a Tally
	a.Touch("c", "a")
	b := a
	b.Add(Tally{Rows: 1, Segments: []topic.SegmentID{"b", "c"}, Failures: []Failure{{Object: 2}}})
	a.Add(Tally{Failures: []Failure{{Object: 3}}})
	if want := []topic.SegmentID{"a", "b", "c"}; !reflect.DeepEqual(b.Segments, want) || b.Failures[0].Object != 2 || a.Failures[0].Object != 3 {
		t.Errorf("%+v, %+v", a, b)
	}
	for i := range 2 * MaxTallied {
		b.Touch(topic.SegmentID(fmt.Sprintf("%05d", i)))
	}
	if len(b.Segments) != MaxTallied {
		t.Errorf("%d segments are named", len(b.Segments))
	}
}
