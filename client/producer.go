package client

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/spillway-mq/spillway/internal/lane"
)

// Producer publishes records in batches to the lanes to which their topics are
// bound. All methods may be called concurrently. See the package comment for what it
// guarantees.
type Producer struct {
	opts   Options
	nc     *nats.Conn
	ownsNC bool
	js     jetstream.JetStream
	link   *link
	routes routes
	limit  int // bytes of one encoded record

	room *semaphore.Weighted // what is left of MaxBuffered

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
	commits *lane.Commits              // the sender's; nil until a record asks to be stored
	last    atomic.Pointer[lane.After] // the last message that the lane took
}

// took notes that the lane has taken a batch.
func (l *laneOut) took(b *batch) {
	l.last.Store(&lane.After{Lane: l.id, Incarnation: b.receipt.Incarnation, Sequence: b.receipt.Sequence})
	if b.after != "" {
		l.in.arrived(b)
	}
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
// subscribe to _INBOX.> and spillway.commit.>. Unless Options name a group it
// reads the bucket spillway-topics, for which it publishes to
// $JS.API.CONSUMER.*.KV_spillway-topics.> too.
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
	lanes, err := lane.OpenGroup(ctx, js, cmp.Or(opts.Group, DefaultGroup))
	if err != nil {
		link.close()
		return nil, err
	}
	var bound map[string]lane.Binding
	if opts.Group == "" {
		if bound, err = lane.Bindings(ctx, js); err != nil {
			link.close()
			return nil, fmt.Errorf("which topics are bound to which lanes: %w", err)
		}
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
	if err := p.route(ctx, bound); err != nil {
		_ = p.Close(ctx) // nothing was published
		return nil, err
	}
	return p, nil
}

// start runs the senders of the lanes that are used unless a topic is bound to
// others. They were looked up at a generation of the link.
func (p *Producer) start(lanes []lane.Info, generation uint64) {
	p.ctx, p.stop = context.WithCancelCause(context.Background())
	p.open, p.shut = context.WithCancel(p.ctx)
	p.group.Go(func() error { p.link.run(p.ctx); return nil })
	p.routes.base = p.newLanes(lanes, generation)
	p.routes.every = p.routes.base.lanes
	p.routes.groups = map[string]*laneSet{p.routes.base.group: p.routes.base}
	p.routes.topics.Store(&map[string]*laneSet{})
}

// newLanes runs a sender for each lane of a group.
func (p *Producer) newLanes(lanes []lane.Info, generation uint64) *laneSet {
	set := &laneSet{group: lanes[0].ID.Group}
	for _, info := range lanes {
		l := &laneOut{id: info.ID, in: newBatcher(p.opts.Linger, min(p.opts.BatchBytes, p.limit), p.limit)}
		s := &sender{
			id: info.ID, opts: p.opts, js: p.js, link: p.link, in: l.in,
			out:         func(b *batch, err error) { p.acked(l, b, err) },
			producer:    newProducerID(),
			incarnation: info.Incarnation, generation: generation, known: true,
		}
		set.lanes = append(set.lanes, l)
		p.group.Go(func() error { s.run(p.ctx); return nil })
	}
	return set
}
