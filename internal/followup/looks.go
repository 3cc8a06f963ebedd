package followup

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verdict"
)

const (
	// roundLooks is how many looks a round makes before it saves what it found.
	roundLooks = 4096
	// silence is how many looks in a row without an answer end a round. Those for
	// which nobody was asked are not in the row.
	silence = 8
)

// looks are those of one round. One goroutine begins them; they run side by side.
type looks struct {
	*Follower
	ctx, stop context.Context
	topic     *segment.Topic
	group     errgroup.Group

	mu        sync.Mutex
	left      int   // that may still be begun
	mute      int   // in a row without an answer, of those for which the endpoint was asked
	silent    error // why no more are begun: nobody answers
	elsewhere error // why none counts
	cut       bool  // stop ended before all was begun
	fresh     int   // that were not open before, and are under way or undecided
	done      []looked
}

// looked is what a look found.
type looked struct {
	at  Open // as it was before
	url string
	err error // of the judge
}

func (f *Follower) newLooks(ctx, stop context.Context, t *segment.Topic) *looks {
	return &looks{Follower: f, ctx: ctx, stop: stop, topic: t, left: roundLooks}
}

// pending is a reference that is to be looked at.
type pending struct {
	ref record.Ref
	// Of one whose rows are to become records: its record, and where that comes from.
	record *record.Record
	source string
}

// pendingOf is the reference of a record of a source.
func pendingOf(source string, r record.Record) pending {
	p := pending{ref: *r.Ref}
	if b, _, err := ref.BatchOf(&r); err == nil && b.Expand {
		r = r.Clone()
		p.record, p.source = &r, source
	}
	p.ref.SHA256, p.ref.Records = bytes.Clone(p.ref.SHA256), nil // the reader goes on
	return p
}

// begin looks at a reference, and waits only for others to end. It is false if no
// more are to be begun in this round.
func (l *looks) begin(at Open, p pending, fresh bool) bool {
	select {
	case l.slots <- struct{}{}:
	case <-l.stop.Done():
		l.over() // takes note of it
		return false
	case <-l.ctx.Done():
		return false
	}
	if l.over() {
		<-l.slots
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left--
	if fresh {
		l.fresh++
	}
	l.group.Go(func() error {
		defer func() { <-l.slots }()
		l.look(at, p, fresh)
		return nil
	})
	return true
}

// over tells that no more looks are begun in this round. It is asked before one is.
func (l *looks) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = l.cut || l.stop.Err() != nil
	return l.cut || l.left == 0 || l.silent != nil || l.elsewhere != nil || l.ctx.Err() != nil
}

func (l *looks) look(at Open, p pending, fresh bool) {
	ctx, cancel := context.WithTimeout(l.ctx, l.Timeout)
	defer cancel()
	err := l.Judge.Judge(ctx, l.topic.Definition, p.ref)
	if err == nil && p.record != nil {
		err = l.expand(ctx, p)
	}
	l.Metrics.looked()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, looked{at, p.ref.URL, err})
	if fresh && (err == nil || wrong(err)) {
		l.fresh--
	}
	switch {
	case verdict.Foreign(err):
		l.elsewhere = err
	case verdict.Silent(err):
		if l.mute++; l.mute >= silence {
			l.silent = err
		}
	case verdict.Asked(err):
		l.mute = 0
	}
}

// errNoExpander leaves a reference open for a follower that can make its job.
var errNoExpander = errors.New("its object is there, and nobody here makes the job for its rows")

// expand makes the job of a reference whose object was found and pinned: only then is
// the reference resolved.
func (l *looks) expand(ctx context.Context, p pending) error {
	if l.Expander == nil {
		return errNoExpander
	}
	return l.Expander.Expand(ctx, l.topic, p.source, *p.record)
}

// wrong tells what will not go away.
func wrong(err error) bool {
	var batch *ref.BatchError
	return verdict.Wrong(err) || errors.As(err, &batch)
}

// room tells whether another reference can become open, beside so many. If only
// those under way leave none, it waits for them.
func (l *looks) room(open int) bool {
	has := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return open+l.fresh < l.MaxOpen
	}
	if has() {
		return true
	}
	_ = l.group.Wait() // always nil
	return has()
}

// end waits for the looks that are under way, and returns all that are new, by
// place.
func (l *looks) end() []looked {
	_ = l.group.Wait() // always nil
	l.mu.Lock()
	defer l.mu.Unlock()
	done := l.done
	l.done = nil
	slices.SortFunc(done, func(a, b looked) int { return a.at.compare(b.at) })
	return done
}
