package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// many gives the last chunk of the second segment so many more records, all with
// different slots, and then so many with the key of the first of those.
func many(f *fixture, spread, hot int) *chunk {
	c := f.segs[1].last()
	slots := map[uint32]bool{}
	for i, r := range message(sourceA, 13, 1000) {
		at := slot(sourceA, r, f.key)
		switch {
		case len(slots) < spread:
			if i < 6 || at < 1<<15 || slots[at] { // the first rows have keys that were there before
				continue
			}
			slots[at] = true
		case hot > 0:
			r.Key = c.rows[len(c.rows)-1].Key
			hot--
		default:
			return c
		}
		r.Row = int32(i)
		c.rows = append(c.rows, r)
	}
	panic("a message has too few rows for that")
}

// TestHotFixtures: the fixtures are on both sides of what makes a slot hot.
func TestHotFixtures(t *testing.T) {
	for _, c := range []struct{ spread, hot, want int }{{350, 2, 0}, {350, 3, 1}, {20, 0, 27}, {50, 0, 32}, {50, 1, 32}, {150, 0, 0}} {
		f := newFixture()
		got := strings.Fields(f.hot(many(f, c.spread, c.hot)))
		if len(got) != c.want {
			t.Errorf("%d spread records and %d of one key: %d hot slots, want %d", c.spread, c.hot, len(got), c.want)
		}
		f.write(t)
		for _, v := range f.verify(t).Violations {
			t.Error(v)
		}
	}
}

// hot is the attribute of a chunk of the second segment.
func (f *fixture) hot(c *chunk) string {
	_, sizes := f.avro(nil, c.rows, c.blob)
	return hot(f.segs[1], c, sizes, f.key)
}

func loadFaults() []fault {
	// In a chunk of many records, one slot is hot: what it took is changed.
	hot := func(name string, change func(slot, records, bytes int) string) fault {
		return fault{name, one("chunk.hot"), func(f *fixture) {
			c := many(f, 200, 9)
			var slot, records, bytes int
			if _, err := fmt.Sscanf(f.hot(c), "%d=%d/%d", &slot, &records, &bytes); err != nil {
				panic(err)
			}
			c.with("Hot", change(slot, records, bytes))
		}, nil}
	}
	part := func(name, from, to string) fault {
		return fault{name, one("chunk.load"), func(f *fixture) {
			c := f.segs[1].last()
			_, sizes := f.avro(nil, c.rows, c.blob)
			_, text := load(f.segs[1], c, sizes, f.key)
			if !strings.Contains(text, from) {
				panic("the load " + text + " has no " + from)
			}
			c.with("Load", strings.Replace(text, from, to, 1))
		}, nil}
	}
	return []fault{
		hot("a hot slot is another", func(slot, records, bytes int) string { return fmt.Sprintf("%d=%d/%d", slot-1, records, bytes) }),
		hot("a hot slot took fewer records", func(slot, records, bytes int) string { return fmt.Sprintf("%d=%d/%d", slot, records-1, bytes) }),
		hot("a hot slot took more bytes", func(slot, records, bytes int) string { return fmt.Sprintf("%d=%d/%d", slot, records, bytes+1) }),
		hot("a slot is named that took nothing", func(slot, records, bytes int) string {
			return fmt.Sprintf("%d=0/0 %d=%d/%d", slot-1, slot, records, bytes)
		}),
		{"a slot is named that is not hot", one("chunk.hot"), func(f *fixture) {
			c := many(f, 200, 0)
			r := c.rows[len(c.rows)-1:]
			_, sizes := f.avro(nil, r, false)
			c.with("Hot", fmt.Sprintf("%d=1/%d", slot(sourceA, r[0], f.key), sizes[0]))
		}, nil},
		{"more hot slots are named than may be", one("chunk.hot"), func(f *fixture) {
			c := many(f, 50, 0)
			_, sizes := f.avro(nil, c.rows, c.blob)
			all := map[uint32]string{}
			for i, r := range c.rows {
				all[slot(sourceA, r, f.key)] = fmt.Sprintf("1/%d", sizes[i])
			}
			var parts []string
			for _, at := range slices.Sorted(maps.Keys(all)) {
				parts = append(parts, fmt.Sprintf("%d=%s", at, all[at]))
			}
			c.with("Hot", strings.Join(parts, " "))
		}, nil},
		part("a part took more bytes", "=1/1", "=1/2"),
		part("a part took more records", "=1/1", "=2/1"),
	}
}
