package sim

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// Options of a run. Zero values mean what is said.
type Options struct {
	Period   time.Duration // between two runs of the planner; 5 s
	FlushAge time.Duration // of the topic; 1 s
	EditTime time.Duration // what an edit takes; 50 ms
	Roots    int           // segments that the topic is made with; 1
	Start    time.Time     // of the trace; 1970
	Seed     uint64        // of the segments' ids
}

func (o Options) withDefaults() Options {
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	or(&o.Period, 5*time.Second)
	or(&o.FlushAge, topic.DefaultFlushAge)
	or(&o.EditTime, 50*time.Millisecond)
	if o.Roots == 0 {
		o.Roots = 1
	}
	if o.Start.IsZero() {
		o.Start = time.Unix(0, 0)
	}
	o.Start = o.Start.UTC()
	return o
}

// OptionError says which option makes no sense.
type OptionError struct{ Reason string }

func (e *OptionError) Error() string { return e.Reason }

func (o Options) check() error {
	bad := func(format string, a ...any) error { return &OptionError{fmt.Sprintf(format, a...)} }
	switch {
	case o.Period < 100*time.Millisecond || o.Period > time.Hour:
		return bad("period %s: want 100ms to 1h", o.Period)
	case o.FlushAge < 100*time.Millisecond || o.FlushAge > topic.MaxFlushAge:
		return bad("flush age %s: want 100ms to %s", o.FlushAge, topic.MaxFlushAge)
	case o.EditTime < 0 || o.EditTime > time.Minute:
		return bad("an edit takes %s: want 0 to 1m", o.EditTime)
	case o.Roots < 1 || o.Roots > topic.MaxLive:
		return bad("%d segments at first: want 1 to %d", o.Roots, topic.MaxLive)
	}
	return nil
}

// maxKept bounds the memory of a run: parents and children of all edits together.
const maxKept = 2 << 20

// TraceError says what is wrong with a trace.
type TraceError struct {
	Line int // of a file; 0: of the whole
	Err  error
}

func (e *TraceError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("the trace makes no sense in line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("the trace makes no sense: %v", e.Err)
}

// Unwrap gives the cause.
func (e *TraceError) Unwrap() error { return e.Err }

// Run plays a trace. The policy must be valid for its result to mean anything, but
// is not checked: what a senseless one does can be seen too. The same arguments
// give the same result. Errors of
// the arguments are *[TraceError] and *[OptionError].
func Run(ctx context.Context, t Trace, p planner.Policy, o Options) (*Result, error) {
	if err := t.check(); err != nil {
		return nil, &TraceError{Err: err}
	}
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	s := newRun(t, p, o)
	for n := 0; s.now.Before(s.end); n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	return s.finish(), nil
}

// run is a run under way.
type run struct {
	trace Trace
	Options

	now, end           time.Time
	layout             topic.Layout
	live               []*live // as layout.Live
	steps              []Step  // that are still to come
	nextFlush, nextRun time.Time
	due                []planner.Decision // edits; the first is under way
	dueAt              time.Time          // when it is done
	token              func() string
	kept               int

	*meter
}

func newRun(t Trace, p planner.Policy, o Options) *run {
	s := &run{trace: t, Options: o, steps: t.Steps}
	s.now, s.end = o.Start, o.Start.Add(t.Length())
	// The planner does not run in step with the flushes.
	s.nextFlush, s.nextRun = s.now.Add(o.FlushAge), s.now.Add(o.Period+o.FlushAge/3)
	seed := [32]byte{}
	binary.LittleEndian.PutUint64(seed[:], o.Seed)
	random := rand.NewChaCha8(seed)
	s.token = func() string { return fmt.Sprintf("%08x", uint32(random.Uint64())) }
	s.layout = topic.Layout{At: s.now, Edit: topic.Edit{Kind: topic.EditCreate, Reason: "simulated"}}
	for i, r := range topic.Divide(o.Roots) {
		l := topic.Live{ID: topic.NewSegmentID(0, i, s.token()), Range: r}
		s.layout.Live = append(s.layout.Live, l)
		s.live = append(s.live, newLive(l, s.now))
	}
	s.layout.Edit.Children = s.layout.Live
	s.meter = newMeter(p, s.layout, s.now, s.end)
	return s
}

// at is when a step of the trace comes.
func (s *run) at(d time.Duration) time.Time { return s.Start.Add(d - s.trace.Steps[0].At) }

// step goes on to the next thing that happens, and lets it happen. What happens at
// one instant happens in the order of this function.
func (s *run) step() error {
	next := s.end
	soonest := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if len(s.steps) > 0 {
		soonest(s.at(s.steps[0].At))
	}
	soonest(s.nextFlush)
	soonest(s.nextPoint)
	if len(s.due) > 0 {
		soonest(s.dueAt)
	} else {
		soonest(s.nextRun)
	}
	s.pass(next)
	reached := func(t time.Time) bool { return !t.After(s.now) }
	for len(s.steps) > 0 && reached(s.at(s.steps[0].At)) {
		s.change(s.steps[0])
	}
	if reached(s.nextFlush) {
		for _, l := range s.live {
			l.flush(s.now)
		}
		s.nextFlush = s.nextFlush.Add(s.FlushAge)
	}
	for len(s.due) > 0 && reached(s.dueAt) {
		if err := s.edit(); err != nil {
			return err
		}
	}
	if len(s.due) == 0 && reached(s.nextRun) {
		s.plan()
	}
	if reached(s.nextPoint) {
		s.point(s.now, s.live)
	}
	return nil
}

// pass lets time pass, and load arrive.
func (s *run) pass(to time.Time) {
	span := to.Sub(s.now).Seconds()
	for _, l := range s.live {
		l.arrived = l.arrived.Plus(l.rate.Times(span))
	}
	s.elapse(s.now, to)
	s.now = to
}

// change begins a step of the load.
func (s *run) change(step Step) {
	if s.steps = s.steps[1:]; len(s.steps) == 0 {
		return // the end
	}
	if step.Where == nil {
		step.Where = everywhere
	}
	s.current = step
	for _, l := range s.live {
		l.change(step, s.now)
	}
	s.judge(s.live, s.now)
}

// plan looks, decides, and begins with the edits.
func (s *run) plan() {
	sit := planner.Situation{Topic: "simulated", Layout: s.layout, Roots: s.Roots, Now: s.now}
	for _, l := range s.live {
		l.look(s.now, s.policy)
		sit.Loads = append(sit.Loads, l.load(s.now, s.FlushAge, s.policy))
	}
	for _, d := range s.trace.Declared {
		if !s.now.Before(s.at(d.From)) && s.now.Before(s.at(d.To)) {
			sit.Expected = sit.Expected.Plus(d.Rate)
		}
	}
	s.last = planner.Plan(sit, s.policy)
	s.runs++
	// What relieves a segment first, as the planner does it.
	for _, kind := range []string{planner.Split, planner.Merge, planner.Roll} {
		for _, d := range s.last {
			if d.Kind == kind {
				s.due = append(s.due, d)
			}
		}
	}
	s.dueAt = s.now.Add(s.EditTime)
	for !s.nextRun.After(s.now) {
		s.nextRun = s.nextRun.Add(s.Period)
	}
}

// edit makes the edit that is due, and begins with the next.
func (s *run) edit() error {
	d := s.due[0]
	e, err := d.Edit(s.layout)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", d.Kind, s.now.Sub(s.Start), err)
	}
	intent, err := s.layout.Intent(e, s.now, s.token)
	if err != nil {
		return fmt.Errorf("%s at %s: %w", d.Kind, s.now.Sub(s.Start), err)
	}
	s.layout = intent.Complete()
	s.replace(intent.Edit)
	s.edited(s.now, d, s.layout)
	s.judge(s.live, s.now)
	s.due = s.due[1:]
	s.dueAt = s.now.Add(s.EditTime)
	if s.kept += len(e.Parents) + len(e.Children); s.kept > maxKept {
		return fmt.Errorf("after %s of the trace there are %d edits, too many to keep; play a shorter trace",
			s.now.Sub(s.Start).Round(time.Second), len(s.layouts))
	}
	return nil
}

// replace puts the children of an edit in the place of its parents. What waits for
// a flush goes to them.
func (s *run) replace(e topic.Edit) {
	segments := map[topic.SegmentID]*live{}
	for _, l := range s.live {
		segments[l.ID] = l
	}
	var split time.Time
	var waiting, rate planner.Rate
	for _, id := range e.Parents {
		p := segments[id]
		p.draw(s.now)
		s.retire(p)
		waiting, rate = waiting.Plus(p.waiting()), rate.Plus(p.rate)
		if p.split.After(split) {
			split = p.split
		}
	}
	for _, c := range e.Children {
		if e.Kind == topic.EditRoll {
			segments[c.ID] = segments[e.Parents[0]].rolled(c, s.now)
			continue
		}
		l := newLive(c, s.now)
		l.child = true
		if l.split = split; e.Kind == topic.EditSplit {
			l.split = s.now
		}
		l.change(s.current, s.now)
		l.arrived = planner.Rate{
			Records: waiting.Records * l.rate.Records / cmp.Or(rate.Records, 1),
			Bytes:   waiting.Bytes * l.rate.Bytes / cmp.Or(rate.Bytes, 1),
		}
		l.drawn = l.arrived
		segments[c.ID] = l
	}
	s.live = s.live[:0]
	for _, l := range s.layout.Live {
		s.live = append(s.live, segments[l.ID])
	}
}
