package topic

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "9": true, "orders_eu-1": true, strings.Repeat("x", MaxName): true,
		"": false, strings.Repeat("x", MaxName+1): false, strings.Repeat("é", 300): false, "A": false, "a/b": false, "../a": false,
		".": false, "..": false, "a.b": false, "a b": false, " ": false, "-a": false, "_a": false, "a*": false, "a>": false,
		"日本": false, "αβ": false, "a\x00": false, "a\xff": false, "a\n": false, "ａ": false,
	} {
		err := CheckName(name)
		var bad *NameError
		if (err == nil) != ok || err != nil && (!errors.As(err, &bad) || bad.Name != name) {
			t.Errorf("%q: error %v", name, err)
		}
		if err != nil && len(err.Error()) > 600 {
			t.Errorf("%q: the error has %d bytes", name, len(err.Error()))
		}
	}
	if CheckGroup(strings.Repeat("x", 32)) != nil || CheckGroup(strings.Repeat("x", 33)) == nil {
		t.Error("a lane group has at most 32 bytes")
	}
}

// TestSlots pins the mapping: data on the filer depends on it.
func TestSlots(t *testing.T) {
	// Top 16 bits of the published xxhash64 values of these inputs.
	for key, want := range map[string]Slot{"": 0xef46, "a": 0xd24e, "abc": 0x44bc} {
		if got := SlotOf([]byte(key)); got != want {
			t.Errorf("slot of %q is %#x, want %#x", key, got, want)
		}
	}
	p := Position{7, 3}
	want := SlotOf([]byte("lane\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x03"))
	if got := SpreadSlot("lane", p); got != want {
		t.Errorf("spread slot is %#x, want %#x", got, want)
	}
}

func TestParseKey(t *testing.T) {
	for s, want := range map[string][]string{
		"header": nil, "none": nil, "json:/": {""}, "json:/a/b": {"a", "b"}, "json:/a~1b/~0": {"a/b", "~"}, "json:/~01": {"~1"}, "json:/é": {"é"},
	} {
		k, err := ParseKey(s)
		if err != nil || !slices.Equal(k.Pointer(), want) {
			t.Errorf("%q: got %q, error %v", s, k.Pointer(), err)
		}
	}
	for _, s := range []string{"", "Header", "json:", "json:a", "json:/~", "json:/~2", "json:/é~", "/a"} {
		if _, err := ParseKey(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func TestDefinition(t *testing.T) {
	good := Definition{Name: "a", State: StateLive, Key: KeyHeader, FlushAge: Duration(time.Second), Lanes: "default", Roots: 1}
	good.Buckets, good.Endpoint, good.RecordRemovals = []string{"photos", "payloads/spillway/a/"}, "http://127.0.0.1:8333", true
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(good)
	var back Definition
	if err != nil || json.Unmarshal(data, &back) != nil || !reflect.DeepEqual(back, good) {
		t.Errorf("got %+v back from %s, error %v", back, data, err)
	}
	bad := Definition{Name: "A", Key: "x", FlushAge: 1, Lanes: "", Buckets: []string{"x", "good", "good/../y"}, Endpoint: "ftp://h"}
	err = bad.Validate()
	for _, part := range []string{"topic name", "lane group", "partition key", "flush age", "segments", `bucket "x"`, `bucket "good/../y"`, "endpoint"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not tell about the %s", err, part)
		}
	}
}

func drawPosition(t *rapid.T, label string) Position {
	row := rapid.OneOf(rapid.Uint32(), rapid.Just(uint32(LastRow)), rapid.Just(uint32(0)))
	seq := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 2))
	return Position{seq.Draw(t, label+" sequence"), row.Draw(t, label+" row")}
}

func TestPositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, o := drawPosition(t, "p"), drawPosition(t, "o")
		back, err := ParsePosition(p.String())
		if err != nil || back != p {
			t.Fatalf("%v became %q and then %v, error %v", p, p, back, err)
		}
		if p.Compare(o) != -o.Compare(p) || p.After(o) != (p.Compare(o) > 0) || (p.Compare(o) == 0) != (p == o) {
			t.Fatalf("%v and %v are not ordered", p, o)
		}
		if m := p.Max(o); m != o.Max(p) || p.After(m) || o.After(m) {
			t.Fatalf("the higher of %v and %v is %v", p, o, m)
		}
		if w := Whole(p.Sequence); p.Sequence > 0 && p.After(w) {
			t.Fatalf("%v lies after %v", p, w)
		}
	})
	for _, s := range []string{"", ":", "1:", ":1", "-1", "1:-1", "1:4294967296", "18446744073709551616", "1:2:3", "１", "1 "} {
		if p, err := ParsePosition(s); err == nil {
			t.Errorf("%q was taken as %v", s, p)
		}
	}
	if Whole(0) != (Position{}) {
		t.Error("nothing of nothing is the zero position")
	}
}

func drawRange(t *rapid.T, label string) Range {
	lo := rapid.Uint32Range(0, Slots-1).Draw(t, label+" lo")
	return Range{lo, rapid.Uint32Range(lo+1, Slots).Draw(t, label+" hi")}
}

func TestRanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawRange(t, "a"), drawRange(t, "b")
		s := Slot(rapid.Uint16().Draw(t, "slot"))
		if !a.Valid() || !Full.Covers(a) || a.Size() != a.Hi-a.Lo {
			t.Fatalf("%s is a range", a)
		}
		if a.Overlaps(b) != b.Overlaps(a) || a.Covers(b) && !a.Overlaps(b) || a.Covers(b) && b.Covers(a) != (a == b) {
			t.Fatalf("%s and %s", a, b)
		}
		if a.Contains(s) != a.Covers(Range{uint32(s), uint32(s) + 1}) || a.Contains(s) && b.Contains(s) && !a.Overlaps(b) {
			t.Fatalf("%s, %s and slot %d", a, b, s)
		}
	})
	for _, r := range []Range{{}, {5, 5}, {6, 5}, {0, Slots + 1}, {Slots, Slots}} {
		if r.Valid() {
			t.Errorf("%s is valid", r)
		}
	}
}
