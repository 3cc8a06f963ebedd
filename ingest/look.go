package ingest

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

const (
	lookParallel = 64 // looks at a time, of a process
	// maxFlushRefs bounds the references of a flush: more than can be looked at in
	// lookBudget would only wait in memory for being pending.
	maxFlushRefs = 20_000
	lookAgain    = 100 * time.Millisecond // for an absent object, doubling
)

// Judge decides about the references of records; *verdict.Judge is one. It tries
// once, and is called concurrently.
type Judge interface {
	Judge(ctx context.Context, d topic.Definition, f record.Ref) error
}

// errUndecided is the verdict on what there was no time, or no point, to look at.
var errUndecided = errors.New("not looked at in time")

// lookers look at the objects of references, at most so many at a time: while the
// flush with their records fills, and while it waits.
type lookers struct {
	judge  Judge
	now    func() time.Time
	limit  int
	mutant mutant.Set
	group  errgroup.Group

	mu      sync.Mutex // guards what follows, and every looks and look
	ready   []*look
	running int
	closed  bool
	temper  temper
}

func (w *Worker) newLookers() *lookers {
	return &lookers{judge: w.Judge, now: w.Now, limit: max(lookParallel/max(w.Share, 1), 1), mutant: w.Mutant}
}

// looks are the references of one flush.
type looks struct {
	ctx    context.Context // ends when nobody waits for them any more
	cancel context.CancelFunc
	since  time.Time // when the first came
	all    map[identity]*look
	refs   []lookedAt
	open   int           // of all, how many have no verdict
	decide chan struct{} // gets one when open becomes 0
}

// identity is of references that are the same.
type identity struct {
	incarnation, url, version, etag, sha256 string
	size                                    int64
}

// look is what is found out about one reference, which many records may have.
type look struct {
	looks *looks
	topic topic.Definition
	ref   record.Ref
	tries int
	err   error // the verdict; before there is one, errUndecided or why there is none yet
}

// lookedAt is a record that waits for a verdict.
type lookedAt struct {
	set   *record.Set
	index int // in its Recs
	look  *look
}

// begin makes room for the references of a flush.
func (l *lookers) begin(ctx context.Context) *looks {
	in := &looks{since: l.now(), all: map[identity]*look{}, decide: make(chan struct{}, 1)}
	in.ctx, in.cancel = context.WithCancel(ctx)
	return in
}

// add has the object of a record looked at, unless it is already, or there is no need
// to: what the topic does not allow is refused whatever there is. It does not wait.
func (l *lookers) add(in *looks, d topic.Definition, at lookedAt, f record.Ref) {
	id := identity{d.Incarnation, f.URL, f.Version, f.ETag, string(f.SHA256), f.Size}
	_, bad := verdict.Allowed(d, f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.look = in.all[id]; at.look == nil {
		at.look = &look{looks: in, topic: d, ref: f, err: bad}
		in.all[id] = at.look
		if bad == nil {
			at.look.err = errUndecided
			in.open++
			l.push(at.look)
		}
	}
	in.refs = append(in.refs, at)
}

// push queues a look. With the mutex held.
func (l *lookers) push(k *look) {
	if l.closed {
		l.finish(k, errUndecided)
		return
	}
	l.ready = append(l.ready, k)
	if l.running < l.limit {
		l.running++
		l.group.Go(l.work)
	}
}

// work does what is queued, then ends.
func (l *lookers) work() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.ready) > 0 {
		k := l.ready[0]
		l.ready = l.ready[1:]
		if k.looks.ctx.Err() != nil {
			l.finish(k, errUndecided)
			continue
		}
		l.mu.Unlock()
		err := l.judge.Judge(k.looks.ctx, k.topic, k.ref)
		l.mu.Lock()
		l.judged(k, err)
	}
	l.running--
	return nil
}

// judged takes note of how a look ended: an absent object is looked for again. With
// the mutex held.
func (l *lookers) judged(k *look, err error) {
	if !verdict.Absent(err) || l.temper.sulks(l.now()) {
		l.finish(k, err)
		return
	}
	k.err = err
	time.AfterFunc(lookAgain<<min(k.tries, 4), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.push(k)
	})
	k.tries++
}

func (l *lookers) finish(k *look, err error) {
	k.err = err
	k.looks.open--
	if k.looks.open == 0 {
		select {
		case k.looks.decide <- struct{}{}:
		default:
		}
	}
}

// wait waits for the verdicts, but not for too long, and then no looks of these are
// begun any more. due is when the flush was, or is, to be committed. The error is
// that of ctx.
func (l *lookers) wait(ctx context.Context, in *looks, due time.Time) error {
	defer in.cancel()
	timer := time.NewTimer(l.deadline(in, due).Sub(l.now()))
	defer timer.Stop()
	for !l.decided(in) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-in.decide:
		case <-timer.C:
			l.gaveUp()
			return nil
		}
	}
	return nil
}

func (l *lookers) deadline(in *looks, due time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.temper.deadline(l.now(), in.since, due)
}

// gaveUp notes that verdicts were waited for in vain. Only a flush that was given
// time tells: one that was not would make the sulk last for ever.
func (l *lookers) gaveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); !l.temper.sulks(now) {
		l.temper.inVain(now)
	}
}

func (l *lookers) decided(in *looks) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return in.open == 0
}

// notAllowed lists what the topics of references do not allow.
func (l *lookers) notAllowed(in *looks) (list []*look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range in.all {
		var not *verdict.NotAllowedError
		if errors.As(k.err, &not) {
			list = append(list, k)
		}
	}
	return list
}

// reopen takes a verdict back.
func (l *lookers) reopen(k *look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.err = errUndecided
}

// close ends all looks, whose context must have ended, and waits for that.
func (l *lookers) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	_ = l.group.Wait() // work returns no error
}

// apply writes the verdicts into the records, which are pending until then: wrong
// references are refused. It returns how many were, and how many stay pending.
func (l *lookers) apply(in *looks) (refused, pending int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range in.refs {
		switch {
		case at.look.err == nil:
			at.set.Recs[at.index].Pending = false
		case verdict.Wrong(at.look.err):
			if err := at.set.Refuse(at.index, "reference: "+at.look.err.Error()); err != nil {
				return refused, pending, err
			}
			refused++
		case l.mutant.Has(mutant.UndecidedIsValid):
			at.set.Recs[at.index].Pending = false
		default:
			pending++
		}
	}
	return refused, pending, nil
}
