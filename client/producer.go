package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/spillway-mq/spillway/internal/lane"
)

// Producer publishes records in batches to the lanes of one lane group. All
// methods may be called concurrently. See the package comment for what it
// guarantees.
type Producer struct {
	opts   Options
	nc     *nats.Conn
	ownsNC bool
	js     jetstream.JetStream
	link   *link
	lanes  []*laneOut
	limit  int // bytes of one encoded record

	room   *semaphore.Weighted // what is left of MaxBuffered
	spread atomic.Uint64       // records without a key so far

	mu       sync.Mutex
	failed   int // records since the last Flush
	firstErr error

	open      context.Context // ends first thing in Close
	shut      context.CancelFunc
	ctx       context.Context // ends the senders, after the flush in Close
	stop      context.CancelCauseFunc
	group     errgroup.Group
	closeOnce sync.Once
	closeErr  error
}

// laneOut is one lane as the producer sees it.
type laneOut struct {
	id      lane.ID
	in      *batcher
	commits *lane.Commits // the sender's; nil until a record asks to be stored
}

// Connect connects to the NATS servers at url, reconnecting for as long as it
// takes, and makes a producer that owns the connection. Options of nats.Connect,
// for credentials and TLS, may follow.
func Connect(url string, opts Options, natsOpts ...nats.Option) (*Producer, error) {
	nc, err := nats.Connect(url, append([]nats.Option{nats.Name("spillway producer"), nats.MaxReconnects(-1)}, natsOpts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	p, err := NewProducer(nc, opts)
	if err != nil {
		nc.Close()
		return nil, err
	}
	p.ownsNC = true
	return p, nil
}

// NewProducer makes a producer that uses a connection of the caller's. The
// connection should reconnect for ever (nats.MaxReconnects(-1)) and stay open
// until after Close. It fails with [*OptionsError] for bad options, with
// [ErrNoLane] if the lane group does not exist and with [*MismatchError] if a
// lane is damaged.
//
// It needs the permissions to publish to the lanes' subjects and to
// $JS.API.STREAM.INFO.*, for Stored also to $JS.API.DIRECT.GET.>, and to
// subscribe to _INBOX.> and spillway.commit.>.
func NewProducer(nc *nats.Conn, opts Options) (*Producer, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if nc == nil {
		return nil, &OptionsError{Problems: []string{"no NATS connection"}}
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncTimeout(opts.AckTimeout))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), opts.RetryBudget)
	defer cancel()
	link := newLink(nc)
	found := link.generation()
	lanes, err := findLanes(ctx, js, opts.Group)
	if err != nil {
		link.close()
		return nil, err
	}
	p := &Producer{
		opts: opts, nc: nc, js: js, link: link,
		limit: lane.MaxMessage - reserved,
		room:  semaphore.NewWeighted(opts.MaxBuffered),
	}
	if most := nc.MaxPayload(); most > 2*reserved && most < lane.MaxMessage {
		p.limit = int(most) - reserved
	}
	p.start(lanes, found)
	return p, nil
}

// findLanes lists a group's lanes. The default group has one; others have lanes
// 0, 1, 2 and so on.
func findLanes(ctx context.Context, js jetstream.JetStream, group string) ([]lane.Info, error) {
	var lanes []lane.Info
	for n := 0; ; n++ {
		info, err := lane.Open(ctx, js, lane.ID{Group: group, N: n})
		if errors.Is(err, lane.ErrNoLane) && n > 0 {
			return lanes, nil
		}
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, info)
		if group == lane.Default {
			return lanes, nil
		}
	}
}

// start runs the senders. The lanes were looked up at a generation of the link.
func (p *Producer) start(lanes []lane.Info, generation uint64) {
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	p.open, p.shut = context.WithCancel(p.ctx)
	p.group.Go(func() error { p.link.run(p.ctx); return nil })
	for _, info := range lanes {
		l := &laneOut{id: info.ID, in: newBatcher(p.opts.Linger, min(p.opts.BatchBytes, p.limit), p.limit)}
		s := &sender{
			id: info.ID, opts: p.opts, js: p.js, link: p.link, in: l.in,
			out:         func(b *batch, err error) { p.acked(l, b, err) },
			producer:    newProducerID(),
			incarnation: info.Incarnation, generation: generation, known: true,
		}
		p.lanes = append(p.lanes, l)
		p.group.Go(func() error { s.run(p.ctx); return nil })
	}
}
