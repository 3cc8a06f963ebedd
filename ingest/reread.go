package ingest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrOtherIncarnation says that a lane is not, or no more, the one that a source names:
// what it holds are other messages.
var ErrOtherIncarnation = errors.New("the lane has another incarnation")

// ErrNoSource says that a name is none of a source that is a lane.
var ErrNoSource = errors.New("not the name of a lane's incarnation")

// Reread reads again what a lane still holds, and makes records of it by the same code
// as a worker does. So it gives the records that a worker took in, with two exceptions,
// of which the lane does not tell: that a batch or an S3 event was a repeat, if what it
// repeats has been trimmed from the lane, and that a reference was refused for what its
// object was then.
type Reread struct {
	Lane Lane
	ID   lane.ID
	// Source is the one whose records are wanted. ErrOtherIncarnation: the lane's is
	// another.
	Source string
	Topic  topic.Definition
}

// OpenReread opens the lane that a source names, on a server. lane.ErrNoLane: it is
// gone. ErrNoSource: the source is no lane.
func OpenReread(ctx context.Context, nc *nats.Conn, source string, t topic.Definition) (Reread, error) {
	name, ok := strings.CutPrefix(source, "lane.")
	dot := strings.LastIndexByte(name, '.')
	if !ok || dot < 0 {
		return Reread{}, fmt.Errorf("%w: %.100q", ErrNoSource, source)
	}
	id, err := lane.ParseID(name[:dot])
	if err != nil {
		return Reread{}, fmt.Errorf("%w: %w", ErrNoSource, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return Reread{}, err
	}
	info, err := lane.Open(ctx, js, id)
	if err != nil {
		return Reread{}, err
	}
	return Reread{Lane: newJetStream(nc, js, info), ID: id, Source: source, Topic: t}, nil
}

// Records yields the records of each message for the topic, from the first that the
// lane holds up to and including message to. A set is valid until the next. The first
// error ends it.
func (r Reread) Records(ctx context.Context, to uint64) iter.Seq2[*record.Set, error] {
	return func(yield func(*record.Set, error) bool) {
		err := r.each(ctx, to, func(s *record.Set) bool { return yield(s, nil) })
		if err != nil {
			yield(nil, fmt.Errorf("read lane %s again: %w", r.ID, err))
		}
	}
}

func (r Reread) each(ctx context.Context, to uint64, take func(*record.Set) bool) error {
	state, err := r.Lane.State(ctx)
	if err != nil {
		return err
	}
	if r.ID.Source(state.Incarnation) != r.Source {
		return fmt.Errorf("%w: %s, and the source is %s", ErrOtherIncarnation, state.Incarnation, r.Source)
	}
	if state.Last < to || state.First > to {
		return fmt.Errorf("message %d: %w", to, ErrNoMessage)
	}
	reader, err := r.Lane.Read(ctx, state.First)
	if err != nil {
		return err
	}
	defer reader.Close()
	s := &session{
		decoder:   decoder{source: r.Source, objects: segment.NewObjectTable(nil)},
		producers: map[string]segment.Producer{},
	}
	set := &record.Set{}
	for f := newFlush(1); ; {
		m, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		set.Reset()
		if m.Sequence <= to {
			if err := s.again(f, set, m, r.Topic); err != nil {
				return fmt.Errorf("message %d: %w", m.Sequence, err)
			}
			if len(set.Recs) > 0 && !take(set) {
				return nil
			}
		}
		if m.Sequence >= to {
			return nil
		}
	}
}

// again appends the records of a message, if it is for the topic: what take and add do
// when a worker reads it.
func (s *session) again(f *flush, set *record.Set, m Message, t topic.Definition) (err error) {
	in, bad := s.read(f, m)
	switch {
	case m.Topic == lane.Control && !m.Event:
		return nil
	case in.id != nil && s.duplicate(f, m, in.id), m.Topic != t.Name:
		return nil
	case bad != nil:
		err = s.reject(set, m, nil, bad.Error())
	case m.Event:
		_, _, err = s.notify(set, m, in.news, t)
	default:
		_, _, err = s.into(set, m, in.id, t.Key)
	}
	if err != nil {
		return err
	}
	return refuseBatches(set)
}

// refuseBatches refuses what says that it is a batch reference, and is none, as
// [session.refer] does.
func refuseBatches(set *record.Set) error {
	for i := range set.Recs {
		if !set.Recs[i].HasRef {
			continue
		}
		r, err := set.Record(i)
		if err != nil {
			return err
		}
		if _, _, bad := ref.BatchOf(&r); bad != nil {
			if err := set.Refuse(i, "reference: "+bad.Error()); err != nil {
				return err
			}
		}
	}
	return nil
}
