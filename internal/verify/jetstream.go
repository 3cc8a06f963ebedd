package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
)

// JetStream looks at lanes on a NATS server. It only reads: its consumers are
// ordered ones that vanish when it is done.
func JetStream(js jetstream.JetStream) Lanes { return jetStream{js} }

type jetStream struct{ js jetstream.JetStream }

func (l jetStream) State(ctx context.Context, id lane.ID) (LaneState, error) {
	info, err := lane.Open(ctx, l.js, id)
	return LaneState{Incarnation: info.Incarnation, First: info.First, Last: info.Last}, err
}

func (l jetStream) TimeOf(ctx context.Context, id lane.ID, sequence uint64) (time.Time, error) {
	s, err := l.js.Stream(ctx, id.Stream())
	if err != nil {
		return time.Time{}, fmt.Errorf("look up lane %s: %w", id, err)
	}
	m, err := s.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, fmt.Errorf("message %d of lane %s: %w", sequence, id, ErrNoMessage)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("message %d of lane %s: %w", sequence, id, err)
	}
	return m.Time, nil
}

// idle is how long a message is waited for before the lane is asked whether
// there are any.
const idle = 2 * time.Second

func (l jetStream) Messages(ctx context.Context, id lane.ID, topic string, to uint64) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if err := l.read(ctx, id, topic, to, yield); err != nil {
			yield(Message{}, fmt.Errorf("read lane %s: %w", id, err))
		}
	}
}

func (l jetStream) read(ctx context.Context, id lane.ID, topic string, to uint64, yield func(Message, error) bool) error {
	if left, err := l.left(ctx, id, topic); err != nil || left == 0 {
		return err
	}
	c, err := l.js.OrderedConsumer(ctx, id.Stream(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{id.Subject(topic)}, DeliverPolicy: jetstream.DeliverAllPolicy,
	})
	if err != nil {
		return err
	}
	it, err := c.Messages(jetstream.PullMaxBytes(8 << 20))
	if err != nil {
		return err
	}
	defer it.Stop()
	for {
		m, err := next(ctx, it)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			// Trimmed meanwhile, or a slow server.
			if left, err := l.left(ctx, id, topic); err != nil || left == 0 {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if meta.Sequence.Stream > to {
			return nil
		}
		if !yield(Message{meta.Sequence.Stream, meta.Timestamp, m.Headers(), m.Data()}, nil) ||
			meta.Sequence.Stream == to || meta.NumPending == 0 {
			return nil
		}
	}
}

func next(ctx context.Context, it jetstream.MessagesContext) (jetstream.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	return it.Next(jetstream.NextContext(ctx))
}

// left is how many messages of a topic the lane holds.
func (l jetStream) left(ctx context.Context, id lane.ID, topic string) (uint64, error) {
	subject := id.Subject(topic)
	s, err := l.js.Stream(ctx, id.Stream())
	if err != nil {
		return 0, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return 0, err
	}
	return info.State.Subjects[subject], nil
}
