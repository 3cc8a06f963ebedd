package ingest

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// Expander makes jobs of batch references whose rows are to become records of their
// topic.
type Expander interface {
	// Expand sees to it that there is the one job for a reference, a record of a topic
	// that comes from a source. On nil it is as durable as the filer makes it. The job
	// does nothing before the reference is found among the topic's records.
	//
	// An error that [verdict.Wrong] knows, or a *ref.BatchError, says that there can be
	// none, and the reference is wrong; an *UnseenError that the object could not be
	// looked at; any other is the filer's. It is called concurrently.
	Expand(ctx context.Context, t *segment.Topic, source string, r record.Record) error
}

// UnseenError says that an object could not be looked at, or is not there, so that no
// job can be made of it yet.
type UnseenError struct{ Err error }

func (e *UnseenError) Error() string { return "no job could be made: " + e.Err.Error() }

func (e *UnseenError) Unwrap() error { return e.Err }

// errRemade ends a session that has made jobs in a topic that was then deleted and made
// again: its references go to the new one, and need their jobs there.
var errRemade = errors.New("a topic was made again after jobs of its references were made")

// expandParallel is how many jobs a flush makes at a time, and expandUnseen of how many
// the objects may turn out not to be there before the rest is left to the follow-up:
// whoever has the endpoint to ask is not to wait in line (rule 24).
const (
	expandParallel = 4
	expandUnseen   = 4
)

var (
	errNobody = &UnseenError{errors.New("there is nobody to make it")}
	errUnseen = &UnseenError{errors.New("too many objects of the flush could not be looked at")}
)

// expand makes the jobs of a flush's verified references, before these are committed:
// so there is none without a job, wherever a worker dies. Where there can be none the
// verdict changes, while the flush is not divided yet.
func (s *session) expand(ctx context.Context, f *flush) error {
	for _, t := range f.topics {
		if len(t.expand) == 0 {
			continue
		}
		open, err := s.topics.get(ctx, t.name)
		var why *refused
		if errors.As(err, &why) {
			continue // the topic goes, and its records with it
		}
		if err != nil {
			return err
		}
		if err := s.expandIn(ctx, f, t, open); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) expandIn(ctx context.Context, f *flush, t *topicRecords, open *openTopic) error {
	found := make([]error, len(t.expand))
	var unseen atomic.Int32
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(expandParallel)
	for n, i := range t.expand {
		if rec := t.set.Recs[i]; !rec.HasRef || rec.Pending {
			continue
		}
		if s.Expander == nil {
			found[n] = errNobody
			continue
		}
		r, err := t.set.Record(i)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		t.made = open.Incarnation
		g.Go(func() (err error) {
			if unseen.Load() >= expandUnseen {
				found[n] = errUnseen
				return nil
			}
			found[n], err = settled(s.Expander.Expand(each, open.Topic, s.appender.source, r))
			if found[n] != nil && !impossible(found[n]) {
				unseen.Add(1)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return t.unexpanded(f, found)
}

// settled tells what is a verdict on a reference from what ends the session.
func settled(err error) (found, fault error) {
	var not *UnseenError
	if err == nil || impossible(err) || errors.As(err, &not) {
		return err, nil
	}
	return nil, err
}

// impossible tells that there can never be a job.
func impossible(err error) bool {
	var batch *ref.BatchError
	return verdict.Wrong(err) || errors.As(err, &batch)
}

// unexpanded changes the verdict on references for which there is no job: what cannot be
// is refused, and the rest is left to the follow-up.
func (t *topicRecords) unexpanded(f *flush, found []error) error {
	for n, err := range found {
		switch i := t.expand[n]; {
		case err == nil:
		case impossible(err):
			if err := t.set.Refuse(i, "reference: "+err.Error()); err != nil {
				return err
			}
			f.counts.Rejected++
		default:
			t.set.Recs[i].Pending = true
			f.counts.Pending++
		}
	}
	return nil
}
