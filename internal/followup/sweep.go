package followup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Summary is what a sweep did.
type Summary struct {
	Topics    int `json:"topics"`
	Looked    int `json:"looked"` // looks at references
	Resolved  int `json:"resolved"`
	GivenUp   int `json:"given_up"`
	Trimmed   int `json:"trimmed"` // open references whose records are gone
	Open      int `json:"open"`
	Full      int `json:"full"`      // topics with as many open references as can be
	Elsewhere int `json:"elsewhere"` // topics whose objects are at another endpoint
	Gone      int `json:"gone"`      // topics that were deleted
	Failed    int `json:"failed"`    // topics that could not be looked at, or not in all parts
	Left      int `json:"left"`      // topics that were not begun, or not done, before the end
	// Silent counts topics of which not all that was due could be looked at, since
	// the endpoint or the filer gave no answers; Fault is why, of one of them.
	Silent int   `json:"silent"`
	Fault  error `json:"-"`
}

// Add counts what came of a topic, of which a failed one may have looked at some
// parts.
func (s *Summary) Add(r Report, err error) {
	s.Looked += r.Looked
	s.Resolved += r.Resolved
	s.GivenUp += r.GivenUp
	s.Trimmed += r.Trimmed
	s.Open += r.Open
	switch {
	case noTopic(err):
		s.Gone++
		return
	case err != nil:
		s.Failed++
		return
	}
	s.Topics++
	if r.Full {
		s.Full++
	}
	if r.Cut {
		s.Left++
	}
	if r.Elsewhere != nil {
		s.Elsewhere++
	}
	if r.Silent != nil {
		s.Silent, s.Fault = s.Silent+1, r.Silent
	}
}

// SweepError lists what kept a sweep from topics.
type SweepError struct{ Faults []error }

// shownFaults is how many faults a message lists.
const shownFaults = 5

func (e *SweepError) Error() string {
	text := fmt.Sprintf("the references of %d topics could not be followed up:\n%v", len(e.Faults), errors.Join(e.Faults[:min(len(e.Faults), shownFaults)]...))
	if more := len(e.Faults) - shownFaults; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return text
}

// Unwrap gives all faults.
func (e *SweepError) Unwrap() []error { return e.Faults }

const (
	// DefaultPeriod is between two sweeps of a resident follow-up.
	DefaultPeriod = 5 * time.Minute
	// FullSweep is between two of its sweeps that look at topics at rest too, of whose
	// open references it may not know.
	FullSweep = time.Hour

	sweepParallel = 8 // topics at a time
)

// Sweep follows up every topic that is not at rest, or that is known to have open
// references; with all, every topic that there is. A topic that fails does not keep
// the others from it: all faults come together, in a *SweepError. When stop ends,
// no more topics are begun, which the summary tells, and ctx ends everything at
// once.
func (f *Follower) Sweep(ctx, stop context.Context, all bool) (sum Summary, err error) {
	start := f.Now()
	names, err := f.names(ctx, all)
	if err != nil {
		return sum, err
	}
	var mu sync.Mutex
	var faults []error
	var g errgroup.Group
	g.SetLimit(sweepParallel)
	for i, name := range names {
		if stop.Err() != nil || ctx.Err() != nil {
			mu.Lock()
			sum.Left += len(names) - i
			mu.Unlock()
			break
		}
		g.Go(func() error {
			r, err := f.Topic(ctx, stop, name)
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
	f.Metrics.swept(f.Now().Sub(start))
	if len(faults) > 0 {
		return sum, &SweepError{faults}
	}
	return sum, nil
}

// names lists the topics of a sweep.
func (f *Follower) names(ctx context.Context, all bool) ([]string, error) {
	names := f.waiting()
	for m, err := range f.Store.Active(ctx) {
		if err != nil {
			return nil, err
		}
		names = append(names, m.Topic)
	}
	if all {
		topics, err := f.Store.Topics(ctx)
		if err != nil {
			return nil, err
		}
		for _, t := range topics {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Run sweeps at once, and then each time that period has passed, until stop ends,
// which is no error; ctx ends what is under way. The first sweep, and one in each
// FullSweep, is over all topics. Faults are told, and tried again in the next
// period; tell may be nil.
func (f *Follower) Run(ctx, stop context.Context, period time.Duration, tell func(Summary, error)) {
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
		sum, err := f.Sweep(ctx, stop, all)
		var some *SweepError
		if all && (err == nil || errors.As(err, &some)) {
			full = start
		}
		f.warn(ctx, sum, err)
		if tell != nil {
			tell(sum, err)
		}
		timer.Reset(time.Until(start.Add(period)))
	}
}

func (f *Follower) warn(ctx context.Context, sum Summary, err error) {
	if err != nil && ctx.Err() == nil {
		f.Logger.Warn("pending references could not be followed up, will try again", "failed", sum.Failed, "err", err)
	}
	if err == nil && sum.Silent > 0 {
		f.Logger.Warn("objects cannot be looked at, will try again", "topics", sum.Silent, "err", sum.Fault)
	}
	if sum.Full > 0 {
		f.Logger.Warn("as many references as can be are open; what is pending beyond them waits", "topics", sum.Full, "most", f.MaxOpen)
	}
}
