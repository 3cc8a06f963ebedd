package lane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// ErrIncarnation tells that the lane now has another incarnation than the one
// waited for, so its checkpoints say nothing about that one any more.
var ErrIncarnation = errors.New("the lane has another incarnation now")

// ErrWatchClosed tells that the watch ended before the checkpoint was reached.
var ErrWatchClosed = errors.New("the watch of the lane's checkpoints is closed")

const (
	pollEvery   = time.Second // while somebody waits
	pollTimeout = 5 * time.Second
	lookEvery   = 10 // polls between two looks at the lane's own incarnation
)

// Commits follows the announced checkpoints of one lane. All methods may be
// called concurrently.
type Commits struct {
	id    ID
	js    jetstream.JetStream
	nc    *nats.Conn
	every time.Duration

	sub    *nats.Subscription
	status chan nats.Status
	stop   context.CancelFunc
	group  errgroup.Group
	book   book
}

// Watch follows what [Announce] says about a lane, through a subscription and,
// because those may miss messages, by polling [CommitStream] while somebody
// waits: every second and after each reconnect. It neither needs the lane nor
// the commit stream to exist yet. ctx bounds the whole watch, as Close does.
func Watch(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, id ID) (*Commits, error) {
	return watch(ctx, nc, js, id, pollEvery)
}

func watch(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, id ID, every time.Duration) (*Commits, error) {
	c := &Commits{id: id, js: js, nc: nc, every: every}
	sub, err := nc.Subscribe(id.CommitSubject(), func(m *nats.Msg) { c.hear(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("watch lane %s: %w", id, err)
	}
	c.sub = sub
	c.status = nc.StatusChanged(nats.CONNECTED)
	ctx, c.stop = context.WithCancel(ctx)
	c.group.Go(func() error { c.run(ctx); return nil })
	return c, nil
}

// Close ends the watch; whoever still waits gets [ErrWatchClosed].
func (c *Commits) Close() {
	c.stop()
	_ = c.group.Wait()
}

// Wait returns nil once a checkpoint of the incarnation at or above seq is known
// to be announced, [ErrIncarnation] once the lane has another incarnation,
// [ErrWatchClosed] after Close, or ctx's error. What was known before Close is
// still told after it.
func (c *Commits) Wait(ctx context.Context, incarnation string, seq uint64) error {
	done := make(chan error, 1)
	cancel := c.Notify(incarnation, seq, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		cancel()
		return fmt.Errorf("wait for checkpoint %d of lane %s: %w", seq, c.id, context.Cause(ctx))
	}
}

// Notify calls f once, with what [Commits.Wait] would return; at once if that is
// known. f must not block and must not call into Commits. The function returned
// gives up waiting; f may still be called while it runs.
func (c *Commits) Notify(incarnation string, seq uint64, f func(error)) (cancel func()) {
	w := &waiter{incarnation: incarnation, seq: seq, done: f}
	if !c.book.add(w) {
		return func() {}
	}
	return func() { c.book.remove(w) }
}

// hear takes one announcement. Garbage is ignored: anybody may publish to the
// subject, and the next announcement makes up for a bad one.
func (c *Commits) hear(data []byte) {
	a, err := parseAnnouncement(c.id, data)
	if err != nil {
		return
	}
	c.book.advance(a.Incarnation, a.Checkpoint) // if others wait, the next poll sees to them
}

// run polls until ctx ends. A poll that fails is tried again with the next.
func (c *Commits) run(ctx context.Context) {
	defer c.book.close()
	defer c.nc.RemoveStatusListener(c.status)
	defer func() { _ = c.sub.Unsubscribe() }() // fails only on a closed connection
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	c.poll(ctx, false)
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-c.status:
			c.poll(ctx, true)
		case <-tick.C:
			if c.book.waiting() {
				c.poll(ctx, n%lookEvery == 0)
			}
		}
	}
}

// poll reads the last announcement, and the lane's own incarnation when asked to
// or when somebody waits for an incarnation that was not announced. Only the
// lane itself says which incarnation counts; an announcement may be late.
func (c *Commits) poll(ctx context.Context, lookAtLane bool) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	if a, err := c.last(ctx); err == nil {
		lookAtLane = c.book.advance(a.Incarnation, a.Checkpoint) || lookAtLane
	}
	if !lookAtLane {
		return
	}
	candidates := c.book.incarnations() // before the look: a later one may be newer
	if info, err := Open(ctx, c.js, c.id); err == nil {
		c.book.expire(candidates, info.Incarnation)
	}
}

func (c *Commits) last(ctx context.Context) (Announcement, error) {
	s, err := c.js.Stream(ctx, CommitStream)
	if err != nil {
		return Announcement{}, fmt.Errorf("look up %s: %w", CommitStream, err)
	}
	m, err := s.GetLastMsgForSubject(ctx, c.id.CommitSubject())
	if err != nil {
		return Announcement{}, fmt.Errorf("last announcement of %s: %w", c.id, err)
	}
	return parseAnnouncement(c.id, m.Data)
}

func parseAnnouncement(id ID, data []byte) (Announcement, error) {
	var a Announcement
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("announcement on %s: %w", id.CommitSubject(), err)
	}
	if a.Lane != id.String() || a.Incarnation == "" {
		return a, fmt.Errorf("announcement on %s: it names lane %q, incarnation %q", id.CommitSubject(), a.Lane, a.Incarnation)
	}
	return a, nil
}
