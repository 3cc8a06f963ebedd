package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// showPlan prints what was decided: all of it, or only what changes something.
func (a *app) showPlan(r planner.Report, keeps bool) error {
	s := r.Situation
	if s.Topic == "" {
		return nil // it failed before there was anything to show
	}
	if a.cfg.JSON {
		return a.json(viewPlan(r))
	}
	if r.Finished != nil {
		if err := a.printf("finished a %s that somebody else began\n", r.Finished.Kind); err != nil {
			return err
		}
	}
	if err := a.printf("topic %s, epoch %d: %s, the hottest at level %.2f%s\n", s.Topic, s.Layout.Epoch, count(len(s.Layout.Live), "live segment"), hottest(r.Decisions), also(r)); err != nil {
		return err
	}
	if keeps {
		for _, d := range r.Declared {
			if err := a.printf("declared: %s%s\n", declaredText(d), map[bool]string{true: ", which is over"}[d.Over(s.Now)]); err != nil {
				return err
			}
		}
	}
	shown, err := a.showDecisions(r, keeps)
	switch {
	case err != nil:
		return err
	case r.Moved:
		return a.printf("somebody else changed the layout meanwhile; what is not marked done was left\n")
	case shown == 0:
		return a.printf("nothing to do; --explain says why\n")
	}
	return nil
}

// showDecisions prints a line for each decision, and tells how many.
func (a *app) showDecisions(r planner.Report, keeps bool) (shown int, err error) {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, d := range r.Decisions {
		if d.Kind == planner.Keep && !keeps {
			continue
		}
		kind := d.Kind
		if madeOf(r, d) != nil {
			kind += ", done"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", kind, shorts(d.Segments), d.Reason)
		shown++
	}
	return shown, w.Flush()
}

// madeOf is the edit that came of a decision, nil if none did.
func madeOf(r planner.Report, d planner.Decision) *planner.Made {
	for i, m := range r.Made {
		if m.Kind == d.Kind && slices.Equal(m.Segments, d.Segments) {
			return &r.Made[i]
		}
	}
	return nil
}

func hottest(decisions []planner.Decision) (level float64) {
	for _, d := range decisions {
		level = max(level, d.Level)
	}
	return level
}

// also tells what else a plan went by.
func also(r planner.Report) string {
	var b strings.Builder
	if e := r.Situation.Expected; e != (planner.Rate{}) {
		fmt.Fprintf(&b, "; %s declared", rateText(e))
	}
	for _, lag := range r.Situation.Backlogs {
		fmt.Fprintf(&b, "; lane %s is %s behind", lag.Lane, count(int(min(lag.Messages, 1<<53)), "message"))
	}
	if r.Blind != nil {
		b.WriteString("; how far its lanes are behind is not known")
	}
	return b.String()
}

// count says how many of a thing there are.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%s %ss", humanize.Comma(int64(n)), what)
}

// planView is a plan as programs get it. Times that are not known are null.
type planView struct {
	Topic     string                 `json:"topic"`
	Epoch     uint64                 `json:"epoch"` // that the plan was made for
	At        time.Time              `json:"at"`
	Level     float64                `json:"level"` // of the hottest segment
	Finished  *topic.Edit            `json:"finished"`
	Decisions []decisionView         `json:"decisions"`
	Moved     bool                   `json:"moved"`
	AtRest    bool                   `json:"at_rest"`
	Loads     []loadView             `json:"loads"`
	Expected  planner.Rate           `json:"expected"`
	Declared  []segment.DeclaredLoad `json:"declared"`
	Backlogs  []backlogView          `json:"backlogs"`
	Blind     string                 `json:"blind"` // why backlogs are not known
}

type decisionView struct {
	planner.Decision
	Done *uint64 `json:"done"` // epoch of the edit that was made
}

type loadView struct {
	Segment  topic.SegmentID `json:"segment"`
	Range    topic.Range     `json:"range"`
	Short    planner.Rate    `json:"short"`
	Long     planner.Rate    `json:"long"`
	Observed float64         `json:"observed_seconds"`
	Records  uint64          `json:"records"`
	Bytes    uint64          `json:"bytes"`
	First    *time.Time      `json:"first"`
	Split    *time.Time      `json:"split"`
}

type backlogView struct {
	Lane     string  `json:"lane"`
	Messages uint64  `json:"messages"`
	Lag      float64 `json:"lag_seconds"`
}

func viewPlan(r planner.Report) planView {
	s := r.Situation
	v := planView{
		Topic: s.Topic, Epoch: s.Layout.Epoch, At: s.Now.UTC(), Level: hottest(r.Decisions), Finished: r.Finished,
		Moved: r.Moved, AtRest: r.AtRest, Expected: s.Expected, Declared: r.Declared,
		Decisions: []decisionView{}, Loads: []loadView{}, Backlogs: []backlogView{},
	}
	if r.Blind != nil {
		v.Blind = r.Blind.Error()
	}
	for _, d := range r.Decisions {
		view := decisionView{Decision: d}
		if m := madeOf(r, d); m != nil {
			view.Done = &m.Epoch
		}
		v.Decisions = append(v.Decisions, view)
	}
	for i, l := range s.Loads {
		v.Loads = append(v.Loads, loadView{
			l.Segment, s.Layout.Live[i].Range, l.Short, l.Long, l.Observed.Seconds(), l.Records, l.Bytes, timeOrNil(l.First), timeOrNil(l.Split),
		})
	}
	for _, b := range s.Backlogs {
		v.Backlogs = append(v.Backlogs, backlogView{b.Lane, b.Messages, b.Lag.Seconds()})
	}
	return v
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
