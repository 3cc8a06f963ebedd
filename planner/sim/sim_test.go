package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// pattern is a load, and what is promised of the default policy under it.
type pattern struct {
	name  string
	trace Trace
	// perHour bounds splits and merges in any hour. An edit splits one segment, or
	// merges neighbours, so a load that takes many segments takes many.
	perHour int
	// balance bounds the ratio of loads in the end; 0: the load has not settled.
	balance float64
	cap     int  // 0: as the policy has it
	silent  bool // the load has ended: all is to be sealed, and at the floor
	naive   bool // a naive policy is to fail
}

// patterns are of multiples of what one segment is to take.
func patterns() []pattern {
	const h, m, s = time.Hour, time.Minute, time.Second
	return []pattern{
		{name: "step to 1.05", trace: steps(0.2, h, 1.05, h), perHour: 1, balance: 2},
		{name: "step to 1.5", trace: steps(0.2, h, 1.5, h), perHour: 1, balance: 2},
		{name: "step to 3", trace: steps(0.2, h, 3.0, h), perHour: 1, balance: 2},
		{name: "step to 20", trace: steps(0.2, h, 20.0, h), perHour: 1, balance: 2},
		{name: "step to 1,000", trace: steps(0.2, 5*m, 1000.0, 10*m), perHour: 1100, balance: 2, cap: topic.MaxLive},
		{name: "step down from 20", trace: steps(20.0, h, 0.2, 2*h), perHour: 20},
		{name: "steps up and down", trace: steps(0.2, h, 5.0, h, 2.0, h, 8.0, h, 1.0, h), perHour: 12, balance: 2},
		{name: "spike of 5 s", trace: steps(0.2, h, 10.0, 5*s, 0.2, h), perHour: 2},
		{name: "sine of 10 minutes", trace: curve(6*h, s, sine(10*m, 0.1, 5)), perHour: 30, naive: true},
		{name: "sine of 24 hours", trace: curve(24*h, m, sine(24*h, 0.1, 12)), perHour: 16},
		{name: "sawtooth of 10 minutes", trace: curve(6*h, s, sawtooth(10*m, 0.1, 5)), perHour: 30, naive: true},
		{name: "sawtooth of an hour", trace: curve(6*h, s, sawtooth(h, 0.1, 5)), perHour: 16},
		{name: "noise around 0.3", trace: curve(6*h, s, noise(0.3, 1)), perHour: 0},
		{name: "noise around 0.6", trace: curve(6*h, s, noise(0.6, 2)), perHour: 0},
		{name: "noise around 0.8", trace: curve(6*h, s, noise(0.8, 3)), perHour: 1, naive: true},
		{name: "noise around 0.9", trace: curve(6*h, s, noise(0.9, 4)), perHour: 1, naive: true},
		{name: "noise around 1.2", trace: curve(6*h, s, noise(1.2, 5)), perHour: 1, naive: true},
		{name: "noise of 10 s around 0.5", trace: curve(6*h, 10*s, noise(0.5, 6)), perHour: 0},
		{name: "noise of 10 s around 0.8", trace: curve(6*h, 10*s, noise(0.8, 7)), perHour: 2, naive: true},
		{name: "noise of a minute around 0.8", trace: curve(12*h, m, noise(0.8, 8)), perHour: 2, naive: true},
		{name: "noise of a minute around 1.2", trace: curve(12*h, m, noise(1.2, 9)), perHour: 4, naive: true},
		{name: "noise of 10 minutes around 5", trace: curve(24*h, 10*m, noise(5, 10)), perHour: 4, naive: true},
		{name: "ramp to 1,000", trace: curve(h, 10*s, ramp(h, 1, 1000)), perHour: 3000, cap: topic.MaxLive},
		{name: "hot key", trace: steps(0.2, h, 10.0, h).where(hotKey(12345, 0.6)), perHour: 1, balance: 2},
		{name: "hot key in the first slot", trace: steps(0.2, h, 10.0, h).where(hotKey(0, 0.6)), perHour: 1, balance: 2},
		{name: "moving hot spot", trace: movingSpot(6*h, 20*m, 6), perHour: 40},
		{name: "a million keys, Zipf 1.1", trace: steps(0.2, h, 20.0, h).where(manyKeys(zipf)), perHour: 1, balance: 2},
		{name: "a million keys, all alike", trace: steps(0.2, h, 20.0, h).where(manyKeys(alike)), perHour: 1, balance: 2},
		{name: "silence", trace: steps(20.0, h, 0.0, 90*m), perHour: 20, silent: true},
		{name: "silence after little", trace: steps(0.01, 10*m, 0.0, 90*m), perHour: 0, silent: true},
		{name: "declared flood", trace: expected(), perHour: 20},
	}
}

// follows lists what a result breaks of what is promised.
func (p pattern) broken(r *Result) (list []string) {
	broken := func(ok bool, format string, a ...any) {
		if !ok {
			list = append(list, fmt.Sprintf(format, a...))
		}
	}
	defaults := planner.DefaultPolicy()
	n := r.MergedWithin(defaults.CoolDown)
	broken(n == 0, "thrash: %d merges undid a split within %s", n, defaults.CoolDown)
	broken(r.PerHour <= p.perHour, "edits: %d in an hour, want at most %d", r.PerHour, p.perHour)
	longest := topic.Duration(defaults.Short + 2*planner.DefaultPeriod + topic.DefaultFlushAge)
	broken(r.Longest <= longest, "over the target for %s, want at most %s", tenths(r.Longest), tenths(longest))
	broken(p.balance == 0 || r.Imbalance <= p.balance, "the heaviest segment has %.2f times the load of the lightest", r.Imbalance)
	if p.silent {
		broken(r.Unsealed == 0 && r.Last == 1, "%d records are not sealed, and %d segments live", r.Unsealed, r.Last)
	}
	return list
}

func TestPatterns(t *testing.T) {
	for _, p := range patterns() {
		t.Run(p.name, func(t *testing.T) {
			policy := planner.DefaultPolicy()
			if p.cap > 0 {
				policy.Cap = p.cap
			}
			r := play(t, p.trace, policy, Options{})
			for _, b := range p.broken(r) {
				t.Error(b)
			}
			t.Logf("%d in the busiest hour, over the target %s at most, balance %.2f", r.PerHour, tenths(r.Longest), r.Imbalance)
			if t.Failed() {
				t.Logf("\n%s\n%.4000s", r.Text(), r.Log())
			}
		})
	}
}

// naive is a policy without hysteresis: it merges what it would not quite split,
// by the load of the last second, and at once.
func naive() planner.Policy {
	p := planner.DefaultPolicy()
	p.Short, p.Long = time.Second, time.Second
	p.Sustained, p.MergeBelow = p.Burst, 0.99*p.Burst
	p.CoolDown = 0
	return p
}

// TestNaivePolicyFails shows that the promises are worth something.
func TestNaivePolicyFails(t *testing.T) {
	if naive().Validate() == nil {
		t.Error("a policy without hysteresis is accepted")
	}
	for _, p := range patterns() {
		if !p.naive {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			found := strings.Join(p.broken(play(t, p.trace, naive(), Options{})), "\n")
			for _, want := range []string{"thrash: ", "edits: "} {
				if !strings.Contains(found, want) {
					t.Errorf("it is found to break only this:\n%s\nwant %q too", found, want)
				}
			}
		})
	}
}

// TestFloors: a topic keeps the segments that it was made with.
func TestFloors(t *testing.T) {
	for _, roots := range []int{2, 3, 7} {
		r := play(t, steps(20.0, 20*time.Minute, 0.0, 2*time.Hour), planner.DefaultPolicy(), Options{Roots: roots})
		if r.First != roots || r.Last != roots || r.Unsealed != 0 || r.Most <= roots {
			t.Errorf("made with %d, in the end %d, with %d records that are not sealed", roots, r.Last, r.Unsealed)
		}
	}
}

// TestDeclared: a flood that is declared finds the segments ready.
func TestDeclared(t *testing.T) {
	declared := play(t, expected(), planner.DefaultPolicy(), Options{})
	if declared.OverFor != 0 {
		t.Errorf("above the target for %s", tenths(declared.OverFor))
	}
	if first := declared.Edits[0]; first.Kind != planner.Split || time.Duration(first.At) > 10*time.Minute+2*planner.DefaultPeriod {
		t.Errorf("%s at %s, want a split when it is declared", first.Kind, tenths(first.At))
	}
	if declared.Last != 1 {
		t.Errorf("%d segments in the end", declared.Last)
	}
	surprise := expected()
	surprise.Declared = nil
	if r := play(t, surprise, planner.DefaultPolicy(), Options{}); r.OverFor == 0 {
		t.Error("a flood that nobody declared finds the segments ready, too")
	}
}

// TestFlushAges: what is promised holds for topics that flush rarely, too, with a
// flush more of delay.
func TestFlushAges(t *testing.T) {
	for _, age := range []time.Duration{200 * time.Millisecond, 3 * time.Second} {
		r := play(t, steps(0.2, 30*time.Minute, 3.0, 30*time.Minute), planner.DefaultPolicy(), Options{FlushAge: age})
		if want := topic.Duration(20*time.Second + 2*age); r.Longest > want || r.PerHour != 1 || r.Imbalance > 2 {
			t.Errorf("flushed every %s: over the target for %s, %d edits, balance %.2f", age, tenths(r.Longest), r.PerHour, r.Imbalance)
		}
	}
}

// TestFloodsDoNotWait: that many segments are due to be rolled does not keep one
// from being split, though edits are made one after the other.
func TestFloodsDoNotWait(t *testing.T) {
	p := planner.DefaultPolicy()
	p.Cap, p.RollBytes = 1024, 64<<20 // each is rolled every 27 s
	hot, _ := NewProfile(Part{topic.Full, of(120)}, Part{rng(1000, 1100), of(3)})
	for late := 30 * time.Second; late < time.Minute; late += 6 * time.Second {
		trace := steps(120.0, late, 123.0, 2*time.Minute)
		trace.Steps[1].Where = hot
		r := play(t, trace, p, Options{Roots: 400, EditTime: 150 * time.Millisecond})
		if want := topic.Duration(21 * time.Second); r.Longest > want || r.Onsets != 1 || r.Rolls < 400 {
			t.Errorf("onset after %s: over the target for %s, want at most %s; %d rolls", late, tenths(r.Longest), tenths(want), r.Rolls)
		}
	}
}
