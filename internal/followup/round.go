package followup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// saveAfter is how many chunks without pending references are passed before that
// alone is worth saving: to look through them once more costs a listing.
const saveAfter = 64

// round is one look at a topic, whose result is saved as a whole. One goroutine
// uses it.
type round struct {
	*Follower
	topic *segment.Topic
	file  cursor.File[State]
	state State // as it will be
	known

	looks    *looks
	segments map[topic.SegmentID]*segment.Segment
	ended    map[topic.SegmentID]bool // looked through to their seals
	passed   int                      // chunks
	learned  bool                     // of more segments
	report   Report
	faults   []error // of segments
}

// errConflict: somebody else saved the state meanwhile, or removed it.
var errConflict = errors.New("the state was saved by somebody else")

// known is a state as it is saved, from one round to the next.
type known struct {
	was     State
	version cursor.Version // empty: there is none
	of      string         // incarnation of the topic; empty: it is to be loaded
}

// round looks at a topic once. It is to be called again while there is more, with
// what it leaves in k, which is nothing if it has failed.
func (f *Follower) round(ctx, stop context.Context, name string, k *known) (r Report, more bool, err error) {
	was := *k
	*k = known{}
	t, err := f.Store.Topic(ctx, name)
	if err != nil {
		return Report{Open: unknown}, false, err
	}
	in := &round{
		Follower: f, topic: t, file: fileOf(f.Store, t), looks: f.newLooks(ctx, stop, t), known: was,
		segments: map[topic.SegmentID]*segment.Segment{}, ended: map[topic.SegmentID]bool{},
	}
	r, more, err = in.run(ctx)
	if again, why := in.gone(ctx, err); again || why != nil {
		return Report{Open: unknown}, again, why
	}
	if err == nil {
		*k = in.known
	}
	return r, more, err
}

// load reads the state, unless it is known from the round before.
func (r *round) load(ctx context.Context) error {
	if r.of != r.topic.Incarnation {
		state, version, err := load(ctx, r.file)
		if err != nil && !errors.Is(err, filer.ErrNotFound) {
			return err
		}
		r.known = known{state, version, r.topic.Incarnation}
	}
	r.state = r.was.clone()
	r.report.Open = len(r.state.Open)
	return nil
}

func (r *round) run(ctx context.Context) (Report, bool, error) {
	if err := r.load(ctx); err != nil {
		return Report{Open: unknown}, false, err
	}
	open := len(r.state.Open)
	if err := r.learn(ctx); err != nil {
		return r.report, false, err
	}
	r.again(ctx)
	r.apply(r.looks.end())
	r.scan(ctx)
	r.apply(r.looks.end())
	if r.looks.elsewhere != nil {
		return Report{Open: open, Elsewhere: r.looks.elsewhere}, false, errors.Join(r.faults...)
	}
	if err := ctx.Err(); err != nil {
		return Report{Open: open}, false, errors.Join(append(r.faults, err)...)
	}
	if again, why := r.gone(ctx, errors.Join(r.faults...)); again || why != nil {
		return Report{Open: unknown}, again, why
	}
	if err := r.save(ctx); err != nil {
		return Report{Open: open}, false, err
	}
	more := r.finish()
	return r.report, more, errors.Join(r.faults...)
}

// finish completes the report of a round that is saved, and tells whether another
// one is due at once.
func (r *round) finish() (more bool) {
	now := r.Now()
	r.report.Open, r.report.Next = len(r.state.Open), r.state.next()
	r.report.Silent, r.report.Cut = r.looks.silent, r.looks.cut
	if r.report.Silent != nil {
		r.report.Next = now.Add(r.RetryAfter)
		return false
	}
	return r.looks.left == 0 || !r.report.Next.IsZero() && !r.report.Next.After(now) && len(r.faults) == 0
}

// gone tells whether the topic was deleted meanwhile, which explains what was not as
// it must be, and whether there is another one of its name.
func (r *round) gone(ctx context.Context, err error) (again bool, why error) {
	if err == nil || errors.Is(err, errConflict) {
		return false, nil
	}
	now, why := r.Store.Topic(ctx, r.topic.Name)
	if noTopic(why) {
		return false, why
	}
	return why == nil && now.Incarnation != r.topic.Incarnation, nil
}

// learn adds the segments that layouts have made since.
func (r *round) learn(ctx context.Context) error {
	if r.version != "" {
		l, err := r.topic.Layout(ctx)
		if err != nil || l.Epoch <= r.state.Epoch {
			return err
		}
	}
	lineage, err := r.topic.Lineage(ctx)
	if err != nil {
		return err
	}
	for _, m := range lineage.Members {
		if r.version == "" || m.Epoch > r.state.Epoch {
			r.state.Segments = append(r.state.Segments, Watermark{Segment: m.ID})
		}
	}
	slices.SortFunc(r.state.Segments, func(a, b Watermark) int { return cmp.Compare(a.Segment, b.Segment) })
	r.state.Epoch, r.learned = lineage.Layout.Epoch, true
	return nil
}

// apply takes over what looks have found. What is wrong is told when it is saved.
func (r *round) apply(done []looked) {
	if r.looks.elsewhere != nil || len(done) == 0 {
		return
	}
	now := r.Now().UTC().Truncate(time.Second)
	var places, open []Open
	var given []GivenUp
	for _, d := range done {
		places = append(places, d.at)
		switch o, over := r.judged(d, now); {
		case d.err == nil:
			r.report.Resolved++
		case over:
			given = append(given, GivenUp{o.Segment, o.Offset, clip(d.url, maxURL), now, o.State, o.Reason})
		default:
			open = append(open, o)
		}
	}
	r.report.Looked += len(done)
	r.report.GivenUp += len(given)
	r.state.settle(places, open, given)
}

// judged is an open reference after a look, and whether it is given up.
func (r *round) judged(d looked, now time.Time) (o Open, over bool) {
	o = d.at
	if d.err == nil {
		return o, false
	}
	o.State, o.Reason = ref.StateOf(d.err), clip(d.err.Error(), maxReason)
	answered := !verdict.Silent(d.err)
	if o.Tries == 0 {
		o.Since = now
	}
	if answered {
		o.Tries++
	}
	o.Due = now.Add(r.delay(o.Tries))
	return o, wrong(d.err) || answered && now.Sub(o.Since) >= r.GiveUp
}

// delay is for how long to wait after so many looks that had an answer.
func (f *Follower) delay(tries int) time.Duration {
	d := f.RetryAfter
	for ; tries > 1 && d < f.RetryAtMost; tries-- {
		d *= 2
	}
	return min(d, f.RetryAtMost)
}

// save writes the state if there is reason to, and tells then what was given up.
func (r *round) save(ctx context.Context) (err error) {
	if !r.learned && len(r.ended) == 0 && r.report.Looked+r.report.Trimmed == 0 && r.passed < saveAfter {
		return nil
	}
	r.state.Segments = slices.DeleteFunc(r.state.Segments, func(w Watermark) bool { return r.ended[w.Segment] })
	if r.version == "" {
		r.version, err = r.file.Create(ctx, r.state)
	} else {
		r.version, err = r.file.Save(ctx, r.state, r.version)
	}
	switch {
	case errors.Is(err, filer.ErrExists), errors.Is(err, filer.ErrConflict), errors.Is(err, filer.ErrNotFound):
		return errConflict
	case err != nil:
		return fmt.Errorf("references of topic %q: %w", r.topic.Name, err)
	}
	r.was = r.state
	r.Metrics.saved(r.report)
	for _, g := range r.state.GivenUp[len(r.state.GivenUp)-min(r.report.GivenUp, len(r.state.GivenUp)):] {
		r.Logger.Warn("a pending reference is given up", "topic", r.topic.Name, "segment", g.Segment, "offset", g.Offset,
			"url", g.URL, "state", g.State, "reason", g.Reason)
	}
	return nil
}
