//go:build !race

// Under the race detector this would take ten times as long and find nothing:
// the searches share no memory. TestMutants runs there.

package model

import (
	"flag"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var deep = flag.Bool("model.deep", false, "explore the large configurations too: 26 million states, several minutes, 3 GB")

// steps is how many kinds of steps there are in the correct protocol. One that
// is never made would show nothing.
const steps = 18

// TestProtocol explores the correct protocol completely.
func TestProtocol(t *testing.T) {
	zombies := []uint8{0, 0}
	cases := []struct {
		name string
		deep bool
		model
	}{
		{"zombie pair", false, model{
			lanes: [][]message{{{0}, {2}, {1}}}, workers: zombies, helpers: 2, edits: splitThenMerge}},
		{"messages of several rows", false, model{
			lanes: [][]message{{{0, 2}, {1, 3}}}, workers: zombies, helpers: 2, edits: splitThenMerge}},
		{"two lanes", false, model{
			lanes: [][]message{{{0}, {2}}, {{2}, {0}}}, workers: []uint8{0, 1}, helpers: 2, edits: splitThenMerge}},
		{"zombie pair beside another lane", false, model{
			lanes: [][]message{{{0}, {2}}, {{2}}}, workers: []uint8{0, 0, 1}, helpers: 1, edits: rollTwice}},
		{"late creates", false, model{
			lanes: [][]message{{{2}, {0}, {1}}}, workers: zombies, helpers: 1, edits: splitThenMerge, lossy: true}},
		{"chain of three edits", false, model{
			lanes: [][]message{{{0}, {2}}}, workers: zombies, helpers: 2, edits: chain}},
		{"four messages", true, model{
			lanes: [][]message{{{0}, {2}, {1}, {2}}}, workers: zombies, helpers: 2, edits: splitThenMerge}},
		{"zombie pair beside another lane, split and merged", true, model{
			lanes: [][]message{{{0}, {2}}, {{2}}}, workers: []uint8{0, 0, 1}, helpers: 2, edits: splitThenMerge}},
		{"late creates in a chain", true, model{
			lanes: [][]message{{{2}, {0}, {2}}}, workers: zombies, helpers: 2, edits: chain, lossy: true}},
	}
	var mu sync.Mutex
	left, made := 0, map[string]int{}
	t.Run("group", func(t *testing.T) {
		for _, c := range cases {
			if c.deep && !*deep {
				continue
			}
			left++
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				start := time.Now()
				r := explained(&c.model)
				t.Logf("%d states, at most %d steps away, in %.1f s", r.states, r.depth, time.Since(start).Seconds())
				if !r.complete {
					t.Errorf("%v\n%v", r, &c.model)
				}
				mu.Lock()
				defer mu.Unlock()
				left--
				for what, n := range r.steps {
					made[what] += n
				}
			})
		}
	})
	if left == 0 && len(made) != steps { // -run may leave some out
		t.Errorf("%d kinds of steps were made, want %d:\n%s", len(made), steps, strings.Join(slices.Sorted(maps.Keys(made)), "\n"))
	}
}
