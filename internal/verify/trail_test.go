package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
)

// TestTrails: what was done to a lane by hand, and is in its trail, is no
// violation; without the trail it is.
func TestTrails(t *testing.T) {
	const successor = "lane.default.0.zzzzzzzz"
	reset := func(f *fixture) { // after message 12 of A; messages 13 and 14 are the successor's
		l := f.feed()
		l.state[laneA] = LaneState{"zzzzzzzz", 2, 14}
		f.checkpoints[successor] = 12
	}
	for _, c := range []struct {
		name   string
		model  func(f *fixture)
		source string
		events string
		want   []Kind
	}{
		{"reset", reset, sourceA, `{"what":"reset","to":12,"successor":"zzzzzzzz"}`, nil},
		{"reset, twice", reset, sourceA, `{"what":"reset","to":5,"successor":"yyyyyyyy"},{"what":"reset","to":12,"successor":"zzzzzzzz"}`, nil},
		{"reset, but more is committed than was there", func(f *fixture) {
			reset(f)
			f.checkpoints[successor] = 13
			f.lanes.send(laneA, successor, 13)
		}, sourceA, `{"what":"reset","to":12,"successor":"zzzzzzzz"}`, one("lane.uncommitted")},
		{"reset to another incarnation", reset, sourceA, `{"what":"reset","to":12,"successor":"yyyyyyyy"}`, one("lane.uncommitted")},
		{"reset, without a trail", reset, "", "", one("lane.uncommitted")},
		{"reset, with a trail that is none", reset, sourceA, "?", one("lane.uncommitted")},
		{"deleted", func(f *fixture) { f.feed().missing[laneB] = lane.ErrNoLane }, sourceB, `{"what":"deleted","to":6}`, nil},
		{"deleted, another one", func(f *fixture) { f.feed().missing[laneB] = lane.ErrNoLane }, sourceA, `{"what":"deleted","to":6}`, one("lane.stream")},
		{"deleted, and no lane is there now", func(f *fixture) { f.feed().missing[laneB] = &lane.MismatchError{Stream: "x"} }, sourceB, `{"what":"deleted","to":6}`, one("lane.stream")},
		{"a gap was accepted, of which some rows are there", func(f *fixture) { f.cut(1, 2, 3) }, sourceA, `{"what":"accept-gap","from":5,"to":9}`, nil},
		{"another gap was accepted", func(f *fixture) { f.cut(1, 2, 3) }, sourceA, `{"what":"accept-gap","from":9,"to":12},{"what":"reset","from":5,"to":9}`, one("rows.missing")},
		{"a gap was accepted", func(f *fixture) { f.feed().gone[12] = true }, "gap", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture()
			c.model(f)
			f.write(t)
			switch c.source {
			case "":
			case "gap":
				replaced(root+"/checkpoints/"+sourceA+".json", func(file *filer.File) {
					file.Content = []byte(strings.Replace(string(file.Content), `"producers"`, `"gap":true,"producers"`, 1))
				})(t, f)
			default:
				f.put(t, root+"/checkpoints/"+c.source+".audit", "audit", filer.Attrs{}, fmt.Appendf(nil, `{"source":%q,"events":[%s]}`, c.source, c.events), false)
			}
			r := f.verify(t)
			if got := found(r); !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %q", r.Violations, c.want)
			}
		})
	}
}
