package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Policies are a policy for all topics, and others for some.
type Policies struct {
	Default Policy
	Topics  map[string]Policy
}

// For is the policy of a topic.
func (p Policies) For(name string) Policy {
	if own, ok := p.Topics[name]; ok {
		return own
	}
	return p.Default
}

// Lanes tells how far behind the lanes of a group are. While it cannot, splits and
// rolls go on, and nothing is merged. It is not to take long.
type Lanes interface {
	Backlogs(ctx context.Context, group string) ([]Backlog, error)
}

// Options of a planner. Lanes may be nil: then backlogs are not known, and do not
// keep anything from being merged.
type Options struct {
	Store    *segment.Store
	Policies Policies
	Lanes    Lanes
	Logger   *slog.Logger
	Metrics  *Metrics         // may be nil
	Now      func() time.Time // nil: time.Now
}

// Planner looks at topics, plans, and makes the edits. It keeps what it has seen
// only to look more cheaply the next time. Safe for concurrent use, and any number
// of planners may work on the same topics: an edit is made on the layout that it
// was planned for, or not at all.
type Planner struct {
	Options
	mu     sync.Mutex
	topics map[string]*seat
}

// seat holds what is known of a topic, for one at a time.
type seat struct {
	sync.Mutex
	known
	looked time.Time // when it was last planned for
	lively bool      // as in Report.Lively
}

// New returns a planner. The policies must be valid.
func New(o Options) *Planner {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Planner{Options: o, topics: map[string]*seat{}}
}

// Report is what a planner saw, thought and did.
type Report struct {
	Situation Situation  `json:"situation"`
	Decisions []Decision `json:"decisions"`
	Made      []Made     `json:"made"`
	// Finished is the edit of somebody else that was under way, and was finished
	// first.
	Finished *topic.Edit `json:"finished,omitempty"`
	// Moved says that somebody else changed the layout meanwhile, so that what was
	// decided after that was not done.
	Moved bool `json:"moved,omitempty"`
	// AtRest: nothing will need to be done until records come.
	AtRest bool `json:"at_rest"`
	// Declared are the topic's declared loads, those that have ended too.
	Declared []segment.DeclaredLoad `json:"declared"`
	// Blind is why it is not known how far the lanes are behind; nothing was merged.
	Blind error `json:"-"`
}

// Made is an edit that was made.
type Made struct {
	Decision
	Epoch uint64 `json:"epoch"` // from which it is in force
}

// Lively tells whether the topic is to be looked at again soon: something changed,
// or some segment carries enough to be split before long.
func (r Report) Lively(p Policy) bool {
	if len(r.Made) > 0 || r.Moved || r.Finished != nil {
		return true
	}
	for _, d := range r.Decisions {
		if d.Level > p.Fill {
			return true
		}
	}
	return false
}

func (p *Planner) seat(name string) *seat {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.topics[name]
	if s == nil {
		s = &seat{}
		p.topics[name] = s
	}
	return s
}

// forget drops what is known of a topic.
func (p *Planner) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.topics, name)
}

// Explain looks at a topic and plans, without changing anything. While an edit is
// under way there is nothing to explain: *PendingError.
func (p *Planner) Explain(ctx context.Context, name string) (Report, error) {
	s := p.seat(name)
	s.Lock()
	defer s.Unlock()
	if err := s.open(ctx, p.Store, name); err != nil {
		return Report{}, err
	}
	l, err := s.topic.Layout(ctx)
	if err != nil {
		return Report{}, err
	}
	if l.Pending {
		return Report{}, &PendingError{name, l.Edit}
	}
	return p.plan(ctx, s, l)
}

// PendingError says that an edit is under way, so that there is nothing to explain
// until it is finished.
type PendingError struct {
	Topic string
	Edit  topic.Edit
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("a %s of topic %q is under way; a planner finishes it first, or you do: spillway edit finish %s", e.Edit.Kind, e.Topic, e.Topic)
}

// plan looks and decides. The seat must be open.
func (p *Planner) plan(ctx context.Context, s *seat, l topic.Layout) (Report, error) {
	policy := p.Policies.For(s.topic.Name)
	situation, err := s.look(ctx, l, policy, p.Now())
	if err != nil {
		return Report{}, err
	}
	r := Report{Made: []Made{}, Declared: s.declared}
	if p.Lanes != nil {
		situation.Backlogs, err = p.Lanes.Backlogs(ctx, s.topic.Lanes)
		if err != nil && ctx.Err() != nil {
			return Report{}, err
		}
		r.Blind = err
	}
	r.Situation, r.Decisions, r.AtRest = situation, Plan(situation, policy), AtRest(situation, policy)
	if r.Blind != nil {
		r.Decisions = withoutMerges(r.Decisions, r.Blind)
	}
	return r, nil
}

// withoutMerges keeps what was to be merged: where it is not known whether messages
// wait, a segment that takes in little may be one whose worker is down.
func withoutMerges(decisions []Decision, why error) (kept []Decision) {
	for _, d := range decisions {
		if d.Kind != Merge {
			kept = append(kept, d)
			continue
		}
		cause, _, _ := strings.Cut(why.Error(), "\n")
		for _, id := range d.Segments {
			kept = append(kept, Decision{
				Kind: Keep, Segments: []topic.SegmentID{id}, Level: d.Level,
				Reason: fmt.Sprintf("%s; not merged: how far the lanes are behind is not known: %s", d.Reason, cause),
			})
		}
	}
	return kept
}

// Topic does what is due for a topic: it finishes an edit that is under way, looks,
// plans, and makes the edits, splits first. On nil everything decided is done,
// unless the report says that the layout moved; what Made lists is done in any
// case. After an error the last edit may have begun; whoever comes next finishes
// it. segment.ErrNoTopic, segment.ErrDeleting and *topic.NameError: there is nothing to
// plan for.
func (p *Planner) Topic(ctx context.Context, name string) (Report, error) {
	if err := topic.CheckName(name); err != nil {
		return Report{}, err
	}
	s := p.seat(name)
	s.Lock()
	defer s.Unlock()
	r, err := p.work(ctx, s, name)
	if stale(err) {
		// It was deleted, and perhaps made again, or restored; or it is damaged.
		// What is known of it is no help.
		s.known = known{}
		before := r.Made
		r, err = p.work(ctx, s, name)
		r.Made = append(before, r.Made...)
	}
	if noTopic(err) {
		p.forget(name)
	}
	s.looked, s.lively = p.Now(), err != nil || r.Lively(p.Policies.For(name))
	p.Metrics.looked(r, err)
	return r, err
}

// stale tells that something that is known of a topic is not there any more.
func stale(err error) bool { return gone(err) || errors.Is(err, commitlog.ErrWentBack) }

func (p *Planner) work(ctx context.Context, s *seat, name string) (r Report, err error) {
	if err := s.open(ctx, p.Store, name); err != nil {
		return r, err
	}
	before, err := s.topic.Layout(ctx)
	if err != nil {
		return r, err
	}
	l := before
	if before.Pending {
		if l, err = s.topic.Finish(ctx); err != nil {
			return r, err
		}
	}
	if r, err = p.plan(ctx, s, l); err != nil {
		return r, err
	}
	if before.Pending {
		r.Finished = &before.Edit
	}
	for _, d := range s.declared {
		if !d.Over(r.Situation.Now) {
			continue
		}
		if err := s.topic.Expire(ctx, d.ID, r.Situation.Now); err != nil {
			return r, err
		}
	}
	err = p.edit(ctx, s, &r)
	return r, err
}

// errMoved stops a plan whose layout is not the one in force any more.
var errMoved = errors.New("the layout has moved on")

// edit makes the edits of a plan: what relieves a segment first, rolls last.
func (p *Planner) edit(ctx context.Context, s *seat, r *Report) error {
	epoch := r.Situation.Layout.Epoch
	for _, kind := range []string{Split, Merge, Roll} {
		for _, d := range r.Decisions {
			if d.Kind != kind {
				continue
			}
			l, err := s.topic.Edit(ctx, p.Now(), func(l topic.Layout) (topic.Edit, error) {
				if l.Epoch != epoch {
					return topic.Edit{}, errMoved
				}
				return d.Edit(l)
			})
			if errors.Is(err, errMoved) {
				r.Moved = true
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s of topic %q: %w", kind, s.topic.Name, err)
			}
			epoch = l.Epoch
			r.Made = append(r.Made, Made{d, epoch})
			p.Logger.Info("planned edit", "topic", s.topic.Name, "kind", kind, "segments", d.Segments, "epoch", epoch, "reason", d.Reason)
		}
	}
	return nil
}

// rest removes the mark of a topic that is at rest, or gone.
func (p *Planner) rest(ctx context.Context, m segment.ActiveMark) (bool, error) {
	if !m.MayRest(p.Now()) {
		return false, nil
	}
	err := p.Store.Rest(ctx, m)
	if errors.Is(err, filer.ErrConflict) {
		return false, nil // it is wanted again
	}
	return err == nil, err
}
