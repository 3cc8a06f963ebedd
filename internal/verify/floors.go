package verify

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// level is how far a source is taken in, for a range of slots; the zero position
// is not at all. time is the append time of the record there.
type level struct {
	topic.Range
	at   topic.Position
	time time.Time
}

// levels are how far sources are taken in, slot by slot: for each source a list
// sorted by range, without overlaps. This package composes floors from them by
// means of its own, so that a mistake of the store's cannot hide here too.
type levels map[string][]level

// levelsOf reads floors, which are sorted by source and range and do not overlap.
func levelsOf(floors []topic.Floor) (levels, error) {
	l := levels{}
	var prev topic.Floor
	for _, f := range floors {
		switch {
		case f.Source == "" || !f.Range.Valid() || f.At == topic.Position{}:
			return nil, fmt.Errorf("%s of source %q at %s is no floor", f.Range, f.Source, f.At)
		case f.Source < prev.Source || f.Source == prev.Source && f.Lo < prev.Hi:
			return nil, fmt.Errorf("the floor %s of source %s is out of order, or overlaps the one before", f.Range, f.Source)
		}
		l[f.Source] = append(l[f.Source], level{f.Range, f.At, f.Time})
		prev = f
	}
	return l, nil
}

// find returns the level at a slot, with the range in which it is the same: a
// gap of the list is a level too.
func find(list []level, slot uint32) level {
	i := sort.Search(len(list), func(i int) bool { return list[i].Hi > slot })
	gap := level{Range: topic.Range{Hi: topic.Slots}}
	if i < len(list) {
		if list[i].Lo <= slot {
			return list[i]
		}
		gap.Hi = list[i].Lo
	}
	if i > 0 {
		gap.Lo = list[i-1].Hi
	}
	return gap
}

// stretch is a range of slots in each of which two lists have the same level.
type stretch struct {
	topic.Range
	a, b level
}

// stretches walks two lists side by side over all slots of a range.
func stretches(within topic.Range, a, b []level) iter.Seq[stretch] {
	return func(yield func(stretch) bool) {
		for lo := within.Lo; lo < within.Hi; {
			s := stretch{a: find(a, lo), b: find(b, lo)}
			s.Range = topic.Range{Lo: lo, Hi: min(s.a.Hi, s.b.Hi, within.Hi)}
			if !yield(s) {
				return
			}
			lo = s.Hi
		}
	}
}

// sourcesOf are the sources of all lists, sorted.
func sourcesOf(all ...levels) []string {
	names := map[string]bool{}
	for _, l := range all {
		for source := range l {
			names[source] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// outside tells of a level that is not for slots of the range.
func (l levels) outside(within topic.Range) string {
	for _, source := range sourcesOf(l) {
		for _, x := range l[source] {
			if !within.Covers(x.Range) {
				return fmt.Sprintf("it has a floor of source %s for the slots %s, but its range is %s", source, x.Range, within)
			}
		}
	}
	return ""
}

// inherit is what a segment of a range gets from segments that each had some of
// its slots. No slot is in two of them, so what they say is put side by side.
func inherit(within topic.Range, parents []levels) levels {
	l := levels{}
	for _, parent := range parents {
		for source, list := range parent {
			for _, x := range list {
				x.Range = topic.Range{Lo: max(x.Lo, within.Lo), Hi: min(x.Hi, within.Hi)}
				if x.Range.Valid() {
					l[source] = append(l[source], x)
				}
			}
		}
	}
	for _, list := range l {
		slices.SortFunc(list, func(a, b level) int { return cmp.Compare(a.Lo, b.Lo) })
	}
	return l
}

// same tells whether two levels say the same.
func (x level) same(o level) bool {
	return x.at == o.at && (x.at == topic.Position{} || x.time.Equal(o.time))
}

// higher returns the higher of two levels, and of equal ones the later.
func (x level) higher(o level) level {
	if c := o.at.Compare(x.at); c > 0 || c == 0 && o.time.After(x.time) {
		return o
	}
	return x
}

// String is what a message says of it.
func (x level) String() string {
	if x.at == (topic.Position{}) {
		return "no floor"
	}
	return fmt.Sprintf("%s of %s", x.at, stamp(x.time))
}

// raise lifts the levels of a range to a position at least.
func raise(list []level, within topic.Range, at topic.Position) []level {
	i := sort.Search(len(list), func(i int) bool { return list[i].Hi > within.Lo })
	j := sort.Search(len(list), func(j int) bool { return list[j].Lo >= within.Hi })
	var risen []level
	if i < j && list[i].Lo < within.Lo {
		risen = append(risen, level{Range: topic.Range{Lo: list[i].Lo, Hi: within.Lo}, at: list[i].at})
	}
	for s := range stretches(within, list[i:j], nil) {
		x := level{Range: s.Range, at: s.a.at.Max(at)}
		if n := len(risen); n > 0 && risen[n-1].at == x.at {
			risen[n-1].Hi = x.Hi
			continue
		}
		risen = append(risen, x)
	}
	if i < j && list[j-1].Hi > within.Hi {
		risen = append(risen, level{Range: topic.Range{Lo: within.Hi, Hi: list[j-1].Hi}, at: list[j-1].at})
	}
	return slices.Replace(list, i, j, risen...)
}
