package ingest

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/segment"
)

// session is one uninterrupted reading of a lane, from the checkpoint on. Three
// stages run side by side, each on one flush: gather reads and decodes, prepare
// encodes and uploads, commit makes it count. Whatever fails ends all three;
// the next session reads again what was not committed.
type session struct {
	*Worker
	decoder
	*appender
	incarnation string // of the lane, when this session began
	reader      Reader
	lookers     *lookers
	base        context.Context // ends with the session

	// Owned by gather.
	lastRead  uint64
	producers map[string]segment.Producer

	// Owned by commit.
	trimmed   uint64
	trimBelow uint64
	sinceTrim time.Time
}

func (w *Worker) session(ctx, stop context.Context) error {
	s, err := w.start(ctx)
	if err != nil {
		return err
	}
	s.announce(ctx)
	ctx, cancel := context.WithCancel(ctx)
	s.base, s.lookers = ctx, w.newLookers()
	defer s.lookers.close()
	defer cancel() // before lookers are waited for
	if s.reader, err = w.Lane.Read(ctx, s.from.Sequence+1); err != nil {
		return err
	}
	defer s.reader.Close()
	return s.run(ctx, stages{
		gather: func(ctx context.Context, out chan<- *flush) error { return s.gather(ctx, stop, out) },
		prepare: func(ctx context.Context, f *flush) error {
			if err := s.judge(ctx, f); err != nil {
				return err
			}
			if err := s.expand(ctx, f); err != nil {
				return err
			}
			return s.prepare(ctx, f)
		},
		commit: s.commit,
	})
}

// received is what the reader goroutine of gather delivers.
type received struct {
	message Message
	err     error
}

// errStopped ends the reader goroutine when gather is done.
var errStopped = errors.New("stopped")

// gather reads messages into flushes until stop ends or a Once worker finds the
// lane drained. A flush that is due is handed on as soon as prepare is free; it
// goes on filling until then, or until it is full.
func (s *session) gather(ctx, stop context.Context, out chan<- *flush) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errStopped)
	messages := make(chan received)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.receive(ctx, messages) })
	g.Go(func() error {
		defer cancel(errStopped)
		return s.fill(ctx, stop, messages, out)
	})
	if err := g.Wait(); !errors.Is(err, errStopped) {
		return err
	}
	return nil
}

func (s *session) receive(ctx context.Context, out chan<- received) error {
	hold := s.holdback()
	for {
		m, err := s.reader.Next(ctx)
		if err == nil {
			err = hold.await(ctx, m)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case out <- received{m, err}:
		}
		if err != nil {
			return nil //nolint:nilerr // it has been handed to fill
		}
	}
}

// idleLook is after how long without a message a Once worker looks whether the
// lane is drained.
const idleLook = 200 * time.Millisecond

func (s *session) fill(ctx, stop context.Context, in <-chan received, out chan<- *flush) error {
	f, lastOut := newFlush(s.Share), s.Now()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		messages, ready := in, chan<- *flush(nil)
		wait := s.untilDue(f, lastOut)
		if f.full() {
			messages, wait = nil, s.untilAllowed(lastOut)
		}
		if wait <= 0 && !f.empty() {
			ready = out
		}
		timer.Reset(max(wait, time.Millisecond))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-stop.Done():
			return s.last(ctx, f, out)
		case r := <-messages:
			if r.err != nil {
				return r.err
			}
			if err := s.take(ctx, f, r.message); err != nil {
				return err
			}
		case ready <- f:
			f, lastOut = newFlush(s.Share), s.Now()
		case <-timer.C:
			if !s.Once || !f.empty() {
				continue
			}
			if drained, err := s.isDrained(ctx); drained || err != nil {
				return err
			}
		}
	}
}

// untilDue is how long the flush may still wait.
func (s *session) untilDue(f *flush, lastOut time.Time) time.Duration {
	if f.empty() || f.due.IsZero() {
		if s.Once {
			return idleLook
		}
		return time.Hour
	}
	return max(f.due.Sub(s.Now()), s.untilAllowed(lastOut))
}

// untilAllowed is how long the next flush must wait, even a full one. The
// interval between flushes grows with the segments touched, so that the filer is
// not asked for more than commitsPerSecond (rule 30).
func (s *session) untilAllowed(lastOut time.Time) time.Duration {
	return lastOut.Add(time.Duration(s.touched.Load()) * time.Second / commitsPerSecond).Sub(s.Now())
}

// last hands on what has been read when the worker is told to stop.
func (s *session) last(ctx context.Context, f *flush, out chan<- *flush) error {
	if f.empty() {
		return nil
	}
	return send(ctx, out, f)
}

func (s *session) isDrained(ctx context.Context) (bool, error) {
	state, err := s.Lane.State(ctx)
	if err != nil {
		return false, err
	}
	s.drained = state.Last <= s.lastRead
	return s.drained, nil
}
