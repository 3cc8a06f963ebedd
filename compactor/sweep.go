package compactor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	// DefaultPeriod is between two sweeps of a resident compactor.
	DefaultPeriod = time.Minute
	// FullSweep is between two of its sweeps that look at all segments of all topics,
	// at rest or done with: for what others left behind, and for tables that were
	// dropped or have old snapshots.
	FullSweep = time.Hour

	sweepParallel = 8 // topics at a time
)

// Summary is what a sweep did.
type Summary struct {
	Topics      int       `json:"topics"`
	Compacted   int       `json:"compacted"`
	Committed   int       `json:"committed"`
	Trimmed     int       `json:"trimmed"`
	Swept       int       `json:"swept"`
	Waiting     int       `json:"waiting"`
	Quarantined int       `json:"quarantined"`
	Elsewhere   int       `json:"elsewhere"`
	Postponed   int       `json:"postponed"`
	Records     uint64    `json:"records"`
	Rows        uint64    `json:"rows"`
	Bytes       uint64    `json:"bytes"`
	Files       int       `json:"files"`
	FileBytes   uint64    `json:"file_bytes"`
	Held        int       `json:"held"`          // topics whose lease somebody else has
	Gone        int       `json:"gone"`          // topics that were deleted
	Failed      int       `json:"failed"`        // topics that could not be done, or not in all parts
	Left        int       `json:"left"`          // topics that were not begun, or not done, before the end
	Next        time.Time `json:"next,omitzero"` // when the first of them is to be looked at again
	// Silent counts topics of which not all that was due could be done, since the
	// catalog, or the endpoint of objects, gave no answers; Fault is why, of one of them.
	Silent int   `json:"silent"`
	Fault  error `json:"-"`
}

// Add counts what came of a topic, of which a failed one may have come further in some
// parts.
func (s *Summary) Add(r Report, err error) {
	one := Summary{
		Compacted: r.Compacted, Committed: r.Committed, Trimmed: r.Trimmed, Swept: r.Swept, Waiting: r.Waiting,
		Quarantined: r.Quarantined, Elsewhere: r.Elsewhere, Postponed: r.Postponed,
		Records: r.Records, Rows: r.Rows, Bytes: r.Bytes, Files: r.Files, FileBytes: r.FileBytes, Next: r.Next,
	}
	switch {
	case noTopic(err):
		one.Gone++
	case err != nil:
		one.Failed++
	default:
		one.Topics++
	}
	if r.Cut && !noTopic(err) {
		one.Left++
	}
	if r.Held {
		one.Held++
	}
	if r.Silent != nil {
		one.Silent, one.Fault = 1, r.Silent
	}
	s.Join(one)
}

// Join counts what another sweep did.
func (s *Summary) Join(o Summary) {
	s.Topics, s.Compacted, s.Committed, s.Trimmed = s.Topics+o.Topics, s.Compacted+o.Compacted, s.Committed+o.Committed, s.Trimmed+o.Trimmed
	s.Swept, s.Waiting, s.Quarantined = s.Swept+o.Swept, s.Waiting+o.Waiting, s.Quarantined+o.Quarantined
	s.Elsewhere, s.Postponed = s.Elsewhere+o.Elsewhere, s.Postponed+o.Postponed
	s.Records, s.Rows, s.Bytes = s.Records+o.Records, s.Rows+o.Rows, s.Bytes+o.Bytes
	s.Files, s.FileBytes = s.Files+o.Files, s.FileBytes+o.FileBytes
	s.Held, s.Gone, s.Failed, s.Left = s.Held+o.Held, s.Gone+o.Gone, s.Failed+o.Failed, s.Left+o.Left
	if !o.Next.IsZero() && (s.Next.IsZero() || o.Next.Before(s.Next)) {
		s.Next = o.Next
	}
	if s.Silent += o.Silent; s.Fault == nil {
		s.Fault = o.Fault
	}
}

// SweepError lists what kept a sweep from topics.
type SweepError struct{ Faults []error }

// shownFaults is how many faults a message lists.
const shownFaults = 5

func (e *SweepError) Error() string {
	text := fmt.Sprintf("%d topics could not be compacted, or not in all parts:\n%v", len(e.Faults), errors.Join(e.Faults[:min(len(e.Faults), shownFaults)]...))
	if more := len(e.Faults) - shownFaults; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return text
}

// Unwrap gives all faults.
func (e *SweepError) Unwrap() []error { return e.Faults }

// Sweep compacts every topic that is not at rest, or of which something is known to wait;
// with all, every topic that there is, and all of it is looked at, whatever is known. A
// topic that fails does not keep the others from it: all faults come together, in a
// *SweepError. When stop ends, no more topics are begun, which the summary tells, and
// hard ends everything at once.
func (c *Compactor) Sweep(hard, stop context.Context, all bool) (sum Summary, err error) {
	start := c.Now()
	names, err := c.names(hard, all)
	if len(names) == 0 {
		return sum, err
	}
	var mu sync.Mutex
	var faults []error
	if err != nil {
		faults = append(faults, err)
	}
	var g errgroup.Group
	g.SetLimit(sweepParallel)
	for i, name := range names {
		if stop.Err() != nil || hard.Err() != nil {
			mu.Lock()
			sum.Left += len(names) - i
			mu.Unlock()
			break
		}
		g.Go(func() error {
			r, err := c.visit(hard, stop, name, &visit{all: all})
			mu.Lock()
			defer mu.Unlock()
			sum.Add(r, err)
			if err != nil && !noTopic(err) {
				faults = append(faults, fmt.Errorf("topic %q: %w", name, err))
			}
			return nil
		})
	}
	_ = g.Wait() // always nil
	c.Metrics.sweptAll(c.Now().Sub(start))
	if len(faults) > 0 {
		return sum, &SweepError{faults}
	}
	return sum, nil
}

// names lists the topics of a sweep.
func (c *Compactor) names(ctx context.Context, all bool) ([]string, error) {
	names := c.waiting()
	for m, err := range c.Store.Active(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, m.Topic)
	}
	var fault error // one definition that is damaged is no reason to leave all topics alone
	if all {
		var topics []topic.Definition
		topics, fault = c.Store.Topics(ctx)
		for _, t := range topics {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), fault
}

// Run sweeps at once, and then each time that period has passed, until stop ends, which
// is no error; hard ends what is under way. The first sweep, and one in each FullSweep,
// is over all there is. Faults are told, and tried again in the next period; tell may be
// nil.
func (c *Compactor) Run(hard, stop context.Context, period time.Duration, tell func(Summary, error)) {
	var full time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop.Done():
			return
		case <-timer.C:
		}
		if stop.Err() != nil {
			return
		}
		start := time.Now()
		all := full.IsZero() || start.Sub(full) >= FullSweep
		sum, err := c.Sweep(hard, stop, all)
		var some *SweepError
		if all && (err == nil || errors.As(err, &some)) {
			full = start
		}
		c.warn(hard, sum, err)
		if tell != nil {
			tell(sum, err)
		}
		timer.Reset(time.Until(start.Add(period)))
	}
}

func (c *Compactor) warn(hard context.Context, sum Summary, err error) {
	if err != nil && hard.Err() == nil {
		c.Logger.Warn("topics could not be compacted, will try again", "failed", sum.Failed, "err", err)
	}
	if err == nil && sum.Silent > 0 {
		c.Logger.Warn("not all that is due can be compacted, will try again", "topics", sum.Silent, "err", sum.Fault)
	}
}
