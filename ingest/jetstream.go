package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// pullBytes is how much a lane's reader asks for at a time (facts: a continuous
// pull of 8 MiB reads 774 MB/s).
const pullBytes = 8 << 20

// JetStream is a lane on a NATS server. It implements Lane.
type JetStream struct {
	ID          lane.ID
	Incarnation string
	nc          *nats.Conn
	js          jetstream.JetStream
}

// OpenLane opens a lane, making it if it is missing: its checkpoint first, then
// the stream that bears the same incarnation. Any number may race.
func OpenLane(ctx context.Context, nc *nats.Conn, store *segment.Store, id lane.ID, s lane.Settings) (*JetStream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	info, err := lane.Open(ctx, js, id)
	if errors.Is(err, lane.ErrNoLane) {
		info, err = makeLane(ctx, js, store, id, s)
	}
	if err != nil {
		return nil, err
	}
	if err := lane.EnsureCommitStream(ctx, js); err != nil {
		return nil, err
	}
	return &JetStream{ID: id, Incarnation: info.Incarnation, nc: nc, js: js}, nil
}

func makeLane(ctx context.Context, js jetstream.JetStream, store *segment.Store, id lane.ID, s lane.Settings) (lane.Info, error) {
	s.Incarnation = lane.Token()
	source := id.Source(s.Incarnation)
	if err := store.CreateCheckpoint(ctx, source); err != nil {
		return lane.Info{}, err
	}
	info, err := lane.Ensure(ctx, js, id, s)
	if err == nil && info.Incarnation != s.Incarnation {
		// Somebody else made the lane; the checkpoint made here is nobody's.
		err = filer.Retry(ctx, func(ctx context.Context) error {
			return store.Filer.Delete(ctx, store.CheckpointFile(source).Path(), "")
		})
	}
	return info, err
}

// State asks the server.
func (l *JetStream) State(ctx context.Context) (State, error) {
	info, err := lane.Open(ctx, l.js, l.ID)
	return State{Incarnation: info.Incarnation, First: info.First, Last: info.Last, Bytes: info.Bytes, MaxBytes: info.MaxBytes}, err
}

// TimeOf looks a message up.
func (l *JetStream) TimeOf(ctx context.Context, sequence uint64) (time.Time, error) {
	s, err := l.js.Stream(ctx, l.ID.Stream())
	if err != nil {
		return time.Time{}, err
	}
	m, err := s.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, fmt.Errorf("message %d: %w", sequence, ErrNoMessage)
	}
	if err != nil {
		return time.Time{}, err
	}
	return m.Time, nil
}

// Announce publishes the checkpoint.
func (l *JetStream) Announce(ctx context.Context, checkpoint uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return lane.Announce(ctx, l.js, lane.Announcement{Lane: l.ID.String(), Incarnation: l.Incarnation, Checkpoint: checkpoint})
}

// Trim purges the messages below a sequence number.
func (l *JetStream) Trim(ctx context.Context, below uint64) error {
	s, err := l.js.Stream(ctx, l.ID.Stream())
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSequence(below))
}

// Read makes an ordered consumer of its own (rule 19).
func (l *JetStream) Read(ctx context.Context, from uint64) (Reader, error) {
	before := l.nc.Stats().Reconnects
	c, err := l.js.OrderedConsumer(ctx, l.ID.Stream(), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
		InactiveThreshold: time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("read lane %s: %w", l.ID, err)
	}
	it, err := c.Messages(jetstream.PullMaxBytes(pullBytes))
	if err != nil {
		return nil, fmt.Errorf("read lane %s: %w", l.ID, err)
	}
	return &laneReader{lane: l, it: it, reconnects: before}, nil
}

// laneReader ends when the connection was made again: what it has delivered
// since the last commit may no longer be what the lane holds.
type laneReader struct {
	lane       *JetStream
	it         jetstream.MessagesContext
	reconnects uint64
	closed     atomic.Bool
}

func (r *laneReader) Next(ctx context.Context) (Message, error) {
	m, err := r.it.Next(jetstream.NextContext(ctx))
	if err != nil {
		return Message{}, fmt.Errorf("read lane %s: %w", r.lane.ID, err)
	}
	if r.lane.nc.Stats().Reconnects != r.reconnects {
		return Message{}, ErrReconnected
	}
	meta, err := m.Metadata()
	if err != nil {
		return Message{}, fmt.Errorf("read lane %s: %w", r.lane.ID, err)
	}
	return Message{
		Topic: r.lane.ID.Topic(m.Subject()), Header: m.Headers(), Data: m.Data(),
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp,
	}, nil
}

func (r *laneReader) Close() {
	if !r.closed.Swap(true) {
		r.it.Stop()
	}
}
