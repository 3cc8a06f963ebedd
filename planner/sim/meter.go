package sim

import (
	"time"

	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// meter sees what truly happens in a run, and what the planner does about it.
type meter struct {
	policy  planner.Policy
	began   time.Time
	layouts []topic.Layout
	edits   []Edit
	points  map[topic.SegmentID][]inspect.Point // of segments that are no more
	last    []planner.Decision
	runs    int
	most    int // segments

	current         Step
	arrived, peak   planner.Rate
	over            bool // a segment is above the target that could be split
	level           float64
	onset           time.Time
	overFor, lasted time.Duration
	onsets          int
	worst, hotSlot  float64

	series       []Point
	nextPoint    time.Time
	every        time.Duration
	pointAt      time.Time
	pointArrived planner.Rate
	pointLevel   float64
}

// resolution is into how many points the time of a run is divided.
const resolution = 1000

func newMeter(p planner.Policy, first topic.Layout, now, end time.Time) *meter {
	m := &meter{policy: p, began: now, layouts: []topic.Layout{first}, most: len(first.Live), points: map[topic.SegmentID][]inspect.Point{}}
	m.every = max(end.Sub(now)/resolution, time.Millisecond)
	m.nextPoint, m.pointAt = now.Add(m.every), now
	return m
}

// elapse counts the time up to now, in which nothing changed.
func (m *meter) elapse(from, to time.Time) {
	span := to.Sub(from)
	m.arrived = m.arrived.Plus(m.current.Times(span.Seconds()))
	if m.over {
		m.overFor += span
		m.lasted = max(m.lasted, to.Sub(m.onset))
	}
}

// judge compares what comes in with the target, after a change of the load or of
// the layout.
func (m *meter) judge(segments []*live, now time.Time) {
	over := false
	m.level = 0
	for _, s := range segments {
		l := level(m.policy, s.rate)
		m.level = max(m.level, l)
		if s.Size() == 1 {
			m.hotSlot = max(m.hotSlot, l)
		}
		over = over || s.Size() > 1 && l > 1
	}
	if over && !m.over {
		m.onset = now
		m.onsets++
	}
	m.over = over
	m.worst, m.pointLevel = max(m.worst, m.level), max(m.pointLevel, m.level)
	if level(m.policy, m.current.Rate) > level(m.policy, m.peak) {
		m.peak = m.current.Rate
	}
}

// retire keeps the load of a segment that is no more.
func (m *meter) retire(s *live) { m.points[s.ID] = s.points }

// edited notes an edit.
func (m *meter) edited(now time.Time, d planner.Decision, l topic.Layout) {
	m.most = max(m.most, len(l.Live))
	l.Live = nil // thousands, in thousands of layouts
	m.layouts = append(m.layouts, l)
	m.edits = append(m.edits, Edit{At: topic.Duration(now.Sub(m.began)), Epoch: l.Epoch, Decision: d})
}

// point ends a point of every series.
func (m *meter) point(now time.Time, segments []*live) {
	span := now.Sub(m.pointAt).Seconds()
	if span <= 0 {
		return
	}
	m.series = append(m.series, Point{
		At: topic.Duration(m.pointAt.Sub(m.began)), Segments: len(segments), Level: m.pointLevel,
		Rate: m.arrived.Plus(m.pointArrived.Times(-1)).Times(1 / span),
	})
	for _, s := range segments {
		s.draw(now)
	}
	m.pointAt, m.pointArrived, m.pointLevel = now, m.arrived, m.level
	m.nextPoint = now.Add(m.every)
}
