package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

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
	Incarnation string // when it was opened
	Lanes       int    // in the lane's group
	// PullBytes is how much a reader asks for at a time; 0: 8 MiB. Several lanes
	// in one process share its memory.
	PullBytes int
	nc        *nats.Conn
	js        jetstream.JetStream
}

func newJetStream(nc *nats.Conn, js jetstream.JetStream, info lane.Info) *JetStream {
	return &JetStream{ID: info.ID, Incarnation: info.Incarnation, Lanes: info.Lanes, nc: nc, js: js}
}

// Other is another lane of the same server. It may not exist.
func (l *JetStream) Other(id lane.ID) Lane {
	return newJetStream(l.nc, l.js, lane.Info{ID: id})
}

// OpenLane opens a lane, making it if it is missing: its checkpoint first, then
// the stream that bears the same incarnation. A lane that takes no S3 events and
// should is mended, if the server lets it be. Any number may race.
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
	if info.NoEvents {
		takeEvents(ctx, js, store, id)
	}
	if err := lane.EnsureCommitStream(ctx, js); err != nil {
		return nil, err
	}
	return newJetStream(nc, js, info), nil
}

// takeEvents has a lane that is older than that take S3 events. One that cannot
// serves records as before.
func takeEvents(ctx context.Context, js jetstream.JetStream, store *segment.Store, id lane.ID) {
	if _, err := lane.TakeEvents(ctx, js, id); err != nil {
		store.Logger.Warn("the lane does not take S3 event notifications", "lane", id.String(), "subject", lane.EventSubject("*"), "err", err)
		return
	}
	store.Logger.Info("the lane takes S3 event notifications now", "lane", id.String(), "subject", lane.EventSubject("*"))
}

func makeLane(ctx context.Context, js jetstream.JetStream, store *segment.Store, id lane.ID, s lane.Settings) (lane.Info, error) {
	s.Incarnation = lane.Token()
	source := id.Source(s.Incarnation)
	if err := warnOfEarlier(ctx, store, id); err != nil {
		return lane.Info{}, err
	}
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

// warnOfEarlier says so when a lane is made that has been there before: what it
// held and was not committed went with it.
func warnOfEarlier(ctx context.Context, store *segment.Store, id lane.ID) error {
	earlier, err := Incarnations(ctx, store, id)
	if err == nil && len(earlier) > 0 {
		store.Logger.Warn("a lane is made that has been there before: its stream was lost, or this is another server",
			"lane", id.String(), "incarnations", earlier)
	}
	return err
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
func (l *JetStream) Announce(ctx context.Context, incarnation string, checkpoint uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return lane.Announce(ctx, l.js, lane.Announcement{Lane: l.ID.String(), Incarnation: incarnation, Checkpoint: checkpoint})
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
		// By default the library tries for ever, and heeds no context, to go on
		// in a lane that is gone. A session that fails starts again by itself.
		MaxResetAttempts: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("read lane %s: %w", l.ID, err)
	}
	it, err := c.Messages(jetstream.PullMaxBytes(cmp.Or(l.PullBytes, pullBytes)))
	if err != nil {
		return nil, fmt.Errorf("read lane %s: %w", l.ID, err)
	}
	r := &laneReader{lane: l, it: it}
	r.whole, r.cut = context.WithCancelCause(context.WithoutCancel(ctx))
	status := l.nc.StatusChanged(nats.CONNECTED)
	r.group.Go(func() error {
		defer l.nc.RemoveStatusListener(status)
		select {
		case <-status:
			r.cut(ErrReconnected)
		case <-r.whole.Done():
		}
		return nil
	})
	if l.nc.Stats().Reconnects != before {
		r.cut(ErrReconnected)
	}
	return r, nil
}

// laneReader ends when the connection was made again, whether there are messages
// or not: what it has delivered since the last commit may no longer be what the
// lane holds.
type laneReader struct {
	lane   *JetStream
	it     jetstream.MessagesContext
	whole  context.Context // ends with the connection, or with Close
	cut    context.CancelCauseFunc
	group  errgroup.Group
	closed atomic.Bool

	given, merged context.Context // of the last Next, and that joined with whole
}

// until joins a context with the connection. Next mostly gets the same one.
func (r *laneReader) until(ctx context.Context) context.Context {
	if ctx != r.given {
		merged, end := context.WithCancel(ctx)
		context.AfterFunc(r.whole, end)
		r.given, r.merged = ctx, merged
	}
	return r.merged
}

func (r *laneReader) Next(ctx context.Context) (Message, error) {
	m, err := r.it.Next(jetstream.NextContext(r.until(ctx)))
	if errors.Is(context.Cause(r.whole), ErrReconnected) {
		return Message{}, ErrReconnected
	}
	if err != nil {
		return Message{}, fmt.Errorf("read lane %s: %w", r.lane.ID, err)
	}
	meta, err := m.Metadata()
	if err != nil {
		return Message{}, fmt.Errorf("read lane %s: %w", r.lane.ID, err)
	}
	return Message{
		Topic: r.lane.ID.Topic(m.Subject()), Event: lane.IsEvent(m.Subject()), Header: m.Headers(), Data: m.Data(),
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp,
	}, nil
}

func (r *laneReader) Close() {
	if !r.closed.Swap(true) {
		r.it.Stop()
		r.cut(nil)
		_ = r.group.Wait() // always nil
	}
}
