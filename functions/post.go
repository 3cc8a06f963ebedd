package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/ingest"
)

// Times of sharing a group's lanes.
const (
	balance    = time.Second            // between two looks at who else is there
	quickTry   = 500 * time.Millisecond // for a lease that is free
	rosterLook = 1200 * time.Millisecond
	mendLook   = 30 * time.Second // after a fault that needs somebody
)

// post is one process's work on the lanes of a group.
type post struct {
	d       Deps
	o       IngestOptions
	lanes   []*ingest.JetStream
	metrics []*ingest.Metrics
	holder  string // in leases

	mu      sync.Mutex
	roster  *ingest.Roster
	pending int // leases that are being taken
	held    map[*ingest.JetStream]*shift
}

// shift is a lane that is being read.
type shift struct {
	end   func()
	ended bool
}

func newPost(d Deps, o IngestOptions, lanes []*ingest.JetStream) *post {
	p := &post{d: d, o: o, lanes: lanes, holder: holder(), held: map[*ingest.JetStream]*shift{}}
	for _, l := range lanes {
		m := ingest.NewMetrics(d.Metrics, l.ID.String())
		m.Health = d.Health
		p.metrics = append(p.metrics, m)
		if len(lanes) > 1 {
			l.PullBytes = max(pullShare/len(lanes), 1<<20)
		}
	}
	return p
}

// pullShare is what the readers of all lanes ask for at a time, together.
const pullShare = 16 << 20

// watch runs a monitor for each lane until the returned function is called.
func (p *post) watch(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	for i, l := range p.lanes {
		m := &ingest.Monitor{Lane: l, ID: l.ID, Store: p.d.Store, Metrics: p.metrics[i], Health: p.d.Health}
		g.Go(func() error { m.Run(ctx); return nil })
	}
	return func() {
		cancel()
		_ = g.Wait() // always nil
	}
}

// only reads the one lane of a group.
func (p *post) only(ctx, stop, hard context.Context) (IngestSummary, error) {
	id := p.lanes[0].ID
	sum := IngestSummary{Lane: id.String()}
	lease, err := acquire(ctx, stop, p.d, id, p.patience())
	var held *HeldError
	if errors.As(err, &held) {
		sum.HeldBy = held.Holder
	}
	if lease == nil {
		return sum, err
	}
	sum, err = p.read(hard, stop, 0, lease)
	if err == nil && p.o.Once && !sum.Drained && ctx.Err() == nil {
		err = p.late(sum)
	}
	if err != nil {
		p.d.Health.Stopped("lane "+id.String(), err)
	}
	return sum, outcome(err)
}

// patience is how long to wait for a lease; 0: for as long as it takes.
func (p *post) patience() time.Duration {
	if !p.o.Once {
		return 0
	}
	return cmp.Or(p.o.Wait, DefaultWait)
}

func (p *post) late(sum IngestSummary) error {
	return &RetryError{fmt.Errorf("lane %s is not drained: the deadline of %s came first", sum.Lane, p.o.Deadline)}
}

// once drains what it can get of the lanes: its share of them side by side, first
// those that nobody reads, then those that somebody does not give up in time.
func (p *post) once(ctx, stop, hard context.Context) (IngestSummary, error) {
	share, leave, err := p.join(stop, hard)
	if err != nil {
		return IngestSummary{Lane: p.o.Group}, outcome(err)
	}
	defer leave()
	all := rand.Perm(len(p.lanes))
	sums, errs := make([]IngestSummary, len(all)), make([]error, len(all))
	try := func(lanes []int, side int, wait time.Duration) (left []int) {
		var g errgroup.Group
		g.SetLimit(side)
		for _, i := range lanes {
			g.Go(func() error { sums[i], errs[i] = p.try(ctx, stop, hard, i, wait); return nil })
		}
		_ = g.Wait() // always nil
		for _, i := range lanes {
			if sums[i].HeldBy != "" {
				left = append(left, i)
			}
		}
		return left
	}
	left := try(all, share, quickTry)
	if len(left) > 0 && stop.Err() == nil {
		left = try(left, len(left), p.patience())
	}
	sum := p.sum(sums)
	for i, err := range errs {
		var held *HeldError
		if errors.As(err, &held) && len(left) < len(all) {
			errs[i] = nil // its worker drains it, and others were drained here
		}
	}
	return sum, outcome(errors.Join(errs...))
}

// try drains one lane if it gets its lease in time.
func (p *post) try(ctx, stop, hard context.Context, i int, wait time.Duration) (IngestSummary, error) {
	id := p.lanes[i].ID
	sum := IngestSummary{Lane: id.String()}
	lease, err := acquire(ctx, stop, p.d, id, wait)
	var held *HeldError
	if errors.As(err, &held) {
		sum.HeldBy = held.Holder
	}
	if lease == nil {
		return sum, err
	}
	sum, err = p.read(hard, stop, i, lease)
	if err == nil && !sum.Drained && ctx.Err() == nil {
		err = p.late(sum)
	}
	return sum, outcome(err)
}

// join puts this process on the group's roster and says how many lanes are its
// share, once the others had time to be seen.
func (p *post) join(stop, hard context.Context) (share int, leave func(), err error) {
	js, err := jetstream.New(p.d.NATS)
	if err != nil {
		return 0, nil, &ConfigError{err}
	}
	if p.roster, err = ingest.OpenRoster(stop, js, p.o.Group, p.d.Logger); err != nil {
		return 0, nil, err
	}
	ctx, cancel := context.WithCancel(hard)
	var g errgroup.Group
	g.Go(func() error { p.roster.Run(ctx); return nil })
	select {
	case <-stop.Done():
	case <-time.After(rosterLook):
	}
	return p.quota(), func() { cancel(); _ = g.Wait() }, nil // always nil
}

func (p *post) quota() int {
	members := p.roster.Members()
	return (len(p.lanes) + members - 1) / members
}

// sum adds up what was done on the lanes.
func (p *post) sum(lanes []IngestSummary) IngestSummary {
	sum := IngestSummary{Lane: p.o.Group, Lanes: lanes, Drained: true}
	for _, l := range lanes {
		sum.Counts.Add(l.Counts)
		sum.Drained = sum.Drained && l.Drained
		sum.HeldBy = cmp.Or(sum.HeldBy, l.HeldBy)
	}
	return sum
}

// share reads as many of the lanes as are this process's share, until stop ends.
// A lane at which somebody has to look does not stop the others; it is looked at
// again now and then.
func (p *post) share(stop, hard context.Context) (IngestSummary, error) {
	_, leave, err := p.join(stop, hard)
	if err != nil {
		return IngestSummary{Lane: p.o.Group}, outcome(err)
	}
	defer leave()
	sums, errs := make([]IngestSummary, len(p.lanes)), make([]error, len(p.lanes))
	var g errgroup.Group
	g.Go(func() error { p.balance(stop); return nil })
	for i := range p.lanes {
		g.Go(func() error { sums[i], errs[i] = p.keep(stop, hard, i); return nil })
	}
	_ = g.Wait() // always nil
	return p.sum(sums), outcome(errors.Join(errs...))
}

// balance gives lanes up while there are more than this process's share.
func (p *post) balance(stop context.Context) {
	tick := time.NewTicker(balance)
	defer tick.Stop()
	for {
		select {
		case <-stop.Done():
			return
		case <-tick.C:
		}
		quota := p.quota()
		p.mu.Lock()
		staying := 0
		for _, s := range p.held {
			if s.ended {
				continue
			}
			if staying++; staying > quota {
				s.ended = true
				s.end()
			}
		}
		p.mu.Unlock()
	}
}

func (p *post) reserve() bool {
	quota := p.quota()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending+len(p.held) >= quota {
		return false
	}
	p.pending++
	return true
}

func (p *post) unreserve() {
	p.mu.Lock()
	p.pending--
	p.mu.Unlock()
}

// keep reads a lane whenever it is this process's to read.
func (p *post) keep(stop, hard context.Context, i int) (sum IngestSummary, err error) {
	l := p.lanes[i]
	js, err := jetstream.New(p.d.NATS)
	if err != nil {
		return sum, &ConfigError{err}
	}
	c := ingest.Contender{JS: js, ID: l.ID, Holder: p.holder, Logger: p.d.Logger, Reserve: p.reserve, Unreserve: p.unreserve}
	for sum.Lane = l.ID.String(); ; {
		lease, _, acquireErr := c.Acquire(stop)
		if stop.Err() != nil && lease == nil {
			return sum, err
		}
		pause := balance
		if lease != nil {
			var did IngestSummary
			did, err = p.serve(stop, hard, i, lease)
			sum.Counts.Add(did.Counts)
			sum.Checkpoint = did.Checkpoint
		} else {
			err = acquireErr
		}
		if err != nil && stop.Err() == nil {
			p.d.Health.Fault("lane "+l.ID.String(), err)
			p.d.Logger.Error("a lane is not read; it will be tried again", "lane", l.ID.String(), "err", err)
			if ExitCode(outcome(err)) != ExitRetry {
				pause = mendLook
			}
		}
		select {
		case <-stop.Done():
			return sum, err
		case <-time.After(pause):
		}
	}
}

// serve reads a lane until stop ends, or until it is another process's turn.
func (p *post) serve(stop, hard context.Context, i int, lease *ingest.Lease) (IngestSummary, error) {
	l := p.lanes[i]
	turn, end := context.WithCancel(stop)
	defer end()
	p.mu.Lock()
	p.pending--
	p.held[l] = &shift{end: end}
	p.mu.Unlock()
	sum, err := p.read(hard, turn, i, lease)
	p.mu.Lock()
	delete(p.held, l)
	p.mu.Unlock()
	return sum, err
}
