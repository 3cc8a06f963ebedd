package sim

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// of is a load of a level: a multiple of the default target, with records of 256
// bytes.
func of(level float64) planner.Rate {
	return planner.Rate{Bytes: level * topic.TargetBytes, Records: level * topic.TargetBytes / 256}
}

// curve is a load that follows a function, in steps of so much time.
func curve(length, every time.Duration, f func(t time.Duration) float64) (t Trace) {
	for at := time.Duration(0); at <= length; at += every {
		t.Steps = append(t.Steps, Step{At: at, Rate: of(f(at))})
	}
	return t
}

// steps is a load that goes through levels: so long each.
func steps(levels ...any) (t Trace) {
	at := time.Duration(0)
	for i := 0; i < len(levels); i += 2 {
		t.Steps = append(t.Steps, Step{At: at, Rate: of(levels[i].(float64))})
		at += levels[i+1].(time.Duration)
	}
	t.Steps = append(t.Steps, Step{At: at})
	return t
}

// where puts all steps of a trace where a profile says.
func (t Trace) where(w *Profile) Trace {
	for i := range t.Steps {
		t.Steps[i].Where = w
	}
	return t
}

func sine(period time.Duration, low, high float64) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		return low + (high-low)*(1-math.Cos(2*math.Pi*t.Seconds()/period.Seconds()))/2
	}
}

func sawtooth(period time.Duration, low, high float64) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		return low + (high-low)*math.Mod(t.Seconds(), period.Seconds())/period.Seconds()
	}
}

// noise is a mean give or take 30 %, anew each time it is asked.
func noise(mean float64, seed uint64) func(time.Duration) float64 {
	r := rand.New(rand.NewPCG(seed, 0))
	return func(time.Duration) float64 { return mean * (0.7 + 0.6*r.Float64()) }
}

// ramp grows to a thousand times the target, by the same factor each minute.
func ramp(length time.Duration, from, to float64) func(time.Duration) float64 {
	return func(t time.Duration) float64 { return from * math.Pow(to/from, t.Seconds()/length.Seconds()) }
}

// hotKey puts a share of the load on one slot.
func hotKey(slot uint32, share float64) *Profile {
	w, _ := NewProfile(
		Part{topic.Full, of(1 - share)},
		Part{topic.Range{Lo: slot, Hi: slot + 1}, of(share)},
	)
	return w
}

// movingSpot has two thirds of the load in a twentieth of the key space, which
// moves on now and then.
func movingSpot(length, every time.Duration, level float64) (t Trace) {
	r := rand.New(rand.NewPCG(7, 7))
	for at := time.Duration(0); at <= length; at += every {
		lo := r.Uint32N(topic.Slots * 19 / 20)
		w, _ := NewProfile(Part{topic.Full, of(1)}, Part{topic.Range{Lo: lo, Hi: lo + topic.Slots/20}, of(2)})
		t.Steps = append(t.Steps, Step{At: at, Rate: of(level), Where: w})
	}
	return t
}

// manyKeys are a million keys in their slots, the i-th with a weight.
func manyKeys(weight func(i int) float64) *Profile {
	var loads [topic.Slots]float64
	key := make([]byte, 0, 16)
	for i := range 1_000_000 {
		key = append(key[:0], "key-"...)
		for n := i; n > 0; n /= 10 {
			key = append(key, byte('0'+n%10))
		}
		loads[topic.SlotOf(key)] += weight(i)
	}
	return NewSlotProfile(&loads)
}

func zipf(i int) float64 { return math.Pow(float64(i+1), -1.1) }
func alike(int) float64  { return 1 }

// expected is a flood that was declared ten minutes before it came.
func expected() Trace {
	t := steps(0.1, 20*time.Minute, 16.0, 20*time.Minute, 0.1, 90*time.Minute)
	t.Declared = []Declaration{{From: 10 * time.Minute, To: 40 * time.Minute, Rate: of(16)}}
	return t
}

func play(tb testing.TB, t Trace, p planner.Policy, o Options) *Result {
	tb.Helper()
	r, err := Run(tb.Context(), t, p, o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func rng(lo, hi int) topic.Range { return topic.Range{Lo: uint32(lo), Hi: uint32(hi)} }
