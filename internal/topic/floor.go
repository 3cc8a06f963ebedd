package topic

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Floor says that everything of a source up to At is already in the ancestors
// of a segment, for the slots of Range. Time is the append time of the record
// at At: a source that shows another record there went back.
type Floor struct {
	Range
	Source string    `json:"source"`
	At     Position  `json:"at"`
	Time   time.Time `json:"time"`
}

// ComposeFloors gives, for the slots of within, the highest of the floors that
// are given, per slot and source (rule 11): sorted by source and range, without
// overlaps, with equal neighbours joined. The same floors in any order give the
// same result.
func ComposeFloors(within Range, floors []Floor) []Floor {
	bySource := map[string][]Floor{}
	for _, f := range floors {
		f.Lo, f.Hi = max(f.Lo, within.Lo), min(f.Hi, within.Hi)
		if f.Range.Valid() && f.At.After(Position{}) {
			f.Time = f.Time.UTC()
			bySource[f.Source] = append(bySource[f.Source], f)
		}
	}
	composed := []Floor{}
	for _, list := range bySource {
		composed = append(composed, highest(list)...)
	}
	slices.SortFunc(composed, func(a, b Floor) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), cmp.Compare(a.Lo, b.Lo))
	})
	return composed
}

// highest flattens overlapping floors of one source: for each slot the highest.
func highest(list []Floor) []Floor {
	var edges []uint32
	for _, f := range list {
		edges = append(edges, f.Lo, f.Hi)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	var flat []Floor
	for i, lo := range edges[:len(edges)-1] {
		top := Floor{}
		for _, f := range list {
			if f.Contains(Slot(lo)) && higher(f, top) {
				top = f
			}
		}
		if top.Source == "" {
			continue
		}
		top.Range = Range{lo, edges[i+1]}
		if n := len(flat); n > 0 && flat[n-1].Hi == lo && flat[n-1].At == top.At && flat[n-1].Time.Equal(top.Time) {
			flat[n-1].Hi = top.Hi
			continue
		}
		flat = append(flat, top)
	}
	return flat
}

// higher prefers the higher position, and of equal ones the later time, so that
// the order in which floors are looked at does not matter.
func higher(f, top Floor) bool {
	c := f.At.Compare(top.At)
	return c > 0 || c == 0 && f.Time.After(top.Time)
}
