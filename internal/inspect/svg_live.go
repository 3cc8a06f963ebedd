package inspect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Progress of reading a history.
type Progress struct{ Segments, Of, Chunks int }

// History is what a topic's files tell of its past: its layouts, and a picture of
// them, up to now, without a size and a target. It reads the attributes of every
// chunk that is there. The load is what was committed, by the clocks of the workers
// that did. That of segments, and of parts of them, whose chunks are gone is not
// known, and missing in that of the topic. progress may be nil; it is called by one
// goroutine at a time, after each segment and each 1,000 chunks.
//
// segment.ErrNoTopic and segment.ErrDeleting: it was deleted meanwhile.
func (t *Topic) History(ctx context.Context, now time.Time, progress func(Progress)) ([]topic.Layout, Picture, error) {
	layouts, err := t.Layouts(ctx)
	if err != nil {
		return nil, Picture{}, t.gone(ctx, err)
	}
	p := Picture{Title: t.Name, From: layouts[0].At, Now: latest(now, layouts[len(layouts)-1].At)}
	r := past{topic: t, ends: ends(layouts), bins: newBins(p.From, p.Now), now: p.Now, report: progress}
	loads := make([]load, len(r.ends))
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(lookParallel)
	for i, e := range r.ends {
		g.Go(func() error {
			return whileTrimmed(func() (err error) {
				loads[i], err = r.read(reading, e)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, Picture{}, t.gone(ctx, err)
	}
	p.Segments = map[topic.SegmentID][]Point{}
	total := load{from: p.From, to: p.Now}
	for i, l := range loads {
		if l.known {
			p.Segments[r.ends[i].id] = r.bins.points(l)
		}
		total.add(l)
	}
	p.Load = r.bins.points(total)
	return layouts, p, nil
}

// end is a segment and when it stopped being live.
type end struct {
	id topic.SegmentID
	at time.Time // zero: it is live
}

// ends lists every segment that layouts tell of.
func ends(layouts []topic.Layout) (list []end) {
	index := map[topic.SegmentID]int{}
	meet := func(segments []topic.Live) {
		for _, s := range segments {
			if _, ok := index[s.ID]; !ok {
				index[s.ID] = len(list)
				list = append(list, end{id: s.ID})
			}
		}
	}
	meet(layouts[0].Live)
	for _, l := range layouts {
		if l.Pending {
			continue
		}
		meet(l.Edit.Children)
		for _, id := range l.Edit.Parents {
			if i, ok := index[id]; ok {
				list[i].at = l.At
			}
		}
	}
	return list
}

// past reads what segments took in, and when.
type past struct {
	topic *Topic
	ends  []end
	bins  bins
	now   time.Time

	mu     sync.Mutex // guards done, and serves report
	done   Progress
	report func(Progress)
}

const reportEvery = 1000

func (r *past) flush() time.Duration { return time.Duration(r.topic.FlushAge) }

func (r *past) tell(segments, chunks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done.Of = len(r.ends)
	r.done.Segments += segments
	r.done.Chunks += chunks
	if r.report != nil {
		r.report(r.done)
	}
}

// read reads one segment's chunks. Those of a segment that is gone are not known,
// which is no error.
func (r *past) read(ctx context.Context, e end) (l load, err error) {
	s, err := r.topic.Segment(ctx, e.id)
	if err == nil {
		l, err = r.chunks(ctx, s, e)
	}
	if errors.Is(err, filer.ErrNotFound) || errors.Is(err, commitlog.ErrNoLog) {
		if err = r.topic.stillThere(ctx); err == nil {
			l = load{}
		}
	}
	if err == nil {
		r.tell(1, 0)
	}
	return l, err
}

// stillThere is nil as long as the topic itself is.
func (t *Topic) stillThere(ctx context.Context) error {
	now, err := t.store.Topic(ctx, t.Name)
	if err == nil && now.Incarnation != t.Incarnation {
		err = fmt.Errorf("topic %q was deleted and made again: %w", t.Name, segment.ErrNoTopic)
	}
	return err
}

func (r *past) chunks(ctx context.Context, s *segment.Segment, e end) (load, error) {
	l := load{known: true, from: s.Created, to: e.at}
	if l.to.IsZero() {
		l.to = r.now
	}
	n, before := 0, s.Created
	for c, err := range s.Chunks(ctx, 0) {
		if err != nil {
			return l, err
		}
		if n == 0 && c.Entry.N > 0 { // what came before is trimmed
			in, err := r.dataFiles(ctx, s, c.Base, &l)
			if err != nil {
				return l, err
			}
			if !in {
				l.from = latest(l.from, c.Entry.MTime.Add(-r.flush()))
			}
		}
		// What is committed together came in since the commit before, but not
		// longer ago than a flush may take.
		r.bins.spread(&l, latest(before, c.Entry.MTime.Add(-r.flush())), c.Entry.MTime, loadBin{
			bytes: float64(c.Bytes), records: float64(c.Count),
		})
		before = latest(before, c.Entry.MTime)
		if n++; n%reportEvery == 0 {
			r.tell(0, reportEvery)
		}
	}
	r.tell(0, n%reportEvery)
	return l, nil
}
