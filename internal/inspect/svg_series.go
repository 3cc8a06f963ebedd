package inspect

import (
	"math"
	"slices"
	"sort"
	"time"
)

// series is a load over the seconds of a picture. Each value holds until the next;
// before the first nothing is known.
type series struct {
	at, value []float64
	sum       []float64 // of value times seconds, up to at
}

// newSeries takes points in any order.
func newSeries(points []Point, seconds func(time.Time) float64, value func(Point) float64) series {
	order := slices.Clone(points)
	slices.SortStableFunc(order, func(a, b Point) int { return a.At.Compare(b.At) })
	var s series
	for _, p := range order {
		at, sum := seconds(p.At), 0.0
		if n := len(s.at); n > 0 {
			sum = s.sum[n-1] + s.value[n-1]*(at-s.at[n-1])
		}
		s.at, s.value, s.sum = append(s.at, at), append(s.value, value(p)), append(s.sum, sum)
	}
	return s
}

// sane makes a load of any number.
func sane(v float64) float64 {
	if !(v > 0) {
		return 0
	}
	return min(v, 1e18)
}

// saneTarget leaves out targets that nothing can be divided by.
func saneTarget(v float64) float64 {
	if v = sane(v); v < 1e-9 {
		return 0
	}
	return v
}

// known is since when the load is known: +Inf if it never is.
func (s series) known() float64 {
	if len(s.at) == 0 {
		return math.Inf(1)
	}
	return s.at[0]
}

// before is how many points lie at or before a time.
func (s series) before(t float64) int {
	return sort.Search(len(s.at), func(i int) bool { return s.at[i] > t })
}

func (s series) integral(t float64) float64 {
	i := s.before(t) - 1
	if i < 0 {
		return 0
	}
	return s.sum[i] + s.value[i]*(t-s.at[i])
}

// mean over what is known of from..to. ok is false if nothing is.
func (s series) mean(from, to float64) (mean float64, ok bool) {
	from = max(from, s.known())
	switch {
	case from > to || len(s.at) == 0:
		return 0, false
	case to-from < 1e-9*max(1, math.Abs(to)): // too short to divide by
		return s.value[s.before(to)-1], true
	}
	return max(0, (s.integral(to)-s.integral(from))/(to-from)), true
}

// peak is the greatest value in from..to.
func (s series) peak(from, to float64) (peak float64) {
	for i := max(0, s.before(from)-1); i < len(s.at) && s.at[i] < to; i++ {
		peak = max(peak, s.value[i])
	}
	return peak
}
