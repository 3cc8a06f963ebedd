// Package followup looks again at the references that were committed as pending
// (rule 24), until their objects are there and have their pins. It writes no
// records: whoever reads a record with a reference verifies it, whatever is found
// here. What a follow-up adds is the pin, and that somebody tells the operator of
// references that came to nothing.
//
// Which records are pending stands in the attributes of their chunks. A topic's
// refs.json says up to where its segments have been looked through, and which
// references are still open. It moves by compare-and-swap, and only after the
// looks that it tells of: after a crash, some are looked at once more. Any number
// may follow up the same topic; the slower one has worked in vain.
package followup

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Defaults of Options.
const (
	DefaultRetryAfter  = 30 * time.Second
	DefaultRetryAtMost = time.Hour
	DefaultGiveUp      = 24 * time.Hour
	DefaultTimeout     = 10 * time.Second
	DefaultParallel    = 16
)

// Judge decides about a reference, and pins its object; *verdict.Judge is one. It
// tries once, and is called concurrently.
type Judge interface {
	Judge(ctx context.Context, d topic.Definition, f record.Ref) error
}

// Expander sees to it that there is the one job for a reference whose rows are to
// become records of its topic; r comes from source. It tries once, and is called
// concurrently.
type Expander interface {
	Expand(ctx context.Context, t *segment.Topic, source string, r record.Record) error
}

// Options of a follower. Store and Judge are needed; what else is zero has a
// default.
type Options struct {
	Store       *segment.Store
	Judge       Judge
	Expander    Expander      // nil: references that ask for a job stay open until they are given up
	RetryAfter  time.Duration // to the second look, a second at least; doubles with each
	RetryAtMost time.Duration
	GiveUp      time.Duration // after the first answer that an object is not there
	Timeout     time.Duration // of one look
	Parallel    int           // looks at a time
	MaxOpen     int           // at most the constant of the name
	Logger      *slog.Logger
	Metrics     *Metrics // may be nil
	Now         func() time.Time
}

// Follower follows up the pending references of topics. It keeps which topics
// have open ones only to find them again sooner. Safe for concurrent use.
type Follower struct {
	Options
	slots chan struct{} // one for each look that is under way

	mu     sync.Mutex
	topics map[string]*seat
}

// seat is what is known of a topic, for one at a time: who has its mutex.
type seat struct {
	sync.Mutex
	users int // who have it, or wait for it; guarded by the follower's mutex
	open  int // changes with both mutexes held
}

// New returns a follower.
func New(o Options) *Follower {
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	or(&o.RetryAfter, DefaultRetryAfter)
	o.RetryAfter = max(o.RetryAfter, time.Second) // as fine as states tell time
	or(&o.RetryAtMost, DefaultRetryAtMost)
	or(&o.GiveUp, DefaultGiveUp)
	or(&o.Timeout, DefaultTimeout)
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	if o.MaxOpen <= 0 || o.MaxOpen > MaxOpen {
		o.MaxOpen = MaxOpen
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Follower{Options: o, slots: make(chan struct{}, o.Parallel), topics: map[string]*seat{}}
}

// Report is what came of a look at a topic.
type Report struct {
	Looked   int // looks at references
	Resolved int // objects that were there, and are pinned
	GivenUp  int // references that will not be looked at again
	Trimmed  int // open references whose records are gone
	Open     int // references that are open now
	// Next is when to look at the topic again; zero: not before there is more.
	Next time.Time
	// Full: there are as many open references as can be, and what is pending beyond
	// them waits.
	Full bool
	// Cut: more was due when stop ended.
	Cut bool
	// Silent is why not all that was due could be looked at: the endpoint, or the
	// filer, gives no answers.
	Silent error
	// Elsewhere is why nothing was looked at: the topic's objects are at another
	// endpoint, and whoever follows up there does it.
	Elsewhere error
}

func (r *Report) add(s Report) {
	s.Looked, s.Resolved = s.Looked+r.Looked, s.Resolved+r.Resolved
	s.GivenUp, s.Trimmed = s.GivenUp+r.GivenUp, s.Trimmed+r.Trimmed
	if s.Open == unknown {
		s.Open = r.Open
	}
	*r = s
}

// unknown is how many references are open where a round could not find out.
const unknown = -1

// maxConflicts is how often a look at a topic begins again because somebody else
// saved what it found.
const maxConflicts = 3

// Topic looks at what is due of a topic: new pending references, and open ones
// whose time has come. On nil, what the report counts is saved. When stop ends no
// more looks are begun; those under way end by themselves, and are saved.
//
// segment.ErrNoTopic and segment.ErrDeleting: there is nothing to follow up.
// filer.ErrCorrupt: the topic's refs.json, or a segment, is damaged; the topic's
// other segments were looked at. Faults of the filer are retried until ctx ends.
func (f *Follower) Topic(ctx, stop context.Context, name string) (Report, error) {
	if err := topic.CheckName(name); err != nil {
		return Report{}, err
	}
	s := f.seat(name)
	s.Lock()
	defer s.Unlock()
	sum, err := f.rounds(ctx, stop, name, s.open)
	f.leave(name, s, sum.Open)
	if err != nil && !noTopic(err) && ctx.Err() == nil {
		f.Metrics.fault()
	}
	return sum, err
}

// rounds looks at a topic, of which so many references were open, until nothing more
// is due.
func (f *Follower) rounds(ctx, stop context.Context, name string, open int) (sum Report, err error) {
	sum.Open = open
	var known known
	for conflicts := 0; ; {
		var r Report
		var more bool
		r, more, err = f.round(ctx, stop, name, &known)
		if errors.Is(err, errConflict) {
			err = nil
			if conflicts++; conflicts == maxConflicts {
				sum.Next = f.Now().Add(f.RetryAfter)
				break
			}
			continue
		}
		sum.add(r)
		if err != nil || !more {
			break
		}
		if stop.Err() != nil {
			sum.Cut = true
			break
		}
	}
	if noTopic(err) {
		sum.Open = 0
	}
	return sum, err
}

// seat is a topic's, which is to be left again.
func (f *Follower) seat(name string) *seat {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.topics[name]
	if s == nil {
		s = &seat{}
		f.topics[name] = s
	}
	s.users++
	return s
}

// leave remembers topics with open references, and forgets the others, unless
// somebody else waits for the seat: all who follow up a topic share one.
func (f *Follower) leave(name string, s *seat, open int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Metrics.openChanged(open - s.open)
	s.open = open
	if s.users--; s.users == 0 && open == 0 {
		delete(f.topics, name)
	}
}

// waiting lists the topics that are known to have open references.
func (f *Follower) waiting() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.topics {
		if s.open > 0 {
			names = append(names, name)
		}
	}
	return names
}

// noTopic tells that a topic was deleted, or is being.
func noTopic(err error) bool {
	return errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting)
}
