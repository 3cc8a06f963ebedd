package followup

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
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
	def       topic.Definition
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

func (f *Follower) newLooks(ctx, stop context.Context, def topic.Definition) *looks {
	return &looks{Follower: f, ctx: ctx, stop: stop, def: def, left: roundLooks}
}

// begin looks at a reference, and waits only for others to end. It is false if no
// more are to be begun in this round.
func (l *looks) begin(at Open, r record.Ref, fresh bool) bool {
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
	r.SHA256, r.Records = bytes.Clone(r.SHA256), nil // the reader goes on
	l.group.Go(func() error {
		defer func() { <-l.slots }()
		l.look(at, r, fresh)
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

func (l *looks) look(at Open, r record.Ref, fresh bool) {
	ctx, cancel := context.WithTimeout(l.ctx, l.Timeout)
	defer cancel()
	err := l.Judge.Judge(ctx, l.def, r)
	l.Metrics.looked()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = append(l.done, looked{at, r.URL, err})
	if fresh && (err == nil || verdict.Wrong(err)) {
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
