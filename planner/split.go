package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// splits decides which segments are split, the hottest first, for as long as the
// cap leaves room.
func (pl *plan) splits() {
	if pl.RollOnly {
		return
	}
	hot := make([]trigger, 0, len(pl.Loads))
	for i := range pl.Loads {
		if t, ok := pl.trigger(i); ok {
			hot = append(hot, t)
		}
	}
	slices.SortStableFunc(hot, func(a, b trigger) int { return cmp.Compare(b.level, a.level) })
	size := pl.pieceSize(hot)
	for _, t := range hot {
		pl.split(t, size)
	}
}

// pieceSize is what a piece of a split may carry: Fill, or where the cap leaves too
// little room for that, as much more as gives every hot segment its part, up to the
// target itself.
func (pl *plan) pieceSize(hot []trigger) float64 {
	room := pl.Cap - pl.live
	fits := func(size float64) bool {
		need := 0
		for _, t := range hot {
			need += min(len(pl.density(t.i).Pieces(size)), pl.MaxWays-1)
		}
		return need <= room
	}
	low, high := pl.Fill, max(pl.Burst, pl.Fill)
	if room <= 0 || len(hot) < 2 || fits(low) || !fits(high) {
		return pl.Fill
	}
	for range sizeSteps {
		if mid := low + (high-low)/2; fits(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// sizeSteps is how finely pieceSize searches: to a hundredth of the target.
const sizeSteps = 6

// trigger is why segment i is to be split.
type trigger struct {
	i      int
	level  float64
	reason string
}

// trigger tells whether a segment takes in too much, or is going to.
func (pl *plan) trigger(i int) (t trigger, ok bool) {
	if pl.odd[i] {
		return t, false
	}
	l := pl.Loads[i]
	short, long := pl.level(l.Short), pl.level(l.Long)
	expected := pl.expected(pl.segments[i].Range)
	t = trigger{i: i, level: max(short, long)}
	measured := func(r Rate, level float64, window time.Duration) string {
		return fmt.Sprintf("%s over %s is %.2f times the target of %s", pl.show(r), age(window), level, pl.target(r))
	}
	burst := short > pl.Burst && l.Observed >= pl.Short/observe
	sustained := long > pl.Sustained && l.Observed >= pl.Long && short > pl.Fill
	switch {
	case expected > pl.Sustained && expected > t.level:
		t.level = expected
		t.reason = fmt.Sprintf("a load of %s is declared for the topic, %.2f times the target for this segment", pl.show(pl.Expected), expected)
	case burst && !(sustained && long > short):
		t.reason = measured(l.Short, short, pl.Short)
	case sustained:
		t.reason = measured(l.Long, long, pl.Long)
	case short > pl.Burst:
		pl.note(i, "above %g, but known for %s only, too short to judge", pl.Burst, age(l.Observed))
	case long > pl.Sustained && short <= pl.Fill:
		pl.note(i, "above %g for %s, but the load has fallen since", pl.Sustained, age(pl.Long))
	case long > pl.Sustained:
		pl.note(i, "above %g, but known for %s, less than %s", pl.Sustained, age(l.Observed), age(pl.Long))
	}
	return t, t.reason != ""
}

// observe is the part of the short window for which a segment must be known before
// it is split by its average in that window: 2 s of 10 s are two flushes of every
// worker.
const observe = 5

// split cuts a segment into pieces, as many as its load asks for and the cap
// leaves room for.
func (pl *plan) split(t trigger, size float64) {
	live := pl.segments[t.i]
	if live.Size() == 1 {
		pl.note(t.i, "splitting cannot help, slot %d alone takes in %.2f times the target; spread its keys, or raise the target", live.Lo, t.level)
		return
	}
	room := min(pl.MaxWays, pl.Cap-pl.live+1)
	if room < 2 {
		pl.note(t.i, "it should be, but the topic's cap of %s leaves no room", plural(pl.Cap, "segment"))
		return
	}
	density := pl.density(t.i)
	cuts := density.Pieces(pl.Fill)
	wanted, limit := len(cuts)+1, ""
	if size > pl.Fill {
		cuts = density.Pieces(size)
	}
	if len(cuts) >= room || len(cuts) == 0 {
		cuts = density.Cuts(room)
	}
	if wanted > len(cuts)+1 {
		limit = pl.limit(wanted, room, size)
	}
	pieces := piecesOf(density, cuts)
	if worst := heaviest(pieces); limit != "" && room < pl.MaxWays && worst.Size() > 1 && worst.Load > 0.95*density.Total() {
		pl.note(t.i, "it should be, but nearly all of its load is in one place, and the topic's cap of %s leaves too little room to isolate that", plural(pl.Cap, "segment"))
		return
	}
	pl.live += len(cuts)
	pl.decided[t.i] = &Decision{
		Kind: Split, Segments: []topic.SegmentID{live.ID}, Cuts: cuts, Level: t.level,
		Reason: fmt.Sprintf("%s: split into %d at slots %s%s%s", t.reason, len(pieces), slots(cuts), limit, pl.hotSlots(density, pieces)),
	}
}

// density is where a segment's load falls, in levels. What is not known counts as
// spread evenly, and so does what is declared, since keys are hashed: at each
// place the higher of the two.
func (pl *plan) density(i int) topic.Density {
	r, known := pl.segments[i].Range, pl.Loads[i].Density
	next, sound := r.Lo, true
	for _, s := range known {
		sound = sound && s.Lo == next && s.Valid() && s.Load >= 0
		next = s.Hi
	}
	d := topic.Even(r, pl.now(i))
	if total := known.Total(); sound && next == r.Hi && total > 0 && !math.IsInf(total, 0) {
		d = known.Times(pl.now(i) / total)
	}
	for j, s := range d {
		d[j].Load = max(s.Load, pl.expected(s.Range))
	}
	return d
}

// limit says why a segment is split into fewer pieces than its load asks for.
func (pl *plan) limit(wanted, room int, size float64) string {
	number := strconv.Itoa(wanted)
	if wanted > topic.MaxLive {
		number = fmt.Sprintf("more than %d", topic.MaxLive)
	}
	if room == pl.MaxWays {
		return fmt.Sprintf("; %s were wanted, but %d is the most at a time", number, room)
	}
	left := strconv.Itoa(room)
	if size > pl.Fill {
		left = "fewer, since others are split too"
	}
	return fmt.Sprintf("; %s were wanted, but the topic's cap of %s leaves room for %s", number, plural(pl.Cap, "segment"), left)
}

// piecesOf is the pieces that cuts make, with their loads.
func piecesOf(d topic.Density, cuts []uint32) topic.Density {
	r := d.Range()
	pieces := make(topic.Density, 0, len(cuts)+1)
	lo, i := r.Lo, 0
	for _, hi := range append(slices.Clone(cuts), r.Hi) {
		piece := topic.Stretch{Range: topic.Range{Lo: lo, Hi: hi}}
		for ; i < len(d) && d[i].Lo < hi; i++ {
			piece.Load += d[i : i+1].Of(piece.Range)
			if d[i].Hi > hi {
				break // the rest of it is the next piece's
			}
		}
		pieces = append(pieces, piece)
		lo = hi
	}
	return pieces
}

// heaviest is the piece with the highest load.
func heaviest(pieces topic.Density) topic.Stretch {
	return slices.MaxFunc(pieces, func(a, b topic.Stretch) int { return cmp.Compare(a.Load, b.Load) })
}

// hotSlots tells of slots that are too heavy for a piece and get a segment of
// their own.
func (pl *plan) hotSlots(d, pieces topic.Density) string {
	const most = 4
	total := d.Total()
	var hot []string
	above := false
	for _, p := range pieces {
		if p.Size() == 1 && p.Load > pl.Fill && slices.Contains(d, p) {
			hot = append(hot, fmt.Sprintf("%d (%.0f%%)", p.Lo, 100*p.Load/total))
			above = above || p.Load > pl.Burst
		}
	}
	var text string
	switch n := len(hot); {
	case n == 0:
		return ""
	case n == 1:
		text = fmt.Sprintf("; hot slot %s gets a segment of its own", hot[0])
	case n <= most:
		text = fmt.Sprintf("; hot slots %s get segments of their own", strings.Join(hot, ", "))
	default:
		text = fmt.Sprintf("; %d hot slots, %s and more, get segments of their own", n, strings.Join(hot[:most], ", "))
	}
	if above {
		text += ", still above the target: splitting cannot help further"
	}
	return text
}

// slots lists slots, or the first of them.
func slots(cuts []uint32) string {
	const most = 8
	var b strings.Builder
	for i, c := range cuts {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(cuts)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, c)
	}
	return b.String()
}
