package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// told is an S3 event as the lane has it, and how it was judged by whoever read
// everything.
type told struct {
	Object
	row   int
	order ObjectOrder
}

// crowd is the first ID of objects of which there is one event each.
const crowd = 1000

// judge says what the table is to decide, from all events that were ever taken: the
// last of each object counts if it is near enough, and few enough others came after.
func judge(taken []Object, o Object) ObjectOrder {
	if o.ID >= crowd {
		return ObjectNewest
	}
	var after [crowd]bool
	others := 0
	for _, last := range slices.Backward(taken) {
		switch {
		case last.At+ObjectDistance < o.At || others == MaxObjects:
			return ObjectNewest
		case last.ID != o.ID:
			if last.ID >= crowd || !after[last.ID] {
				others++
			}
			after[min(last.ID, crowd-1)] = true
		case o.Sequencer < last.Sequencer:
			return ObjectLate
		case o.Sequencer == last.Sequencer:
			return ObjectDuplicate
		default:
			return ObjectNewest
		}
	}
	return ObjectNewest
}

// drawLane draws events: some objects that come again and again, and crowds of others,
// which push them out by number or, being in few messages or none, by distance.
func drawLane(t *rapid.T) (events []told) {
	var taken []Object
	at, fresh := uint64(0), uint64(crowd)
	add := func(o Object) {
		e := told{Object: o, order: judge(taken, o)}
		if n := len(events); n > 0 && events[n-1].At == o.At {
			e.row = events[n-1].row + 1
		}
		if e.order == ObjectNewest {
			taken = append(taken, o)
		}
		events = append(events, e)
	}
	for range rapid.IntRange(1, 16).Draw(t, "steps") {
		at += rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(1, 3), rapid.Uint64Range(ObjectDistance-2, ObjectDistance+2)).Draw(t, "step")
		at = max(at, 1)
		many := rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 4), rapid.IntRange(MaxObjects-4, MaxObjects+4)).Draw(t, "crowd")
		if len(events)+many > 3*MaxObjects {
			many = 0
		}
		perMessage := rapid.SampledFrom([]int{1, 7, MaxObjects}).Draw(t, "per message")
		for i := range many {
			if i%perMessage == 0 {
				at++
			}
			add(Object{fresh, "s", at})
			fresh++
		}
		for range rapid.IntRange(0, 6).Draw(t, "events") {
			add(Object{rapid.Uint64Range(1, 3).Draw(t, "object"), rapid.SampledFrom([]string{"", "1", "12", "2", "3"}).Draw(t, "sequencer"), at})
		}
	}
	return events
}

// TestObjectTable: a worker that starts from any checkpoint, however the messages
// before it were divided into flushes, decides about every event like one that read
// everything.
func TestObjectTable(t *testing.T) {
	met := map[ObjectOrder]int{}
	rapid.Check(t, func(t *rapid.T) {
		events := drawLane(t)
		c := Checkpoint{Source: "lane", Producers: []Producer{}, Marks: []Mark{}}
		table := NewObjectTable(nil)
		var flush *ObjectTable
		last, wait := uint64(0), 0
		save := func(upTo uint64) {
			c = c.Advance(upTo, noon, nil).WithObjects(flush.Rows())
			flush = nil
			if len(c.Objects) > MaxObjects {
				t.Fatalf("%d rows", len(c.Objects))
			}
		}
		for _, e := range events {
			if wait--; e.At > last && last > 0 && wait < 0 {
				wait = rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 3000)).Draw(t, "until the next flush")
				// A checkpoint may lie in the middle of messages without events.
				save(last + rapid.Uint64Range(0, e.At-1-last).Draw(t, "beyond"))
				if rapid.Bool().Draw(t, "restart") {
					c = reload(t, c)
					table = NewObjectTable(c.Objects)
				}
			}
			last = e.At
			got := table.Order(e.Object)
			if met[got]++; got != e.order {
				t.Fatalf("event %+v: %d, whoever read everything says %d", e, got, e.order)
			}
			if got != ObjectNewest {
				continue
			}
			table.Take(e.Object)
			if flush == nil {
				flush = NewObjectTable(nil)
			}
			flush.Take(e.Object)
		}
	})
	if len(met) != 3 {
		t.Errorf("met only %v", met)
	}
}

// reload sends a checkpoint through its file's bytes.
func reload(t *rapid.T, c Checkpoint) (again Checkpoint) {
	data, err := cursor.Encode(c)
	if err == nil {
		err = json.Unmarshal(data, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Objects, c.Objects) {
		t.Fatalf("%v became %v", c.Objects, again.Objects)
	}
	return again
}

func goldenCheckpoint() Checkpoint {
	c := Checkpoint{Source: "lane.default.0.k3j9x2ab", Sequence: 4800, Producers: []Producer{{ID: "p7", Sequence: 9, At: 812}}, Marks: []Mark{{Sequence: 4000, At: noon}}}
	return c.Advance(4813, noon, nil).WithObjects(ObjectRows{
		{ObjectID("orders", "orders-in", "old", ""), "\x01", 700},
		{ObjectID("orders", "orders-in", "2026/a.csv", ""), "\x00\x55\xae\xd6\xdc\xd9\x02\x81\xe5", 4700},
		{ObjectID("orders", "orders-in", "b", "v1"), "\x18\x7c\x8b\x1a\xf9\x30\x4d\x1a", 4812},
		{ObjectID("events", "orders-in", "b", "v1"), "", 4812},
	})
}

// TestGoldenCheckpoint: the bytes, which FORMAT shows.
func TestGoldenCheckpoint(t *testing.T) {
	const golden = "testdata/checkpoint.golden"
	got, err := cursor.Encode(goldenCheckpoint())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got %s, want %s", got, want)
	}
	format, err := os.ReadFile("../../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(format), string(want)) {
		t.Error("docs/FORMAT.md does not show the golden file")
	}
	for _, o := range goldenCheckpoint().Objects {
		if id := fmt.Sprintf("%016x", o.ID); !strings.Contains(string(format), id) {
			t.Errorf("docs/FORMAT.md does not show %s at %d", id, o.At)
		}
	}
	without, err := cursor.Encode(Checkpoint{Source: "s"}.Advance(7, noon, nil).WithObjects(nil))
	if err != nil || strings.Contains(string(without), "objects") {
		t.Errorf("a lane without S3 events: %s, %v", without, err)
	}
}

// TestFullObjectTable: how large a checkpoint gets is in FORMAT and the ADR.
func TestFullObjectTable(t *testing.T) {
	c := Checkpoint{Source: "lane.default.0.k3j9x2ab"}
	var rows ObjectRows
	for i := range uint64(2 * MaxObjects) {
		rows = append(rows, Object{ObjectID("t", "b", fmt.Sprint(i), ""), "\x00\x69\x2c\x0a\x7f\x1b\x2c\x3d\x4e", 1 + i})
	}
	c = c.Advance(2*MaxObjects, noon, nil).WithObjects(rows)
	data, err := cursor.Encode(c)
	if err != nil || len(c.Objects) != MaxObjects {
		t.Fatalf("%d rows, %v", len(c.Objects), err)
	}
	t.Logf("a checkpoint with %d objects has %d bytes", len(c.Objects), len(data))
	if len(data) > 106<<10 {
		t.Errorf("a full checkpoint has %d bytes", len(data))
	}
	c = c.Advance(c.Sequence+ObjectDistance-1, noon, nil)
	if len(c.Objects) != 1 {
		t.Errorf("%d objects are left at the end of the distance, want 1", len(c.Objects))
	}
	if c = c.Advance(c.Sequence+1, noon, nil); c.Objects != nil {
		t.Errorf("%d objects are left beyond it", len(c.Objects))
	}
}

// TestObjectsOfASuccessor: what is taken over by a source that begins earlier keeps
// its order, and can be written.
func TestObjectsOfASuccessor(t *testing.T) {
	was := ObjectRows{{1, "a", 5}, {2, "b", 9}, {3, "c", 12}}
	now := was.Until(9)
	if want := (ObjectRows{{1, "a", 5}, {2, "b", 9}, {3, "c", 9}}); !slices.Equal(now, want) || was[2].At != 12 {
		t.Errorf("%v, want %v; the old rows are %v", now, want, was)
	}
	if _, err := now.MarshalText(); err != nil {
		t.Error(err)
	}
}

// TestDamagedObjectTables: a checkpoint whose table is not what is written stops
// the worker; starting without it would take events twice.
func TestDamagedObjectTables(t *testing.T) {
	good, err := goldenCheckpoint().Objects.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	row := func(o ...Object) string {
		text, err := ObjectRows(o).MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	many := make(ObjectRows, MaxObjects+1)
	for i := range many {
		many[i].ID = uint64(i)
	}
	for name, text := range map[string]string{
		"not base64":       "!" + string(good),
		"cut":              string(good[:len(good)-4]),
		"one byte":         "AA==",
		"twice":            row(Object{1, "a", 1}, Object{1, "b", 2}),
		"too many":         row(many...),
		"long sequencer":   "AAAAAAAAAAEh" + strings.Repeat("AAAA", 20),
		"numbers overflow": row(Object{1, "", 1<<64 - 1}) + "AAAAAAAAAAIAAQ==",
		"endless number":   "AAAAAAAAAAL///////////////8=",
	} {
		fs := memfs.New().Client("c", nil)
		file := cursor.At[Checkpoint](fs, "/buckets/bkt/checkpoints/x.json")
		content := fmt.Sprintf(`{"source":"x","objects":%q}`, text)
		if _, err := filer.Create(t.Context(), fs, file.Path(), filer.File{ID: "1", Attrs: filer.Attrs{}, Content: []byte(content)}); err != nil {
			t.Fatal(err)
		}
		if c, _, err := file.Load(t.Context()); !errors.Is(err, filer.ErrCorrupt) {
			t.Errorf("%s: %d rows, %v", name, len(c.Objects), err)
		}
	}
	for _, bad := range []ObjectRows{{{1, "a", 2}, {2, "a", 1}}, {{1, strings.Repeat("s", MaxSequencer+1), 1}}} {
		if text, err := bad.MarshalText(); err == nil {
			t.Errorf("%v is written as %q", bad, text)
		}
	}
}

func TestObjectIDs(t *testing.T) {
	seen := map[uint64]string{}
	for _, parts := range [][4]string{
		{"t", "b", "k", ""}, {"t", "b", "k", "v"}, {"t", "b", "kv", ""}, {"tb", "", "k", ""}, {"u", "b", "k", ""}, {"t", "bk", "", ""}, {"t", "b", "", "k"},
	} {
		id, name := ObjectID(parts[0], parts[1], parts[2], parts[3]), strings.Join(parts[:], "|")
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s are both %016x", name, other, id)
		}
		seen[id] = name
	}
}
