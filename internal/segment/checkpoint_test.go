package segment

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAdvance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := map[string]Producer{} // what is true, never evicted
		c := Checkpoint{Source: "lane"}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			seen := map[string]Producer{}
			step := rapid.OneOf(rapid.Uint64Range(1, 5), rapid.Uint64Range(ProducerDistance-2, ProducerDistance+2)).Draw(t, "step")
			for i := range rapid.IntRange(0, 3).Draw(t, "producers") {
				p := Producer{fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id")), 1, c.Sequence + 1 + uint64(i)%step}
				seen[p.ID], last[p.ID] = p, p
			}
			before := slices.Clone(c.Producers)
			next := c.Advance(c.Sequence+step, noon, seen)
			if !slices.Equal(before, c.Producers) {
				t.Fatal("the old checkpoint changed")
			}
			c = next
			want := 0
			for _, p := range last {
				if !p.Forgotten(c.Sequence + 1) {
					want++
				}
			}
			if len(c.Producers) != want || !slices.IsSortedFunc(c.Producers, func(a, b Producer) int { return strings.Compare(a.ID, b.ID) }) {
				t.Fatalf("at %d: %v, want %d of %v", c.Sequence, c.Producers, want, last)
			}
			for _, p := range c.Producers {
				if last[p.ID] != p {
					t.Fatalf("at %d: %v, want %v", c.Sequence, p, last[p.ID])
				}
			}
		}
	})
	p := Producer{At: 10}
	if p.Forgotten(10+ProducerDistance) || !p.Forgotten(11+ProducerDistance) {
		t.Error("a producer counts for exactly ProducerDistance messages")
	}
}

func TestMark(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const lag = time.Minute
		c, now := Checkpoint{}, noon
		reached := map[uint64]time.Time{0: now}
		lastBelow := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(lag)/2).Draw(t, "pause")))
			if n := rapid.Uint64Range(0, 5).Draw(t, "messages"); n > 0 {
				c.Sequence += n
				reached[c.Sequence] = now
			}
			next, below := c.Mark(now, lag)
			c = next
			if len(c.Marks) == 0 || len(c.Marks) > maxMarks {
				t.Fatalf("%d marks", len(c.Marks))
			}
			if below > c.Sequence || below < lastBelow && below != 0 {
				t.Fatalf("trim below %d, before below %d, at %d", below, lastBelow, c.Sequence)
			}
			if below > 0 && now.Sub(reached[below]) < lag-time.Millisecond {
				t.Fatalf("trim below %d, which was reached %s ago", below, now.Sub(reached[below]))
			}
			lastBelow = max(lastBelow, below)
		}
	})
}
