package inspect

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// message is what a lane tells of one of its messages.
type message struct {
	id       lane.ID
	sequence uint64
	subject  string
	producer *Producer // nil: a plain message
}

// look asks the lane about a message. It returns nil if the lane does not have
// it, or is not the incarnation that is meant, and settles the fate of those that
// it never had.
func (t Tracer) look(ctx context.Context, out *Trace) (*message, error) {
	s, err := t.Lanes.Stream(ctx, out.Lane.Stream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if out.Incarnation == "" {
			return nil, fmt.Errorf("lane %s: %w (stream %s)", out.Lane, lane.ErrNoLane, out.Lane.Stream())
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up lane %s: %w", out.Lane, err)
	}
	info := s.CachedInfo() // fetched just now
	incarnation := info.Config.Metadata[lane.MetadataIncarnation]
	if out.Incarnation == "" {
		out.Incarnation = incarnation
	}
	if out.Incarnation != incarnation {
		return nil, nil
	}
	seq := out.Rows.From.Sequence
	if out.Last = info.State.LastSeq; seq > out.Last {
		out.Fate = FateAbsent
		return nil, nil
	}
	raw, err := s.GetMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil // trimmed
	}
	if err != nil {
		return nil, fmt.Errorf("message %d of lane %s: %w", seq, out.Lane, err)
	}
	out.InLane, out.Topic = true, out.Lane.Topic(raw.Subject)
	if out.Topic == lane.Control {
		out.Topic, out.Fate = "", FateControl
	}
	return &message{out.Lane, seq, raw.Subject, producerOf(raw.Header)}, nil
}

// producerOf is the identity of a batch, nil if there is none that a worker
// would go by.
func producerOf(h nats.Header) *Producer {
	ids, numbers := h[lane.HeaderProducer], h[lane.HeaderSequence]
	if h[lane.HeaderBatch] == nil || len(ids) != 1 || len(numbers) != 1 {
		return nil
	}
	n, err := strconv.ParseUint(numbers[0], 10, 63)
	if err != nil || n == 0 || ids[0] == "" {
		return nil
	}
	return &Producer{ids[0], n}
}

// originalBudget bounds the search for a batch in what a lane still holds, which
// is up to ProducerDistance messages, without their payloads.
const originalBudget = 15 * time.Second

// original is the sequence of the message before m that brought the same batch,
// 0 if there is none that can be found. The checkpoint knows the last batch of
// each producer; earlier ones are looked for in what the lane still holds.
func (t Tracer) original(ctx context.Context, c segment.Checkpoint, m message) (uint64, error) {
	for _, p := range c.Producers {
		if p.ID == m.producer.ID && p.Sequence == m.producer.Sequence && p.At < m.sequence {
			return p.At, nil
		}
	}
	from := uint64(1)
	if m.sequence > segment.ProducerDistance {
		from = m.sequence - segment.ProducerDistance
	}
	ctx, cancel := context.WithTimeout(ctx, originalBudget)
	defer cancel()
	cons, err := t.Lanes.OrderedConsumer(ctx, m.id.Stream(), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{m.subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: true,
	})
	if err != nil {
		return 0, fmt.Errorf("read lane %s: %w", m.id, err)
	}
	msgs, err := cons.Messages()
	if err != nil {
		return 0, fmt.Errorf("read lane %s: %w", m.id, err)
	}
	defer msgs.Stop()
	for {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		if errors.Is(err, context.DeadlineExceeded) {
			return 0, nil // the lane was trimmed up to here meanwhile
		}
		if err != nil {
			return 0, fmt.Errorf("read lane %s: %w", m.id, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return 0, err
		}
		at := meta.Sequence.Stream
		if at >= m.sequence {
			return 0, nil
		}
		if p := producerOf(msg.Headers()); p != nil && *p == *m.producer {
			return at, nil
		}
		if meta.NumPending == 0 {
			return 0, nil
		}
	}
}
