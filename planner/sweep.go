package planner

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/segment"
)

// Summary is what a sweep did.
type Summary struct {
	Topics  int `json:"topics"`
	Splits  int `json:"splits"`
	Merges  int `json:"merges"`
	Rolls   int `json:"rolls"`
	Rested  int `json:"rested"`   // topics that need nothing until records come
	Gone    int `json:"gone"`     // topics that were deleted
	Moved   int `json:"moved"`    // topics whose layout somebody else changed meanwhile
	Failed  int `json:"failed"`   // topics that could not be looked at or edited
	Left    int `json:"left"`     // topics that were not begun before the end
	Segment int `json:"segments"` // live segments that were looked at
	// Blind counts topics of which nothing was merged, since their lanes did not
	// answer; Fault is why, of one of them.
	Blind int   `json:"blind"`
	Fault error `json:"-"`
}

// Add counts a report.
func (s *Summary) Add(r Report) {
	s.Topics++
	s.Segment += len(r.Situation.Loads)
	if r.Moved {
		s.Moved++
	}
	if r.Blind != nil {
		s.Blind, s.Fault = s.Blind+1, r.Blind
	}
	for _, m := range r.Made {
		switch m.Kind {
		case Split:
			s.Splits++
		case Merge:
			s.Merges++
		case Roll:
			s.Rolls++
		}
	}
}

// SweepError lists what kept a sweep from topics.
type SweepError struct{ Faults []error }

// shownFaults is how many faults a message lists: a filer that is away gives one
// for each topic.
const shownFaults = 5

func (e *SweepError) Error() string {
	text := fmt.Sprintf("%s could not be planned for:\n%s", plural(len(e.Faults), "topic"), errors.Join(e.Faults[:min(len(e.Faults), shownFaults)]...))
	if more := len(e.Faults) - shownFaults; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return text
}

// Unwrap gives all faults.
func (e *SweepError) Unwrap() []error { return e.Faults }

// sweepParallel is how many topics are planned for at a time.
const sweepParallel = 8

// Sweep plans for every topic that is not at rest; with all, for every topic that
// there is, marked or not. A topic that fails does not keep the others from it: all
// faults come together, in a *SweepError. When stop ends, no more topics are begun,
// which the summary tells, and ctx ends everything at once.
func (p *Planner) Sweep(ctx, stop context.Context, all bool) (Summary, error) {
	marks, err := p.marks(ctx)
	if err == nil && all {
		var unmarked []segment.ActiveMark
		unmarked, err = p.unmarked(ctx, marks)
		marks = append(marks, unmarked...)
	}
	if err != nil {
		return Summary{}, err
	}
	return p.each(ctx, stop, marks, sweep{parallel: sweepParallel})
}

// marks lists the topics that are not at rest.
func (p *Planner) marks(ctx context.Context) (marks []segment.ActiveMark, err error) {
	for m, err := range p.Store.Active(ctx) {
		if err != nil {
			return nil, err
		}
		marks = append(marks, m)
	}
	return marks, nil
}

// unmarked lists all other topics, as marks that there are not.
func (p *Planner) unmarked(ctx context.Context, marks []segment.ActiveMark) (others []segment.ActiveMark, err error) {
	seen := make(map[string]bool, len(marks))
	for _, m := range marks {
		seen[m.Topic] = true
	}
	topics, err := p.Store.Topics(ctx)
	for _, t := range topics {
		if !seen[t.Name] {
			others = append(others, segment.ActiveMark{Topic: t.Name})
		}
	}
	return others, err
}

// sweep says how to go over topics. tell, if not nil, is called with what came of
// each, once at a time.
type sweep struct {
	parallel int
	tell     func(Report)
}

// each plans for topics side by side.
func (p *Planner) each(ctx, stop context.Context, marks []segment.ActiveMark, how sweep) (sum Summary, err error) {
	var mu sync.Mutex
	var faults []error
	var g errgroup.Group
	g.SetLimit(how.parallel)
	for i, m := range marks {
		if stop.Err() != nil || ctx.Err() != nil {
			mu.Lock()
			sum.Left = len(marks) - i
			mu.Unlock()
			break
		}
		g.Go(func() error {
			r, rested, err := p.one(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				sum.Add(r)
			case noTopic(err):
				sum.Gone++
			default:
				sum.Failed++
				faults = append(faults, fmt.Errorf("topic %q: %w", m.Topic, err))
			}
			if rested {
				sum.Rested++
			}
			if how.tell != nil {
				how.tell(r)
			}
			return nil
		})
	}
	_ = g.Wait() // always nil
	if len(faults) > 0 {
		return sum, &SweepError{faults}
	}
	return sum, nil
}

// one plans for a topic. It lets it rest if it may, and marks it if it may not and
// has no mark.
func (p *Planner) one(ctx context.Context, m segment.ActiveMark) (r Report, rested bool, err error) {
	r, err = p.Topic(ctx, m.Topic)
	var fault error
	switch over := noTopic(err) || err == nil && r.AtRest; {
	case over:
		rested, fault = p.rest(ctx, m)
		if rested || m.ID == "" {
			p.forget(m.Topic)
		}
	case err == nil && m.ID == "":
		p.Logger.Warn("a topic that is not at rest had no mark, and gets one", "topic", m.Topic)
		fault = p.Store.MarkActive(ctx, m.Topic, p.Now())
	}
	if fault != nil {
		return r, rested, fault
	}
	return r, rested, err
}

// noTopic tells that a topic was deleted, or is being.
func noTopic(err error) bool {
	return errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting)
}
