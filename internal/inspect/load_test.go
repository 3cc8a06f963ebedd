package inspect

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

// stretches is a density of a range: each takes so many slots and so much load.
func stretches(lo uint32, list ...[2]float64) (d topic.Density) {
	for _, s := range list {
		d = append(d, topic.Stretch{Range: topic.Range{Lo: lo, Hi: lo + uint32(s[0])}, Load: s[1]})
		lo += uint32(s[0])
	}
	return d
}

func TestHalfLoad(t *testing.T) {
	for name, c := range map[string]struct {
		load topic.Density
		want Cut
	}{
		"even":                     {topic.Even(topic.Range{Lo: 6400, Hi: 12800}, 640), Cut{9600, 320, 320}},
		"left-heavy":               {stretches(6400, [2]float64{100, 60}, [2]float64{100, 50}, [2]float64{100, 10}), Cut{6500, 60, 60}},
		"two slots":                {stretches(10, [2]float64{1, 5}, [2]float64{1, 5}), Cut{11, 5, 5}},
		"at the end of all slots":  {topic.Even(topic.Range{Lo: 65534, Hi: 65536}, 10), Cut{65535, 5, 5}},
		"a hot slot at the left":   {stretches(0, [2]float64{1, 50}, [2]float64{1000, 40}), Cut{1, 50, 40}},
		"a hot slot at the right":  {stretches(0, [2]float64{1000, 40}, [2]float64{1, 50}), Cut{1000, 40, 50}},
		"a hot slot among others":  {stretches(0, [2]float64{100, 10}, [2]float64{1, 50}, [2]float64{100, 20}), Cut{101, 60, 20}},
		"a hot slot, others right": {stretches(0, [2]float64{100, 20}, [2]float64{1, 50}, [2]float64{100, 10}), Cut{100, 20, 60}},
	} {
		got, err := HalfLoad(c.load)
		if err != nil || got.Slot != c.want.Slot || math.Abs(got.Left-c.want.Left) > 1e-9 || math.Abs(got.Right-c.want.Right) > 1e-9 {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, load := range map[string]topic.Density{
		"nothing": nil, "no load": topic.Even(topic.Full, 0), "one slot": topic.Even(topic.Range{Lo: 1, Hi: 2}, 5),
	} {
		if got, err := HalfLoad(load); !errors.Is(err, ErrNoLoad) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestHalfLoadIsBest: the sides are what lies there, and no other slot cuts the
// load better.
func TestHalfLoadIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list [][2]float64
		for i, n := range rapid.SliceOfN(rapid.IntRange(1, 40), 2, 20).Draw(t, "sizes") {
			load := rapid.SampledFrom([]float64{0, 1, 10, 100}).Draw(t, "load")
			list = append(list, [2]float64{float64(n), load * float64(1+i%3)})
		}
		load := stretches(rapid.Uint32Range(0, 60000).Draw(t, "lo"), list...)
		r, total := load.Range(), load.Total()
		cut, err := HalfLoad(load)
		if total == 0 {
			if !errors.Is(err, ErrNoLoad) {
				t.Errorf("%v", err)
			}
			return
		}
		if err != nil || cut.Slot <= r.Lo || cut.Slot >= r.Hi {
			t.Fatalf("%+v in %s, %v", cut, r, err)
		}
		if math.Abs(cut.Left+cut.Right-total) > 1e-6*total {
			t.Errorf("%+v of %v", cut, total)
		}
		for at := r.Lo + 1; at < r.Hi; at++ {
			left := load.Of(topic.Range{Lo: r.Lo, Hi: at})
			if worst := max(left, total-left); worst < max(cut.Left, cut.Right)-1e-6*total {
				t.Fatalf("a cut at %d leaves %v, %+v more", at, worst, cut)
			}
		}
	})
}

// TestLoad: what the last chunks have counted is what the cut goes by, and a hot
// slot is told from its neighbours.
func TestLoad(t *testing.T) {
	w := newWorld(t, 1)
	if load, err := w.Load(t.Context(), w.live("slot:0").ID); err != nil || load.Total() != 0 || load.Range() != topic.Full {
		t.Errorf("of a new segment: %v, %v", load, err)
	}
	for i := range 300 {
		w.append("lane", rec{uint64(2*i + 1), 0, 100, i}, rec{uint64(2*i + 2), 0, 40000, i})
	}
	load, err := w.Load(t.Context(), w.live("slot:0").ID)
	w.check(err)
	_, bytes := w.sizes()
	if want := float64(bytes[300-loadChunks]); math.Abs(load.Total()-want) > 1e-6*want {
		t.Errorf("%v bytes, want %v", load.Total(), want)
	}
	for _, slot := range []uint32{100, 40000} {
		if got := load.Of(topic.Range{Lo: slot, Hi: slot + 1}); math.Abs(got-load.Total()/2) > 0.01*load.Total() {
			t.Errorf("%v of %v bytes in slot %d", got, load.Total(), slot)
		}
	}
	cut, err := HalfLoad(load)
	if err != nil || math.Abs(cut.Left-cut.Right) > 0.01*load.Total() || cut.Slot <= 100 || cut.Slot > 40000 {
		t.Errorf("%+v, %v", cut, err)
	}
}
