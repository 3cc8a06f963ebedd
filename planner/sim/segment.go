package sim

import (
	"time"

	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// live is a live segment of the simulated topic.
type live struct {
	topic.Live
	rate planner.Rate // that truly comes in now

	arrived planner.Rate     // in all, since the series began: not a rate but counts
	flushes []planner.Sample // chunks since the planner looked last
	child   bool             // its first chunk may hold what came before it was made
	thinned int              // samples at the beginning of the series that are
	series  planner.Series   // as the planner has seen it
	base    planner.Sample   // counts when the segment was made: not zero after a roll
	split   time.Time
	first   time.Time // commit of the oldest record

	recent  []span // where load fell lately
	drawnAt time.Time
	drawn   planner.Rate // what had arrived then
	points  []inspect.Point
}

// span is a stretch of time in which load fell in one way.
type span struct {
	step         Step
	since, until time.Time // until is zero for the last
}

func newLive(l topic.Live, at time.Time) *live {
	return &live{Live: l, series: planner.Series{{At: at}}, drawnAt: at}
}

// rolled is the segment that goes on where another of the same range ended.
func (s *live) rolled(l topic.Live, at time.Time) *live {
	last := s.committed()
	next := *s
	next.Live, next.base, next.first, next.points = l, last, time.Time{}, nil
	next.drawnAt = at
	return &next
}

// committed is the last that was flushed.
func (s *live) committed() planner.Sample {
	if n := len(s.flushes); n > 0 {
		return s.flushes[n-1]
	}
	return s.series[len(s.series)-1]
}

// waiting is what is not flushed yet.
func (s *live) waiting() planner.Rate {
	last := s.committed()
	return planner.Rate{
		Records: max(0, s.arrived.Records-float64(last.Records)),
		Bytes:   max(0, s.arrived.Bytes-float64(last.Bytes)),
	}
}

// held is how many records it holds.
func (s *live) held() uint64 { return s.committed().Records - s.base.Records }

// change sets what comes in from now on.
func (s *live) change(step Step, now time.Time) {
	s.rate = step.of(s.Range)
	if n := len(s.recent); n > 0 && s.recent[n-1].until.IsZero() {
		if s.recent[n-1].step.Where == step.Where && s.rate.Records > 0 {
			s.recent[n-1].step = step
			return
		}
		s.recent[n-1].until = now
	}
	if s.rate.Records > 0 {
		s.recent = append(s.recent, span{step: step, since: now})
	}
}

// flush commits what has arrived, if that is anything.
func (s *live) flush(now time.Time) {
	c := planner.Sample{At: now, Records: uint64(s.arrived.Records), Bytes: uint64(s.arrived.Bytes)}
	if c.Records == s.committed().Records {
		return
	}
	s.flushes = append(s.flushes, c)
	if s.first.IsZero() {
		s.first = now
	}
}

// look adds to the series what a planner reads: the last chunk, and of those that
// are new to it the one before, and that 2, 4, 8 … before. Where the series is old
// it is thinned, which changes averages by 3 % at most, and makes runs fast.
func (s *live) look(now time.Time, p planner.Policy) {
	n := len(s.flushes)
	if s.child && n > 0 {
		s.series, s.thinned, s.child = nil, 0, false // counting begins with the first chunk
	}
	for i, f := range s.flushes {
		if back := n - 1 - i; back&(back-1) == 0 {
			s.series = append(s.series, f)
		}
	}
	s.flushes = s.flushes[:0]
	old := s.thinned
	for old < len(s.series) && s.series[old].At.Before(now.Add(-p.Short)) {
		if k := s.thinned; k < 2 || s.series[old].At.Sub(s.series[k-2].At) > p.Long/spacing {
			s.thinned++
		}
		s.series[s.thinned-1] = s.series[old]
		old++
	}
	s.series = append(s.series[:s.thinned], s.series[old:]...)
	for s.thinned > 2 && s.series[1].At.Before(now.Add(-needed*p.Long)) {
		s.series = s.series[1:]
		s.thinned--
	}
}

const (
	needed  = 3  // long windows for which samples are kept
	spacing = 12 // samples that are kept of a long window
)

// load is what the planner knows of the segment after it has looked.
func (s *live) load(now time.Time, flushAge time.Duration, p planner.Policy) planner.Load {
	asOf := s.series.AsOf(now, flushAge)
	last := s.committed()
	l := planner.Load{
		Segment: s.ID, Split: s.split, First: s.first,
		Short: s.series.Average(asOf, p.Short), Long: s.series.Average(asOf, p.Long),
		Observed: now.Sub(s.series[0].At),
		Records:  s.held(), Bytes: last.Bytes - s.base.Bytes,
	}
	if max(level(p, l.Short), level(p, l.Long)) >= p.Sustained {
		l.Density = s.density(now, flushAge, p)
	}
	return l
}

// density is where load fell within the short window, as the chunks of that time
// tell it, or where it fell last.
func (s *live) density(now time.Time, flushAge time.Duration, p planner.Policy) (sum topic.Density) {
	from := now.Add(-p.Short)
	for len(s.recent) > 1 && !s.recent[1].since.After(from) {
		s.recent = s.recent[1:]
	}
	for _, r := range s.recent {
		if r.until.IsZero() {
			r.until = now
		}
		if r.since.Before(from) && r.until.After(from) {
			r.since = from
		}
		flushes := r.until.Sub(r.since).Seconds() / flushAge.Seconds()
		r.step.Rate = r.step.Times(flushAge.Seconds())
		c := chunk(s.Range, r.step)
		d := c.Density(s.Range, bytesMake(p, r.step.Rate)).Times(flushes)
		if sum == nil {
			sum = d
		} else {
			sum = sum.Plus(d)
		}
	}
	return sum
}

// draw ends a point of the segment's load: its mean since the last one.
func (s *live) draw(now time.Time) {
	span := now.Sub(s.drawnAt).Seconds()
	if span <= 0 {
		return
	}
	mean := s.arrived.Plus(s.drawn.Times(-1)).Times(1 / span)
	s.points = append(s.points, inspect.Point{At: s.drawnAt, Records: mean.Records, Bytes: mean.Bytes})
	s.drawnAt, s.drawn = now, s.arrived
}

// level is a rate as a multiple of a policy's target.
func level(p planner.Policy, r planner.Rate) float64 {
	return max(r.Bytes/p.TargetBytes, r.Records/p.TargetRecords)
}

// bytesMake tells whether bytes make the level, and not records.
func bytesMake(p planner.Policy, r planner.Rate) bool {
	return r.Bytes/p.TargetBytes >= r.Records/p.TargetRecords
}
