package planner

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const window = 10 * time.Second

// at is a time of the test, in seconds.
func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// flushes counts a load that is a function of time, in bytes per second; a record
// is ten bytes.
func flushes(from, to, every float64, load func(seconds float64) float64) (s Series) {
	s = Series{{At: at(from)}}
	sum := 0.0
	for n := 1; from+float64(n)*every <= to+1e-9; n++ {
		now := from + float64(n)*every
		sum += load(now-every/2) * every
		s = append(s, Sample{at(now), uint64(sum / 10), uint64(sum)})
	}
	return s
}

func constant(rate float64) func(float64) float64 { return func(float64) float64 { return rate } }

// about fails unless a rate is within a part of what is wanted.
func about(t interface {
	Helper()
	Errorf(string, ...any)
}, got Rate, want, part float64) {
	t.Helper()
	if math.Abs(got.Bytes-want) > part*want || math.Abs(got.Records-want/10) > part*want/10 {
		t.Errorf("got %v, want %v", got, Rate{want / 10, want})
	}
}

func TestAverageOfNothing(t *testing.T) {
	for name, s := range map[string]Series{
		"none": nil, "one": {{At: at(0), Records: 5, Bytes: 50}},
		"two at once": {{At: at(0)}, {at(0), 5, 50}},
		"all later":   {{At: at(99)}, {at(100), 5, 50}},
		"no load":     {{At: at(0)}, {At: at(1)}},
	} {
		if got := s.Average(at(5), window); got != (Rate{}) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestAverageOfConstantLoad is exact from the first flush on, whenever it began
// to be known: of the time before nothing is known, and it counts for nothing.
func TestAverageOfConstantLoad(t *testing.T) {
	for _, every := range []float64{0.05, 1, 7} {
		for _, until := range []float64{2, 10, 60, 3600} {
			if s := flushes(0, until, every, constant(1e6)); len(s) > 1 {
				about(t, s.Average(s[len(s)-1].At, window), 1e6, 1e-4)
				about(t, s.Average(s[len(s)-1].At, 2*time.Minute), 1e6, 1e-4)
			}
		}
	}
}

// TestAverageOfStep shows 95 % of a step after the window; the same when the load
// ends.
func TestAverageOfStep(t *testing.T) {
	s := flushes(0, 1200, 1, func(now float64) float64 {
		if now > 1000 && now < 1100 {
			return 1e6
		}
		return 0
	})
	for seconds, want := range map[int]float64{1000: 0, 1003: 0.593, 1010: 0.950, 1020: 0.998, 1100: 1, 1103: 0.407, 1110: 0.050, 1120: 0.002} {
		if got := s[:seconds+1].Average(at(float64(seconds)), window).Bytes / 1e6; math.Abs(got-want) > 0.001 {
			t.Errorf("at %d s: %.3f of the height, want %.3f", seconds, got, want)
		}
	}
}

func TestAverageOfNoise(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := flushes(0, 3600, 1, func(float64) float64 { return 1e6 * (0.7 + 0.6*rng.Float64()) })
	for seconds := 100.0; seconds < 3600; seconds += 10 {
		about(t, s.Average(at(seconds), window), 1e6, 0.25)
		about(t, s.Average(at(seconds), 2*time.Minute), 1e6, 0.1)
	}
}

// TestAverageOfIrregularFlushes does not depend on when a steady load is flushed.
func TestAverageOfIrregularFlushes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Series{{At: at(0)}}
		now := 0.0
		for range rapid.IntRange(1, 100).Draw(t, "flushes") {
			now += rapid.Float64Range(0.001, 20).Draw(t, "pause")
			s = append(s, Sample{at(now), uint64(now * 1e6), uint64(now * 1e7)})
		}
		if now < 0.5 {
			return // too few records to be exact
		}
		about(t, s.Average(at(now), window), 1e7, 1e-3)
		about(t, s.Average(at(now), time.Hour), 1e7, 1e-3)
	})
}

// TestAverageOfSilence: what is not flushed for longer than a flush may take
// counts as silence.
func TestAverageOfSilence(t *testing.T) {
	s := flushes(0, 600, 1, constant(1e6))
	last := s[len(s)-1].At
	for quiet, want := range map[time.Duration]float64{0: 1, time.Second: 1, 2 * time.Second: 1, 12 * time.Second: 0.05, 22 * time.Second: 0.0025, 24 * time.Hour: 0} {
		asOf := s.AsOf(last.Add(quiet), time.Second)
		if got := s.Average(asOf, window).Bytes / 1e6; math.Abs(got-want) > 0.002 {
			t.Errorf("after %s of silence: %.4f of the load, want %.4f", quiet, got, want)
		}
	}
	if got := Series(nil).AsOf(noon, time.Second); !got.Equal(noon.Add(-2 * time.Second)) {
		t.Errorf("nothing is known as of %s", got)
	}
}

// TestAverageAtOneInstant: chunks that were committed in the same instant count
// like one.
func TestAverageAtOneInstant(t *testing.T) {
	var twice Series
	for _, s := range flushes(0, 60, 1, constant(1e6)) {
		half := s
		half.Bytes -= min(s.Bytes, 500_000)
		half.Records -= min(s.Records, 50_000)
		twice = append(twice, half, s)
	}
	about(t, twice.Average(at(60), window), 1e6, 1e-4)
}

// TestAverageOfClocks: workers that take turns have clocks that differ. What they
// bring counts once, and at about the right time.
func TestAverageOfClocks(t *testing.T) {
	for _, wrong := range []float64{-3600, -5, -0.5, 0.5, 5, 3600} {
		s := flushes(0, 300, 1, constant(1e6))
		for i := 100; i < 150; i++ {
			s[i].At = s[i].At.Add(time.Duration(wrong * float64(time.Second)))
		}
		for seconds := 160.0; seconds <= 300; seconds += 10 {
			seen := s[:int(seconds)+1]
			about(t, seen.Average(seen.AsOf(at(seconds), time.Second), window), 1e6, 0.4)
		}
		end := s.Average(s.AsOf(at(300), time.Second), window)
		about(t, end, 1e6, 0.01)
	}
}

// TestAverageIsSound: whatever samples say, a rate is a number, not negative, and
// the same whenever it is asked for.
func TestAverageIsSound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 1000), rapid.Just(uint64(math.MaxUint64)))
		seconds := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1e10, 1e10), rapid.Int64Range(-3, 3))
		var s Series
		for range rapid.IntRange(0, 20).Draw(t, "samples") {
			s = append(s, Sample{noon.Add(time.Duration(seconds.Draw(t, "at"))), count.Draw(t, "records"), count.Draw(t, "bytes")})
		}
		asOf := s.AsOf(noon.Add(time.Duration(seconds.Draw(t, "now"))), time.Second)
		for _, w := range []time.Duration{time.Second, window, 720 * time.Hour} {
			r := s.Average(asOf, w)
			if !(r.Records >= 0 && r.Bytes >= 0) || math.IsInf(r.Records, 0) || math.IsInf(r.Bytes, 0) {
				t.Fatalf("%v of %v", r, s)
			}
			if again := s.Average(asOf, w); again != r {
				t.Fatalf("%v, and then %v", r, again)
			}
		}
	})
}

// TestAverageOfShrinkingCounts: counts never shrink in a sound segment; if they
// do, nothing is subtracted.
func TestAverageOfShrinkingCounts(t *testing.T) {
	s := flushes(0, 60, 1, constant(1e6))
	for i := 40; i < 50; i++ {
		s[i].Records, s[i].Bytes = 3, 3
	}
	about(t, s.Average(at(60), window), 1e6, 0.5)
}
