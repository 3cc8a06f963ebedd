package planner

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// FuzzPlan plans with loads of arbitrary bits: no number, infinite, negative,
// huge. Loads come from attributes of files, which anything may have written. A
// segment whose rate is negative or no number is neither split nor merged; huge
// rates count as 10^15; where load falls counts as unknown if it makes no sense.
// Plans are made and can be written down whatever comes.
func FuzzPlan(f *testing.F) {
	for _, v := range []float64{0, 1, -1, 1e9, 1e300, math.NaN(), math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat64} {
		var b []byte
		for _, w := range []float64{v, 1e7, v, v, 1e9} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(w))
		}
		f.Add(append(append([]byte{3}, b...), b...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bits := func() (n uint64) {
			if len(data) >= 8 {
				n, data = binary.LittleEndian.Uint64(data), data[8:]
			}
			return n
		}
		float := func() float64 { return math.Float64frombits(bits()) }
		rate := func() Rate { return Rate{float(), float()} }
		segments := 1
		if len(data) > 0 {
			segments, data = 1+int(data[0])%70, data[1:]
		}
		s := Situation{Topic: "t", Now: noon, Roots: int(int32(bits())), Expected: rate(), Backlogs: []Backlog{{"l", bits(), time.Duration(bits())}}}
		for i, r := range topic.Divide(segments) {
			live := topic.Live{ID: topic.NewSegmentID(0, i, "test"), Range: r}
			s.Layout.Live = append(s.Layout.Live, live)
			s.Loads = append(s.Loads, Load{
				Segment: live.ID, Short: rate(), Long: rate(), Observed: time.Duration(bits()), Split: time.Unix(0, int64(bits())),
				Records: bits(), Bytes: bits(), First: time.Unix(0, int64(bits())),
				Density: topic.Density{
					{Range: topic.Range{Lo: r.Lo, Hi: r.Lo + 1}, Load: float()}, {Range: topic.Range{Lo: r.Lo + 1, Hi: r.Hi}, Load: float()},
				},
			})
		}
		p := DefaultPolicy()
		decisions := Plan(s, p)
		checkDecisions(t, s, decisions)
		for _, d := range decisions {
			if _, err := json.Marshal(d); err != nil {
				t.Fatal(err)
			}
			if d.Kind != Keep {
				apply(t, s.Layout, d)
			}
		}
		AtRest(s, p)
	})
}
