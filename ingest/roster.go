package ingest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// forgetMember is after how long without a sign a member's entry is removed.
const forgetMember = time.Minute

// Roster counts the processes that read the lanes of a group, so that each takes
// its share of them. Each makes a sign every second; one of which none was seen
// for leaseTTL, by the clock of whoever counts, does not count. Nothing but even
// work rests on it. Members may be called concurrently.
type Roster struct {
	kv     jetstream.KeyValue
	group  string
	me     string
	logger *slog.Logger

	mu   sync.Mutex
	seen map[string]time.Time
}

// OpenRoster prepares to join a group's roster.
func OpenRoster(ctx context.Context, js jetstream.JetStream, group string, logger *slog.Logger) (*Roster, error) {
	if err := topic.CheckGroup(group); err != nil {
		return nil, err
	}
	kv, err := leases(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("roster of lane group %s: %w", group, err)
	}
	r := &Roster{kv: kv, group: group, logger: logger, seen: map[string]time.Time{}}
	r.me = r.key(filer.Token(10))
	return r, nil
}

func (r *Roster) key(member string) string { return "member." + r.group + "." + member }

// Members is how many processes are known to read the group now, this one
// included.
func (r *Roster) Members() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 1
	for key, at := range r.seen {
		if key != r.me && time.Since(at) < leaseTTL {
			n++
		}
	}
	return n
}

// Run makes signs and watches for others' until ctx ends, then leaves. A server
// that cannot be reached is tried again.
func (r *Roster) Run(ctx context.Context) {
	defer r.leave(ctx)
	for ctx.Err() == nil {
		if err := r.follow(ctx); err != nil && ctx.Err() == nil {
			r.logger.Warn("could not follow who else reads the lane group", "group", r.group, "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(leaseRenew):
		}
	}
}

func (r *Roster) follow(ctx context.Context) error {
	w, err := r.kv.Watch(ctx, r.key("*"))
	if err != nil {
		return err
	}
	defer w.Stop() //nolint:errcheck // the consumer vanishes by itself
	tick := time.NewTicker(leaseRenew)
	defer tick.Stop()
	for {
		if _, err := r.kv.PutString(ctx, r.me, ""); err != nil {
			return err
		}
		for signed := false; !signed; {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				signed = true
			case e, ok := <-w.Updates():
				if !ok {
					return fmt.Errorf("the watch has ended")
				}
				r.note(e)
			}
		}
		r.forget(ctx)
	}
}

// note takes a sign; nil says that all that were there have been told.
func (r *Roster) note(e jetstream.KeyValueEntry) {
	if e == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Operation() != jetstream.KeyValuePut {
		delete(r.seen, e.Key())
		return
	}
	r.seen[e.Key()] = time.Now()
}

// forget removes the entries of processes that died.
func (r *Roster) forget(ctx context.Context) {
	var dead []string
	r.mu.Lock()
	for key, at := range r.seen {
		if key != r.me && time.Since(at) > forgetMember {
			dead = append(dead, key)
			delete(r.seen, key)
		}
	}
	r.mu.Unlock()
	for _, key := range dead {
		if err := r.kv.Purge(ctx, key); err != nil {
			r.logger.Debug("could not remove a process from the roster", "group", r.group, "err", err)
		}
	}
}

func (r *Roster) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseRenew)
	defer cancel()
	if err := r.kv.Purge(ctx, r.me); err != nil {
		r.logger.Debug("could not leave the roster", "group", r.group, "err", err)
	}
}
