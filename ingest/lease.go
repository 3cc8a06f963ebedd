package ingest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
)

// Times of a lease. A holder that is killed is replaced after at most leaseTTL
// and one look: 6 s.
const (
	leaseRenew  = time.Second
	leaseTTL    = 5 * time.Second
	leaseBucket = "spillway-leases"
)

// ErrLeaseLost ends a worker whose lease somebody else took.
var ErrLeaseLost = errors.New("somebody else took the lane's lease")

// Lease keeps all but one worker away from a lane. It saves work; nothing is
// unsafe without it. A contender takes it when it has not seen it renewed for
// leaseTTL by its own clock, so clocks need not agree.
type Lease struct {
	kv     jetstream.KeyValue
	key    string
	holder string
	rev    uint64
	logger *slog.Logger
}

type leaseValue struct {
	Holder string    `json:"holder"`
	At     time.Time `json:"at"`
}

// Contender wants the lease of a lane. Holder names it.
type Contender struct {
	JS     jetstream.JetStream
	ID     lane.ID
	Holder string
	Logger *slog.Logger
	// Reserve, if not nil, is asked before the lease is taken; if it says no, the
	// lease is left to others for now. Unreserve is told that it was not got.
	Reserve   func() bool
	Unreserve func()
}

func (c Contender) reserve() bool { return c.Reserve == nil || c.Reserve() }

func (c Contender) unreserve() {
	if c.Unreserve != nil {
		c.Unreserve()
	}
}

// Acquire waits until the lane's lease is ours or ctx ends; then it returns who
// holds it.
func Acquire(ctx context.Context, js jetstream.JetStream, id lane.ID, holder string, logger *slog.Logger) (*Lease, string, error) {
	return Contender{JS: js, ID: id, Holder: holder, Logger: logger}.Acquire(ctx)
}

// leases opens the bucket of leases, making it if it is missing.
func leases(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: leaseBucket, Description: "who reads which lane", History: 1})
	if errors.Is(err, jetstream.ErrBucketExists) { // with other settings: an operator has changed it
		kv, err = js.KeyValue(ctx, leaseBucket)
	}
	return kv, err
}

// Acquire waits until the lease is ours or ctx ends; then it returns who holds
// it.
func (c Contender) Acquire(ctx context.Context) (*Lease, string, error) {
	kv, err := leases(ctx, c.JS)
	if err != nil {
		return nil, "", fmt.Errorf("lease of lane %s: %w", c.ID, err)
	}
	l := &Lease{kv: kv, key: leaseKey(c.ID), holder: c.Holder, logger: c.Logger}
	var seen uint64
	var since time.Time
	var other leaseValue
	for {
		e, err := kv.Get(ctx, l.key)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			other = leaseValue{}
			if !c.reserve() {
				break
			}
			if l.rev, err = kv.Create(ctx, l.key, l.value()); err == nil {
				return l, "", nil
			}
			c.unreserve()
		case err == nil && e.Revision() != seen:
			seen, since = e.Revision(), time.Now()
			_ = json.Unmarshal(e.Value(), &other) // only to say who it is
		case err == nil && time.Since(since) >= leaseTTL && c.reserve():
			if l.rev, err = kv.Update(ctx, l.key, l.value(), seen); err == nil {
				c.Logger.Info("took over the lane's lease", "from", other.Holder)
				return l, "", nil
			}
			c.unreserve()
		}
		select {
		case <-ctx.Done():
			return nil, other.Holder, ctx.Err()
		case <-time.After(leaseRenew / 2):
		}
	}
}

// Hold renews the lease until ctx ends. ErrLeaseLost: somebody else has it.
// Failures to reach the server are no loss; they are tried again.
func (l *Lease) Hold(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(leaseRenew):
		}
		rev, err := l.kv.Update(ctx, l.key, l.value(), l.rev)
		switch {
		case err == nil:
			l.rev = rev
			continue
		case ctx.Err() != nil:
			return nil //nolint:nilerr // told to end; the renewal does not matter
		}
		e, getErr := l.kv.Get(ctx, l.key)
		var v leaseValue
		switch {
		case errors.Is(getErr, jetstream.ErrKeyNotFound):
			if rev, err := l.kv.Create(ctx, l.key, l.value()); err == nil {
				l.rev = rev
			}
		case getErr != nil:
			l.logger.Warn("could not renew the lane's lease", "err", err)
		case json.Unmarshal(e.Value(), &v) == nil && v.Holder == l.holder:
			l.rev = e.Revision() // our own renewal, whose reply was lost
		default:
			return fmt.Errorf("%w: %s", ErrLeaseLost, v.Holder)
		}
	}
}

// Release gives the lease up, so that the next worker need not wait.
func (l *Lease) Release(ctx context.Context) {
	if err := l.kv.Delete(ctx, l.key, jetstream.LastRevision(l.rev)); err != nil {
		l.logger.Debug("could not release the lane's lease", "err", err)
	}
}

func (l *Lease) value() []byte {
	b, _ := json.Marshal(leaseValue{l.holder, time.Now().UTC()})
	return b
}

// Holder is who has a lane's lease, as it was last renewed; "" if nobody has. One
// that died keeps it until somebody else wants it.
func Holder(ctx context.Context, js jetstream.JetStream, id lane.ID) (holder string, renewed time.Time, err error) {
	kv, err := js.KeyValue(ctx, leaseBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return "", renewed, nil
	}
	if err != nil {
		return "", renewed, fmt.Errorf("lease of lane %s: %w", id, err)
	}
	e, err := kv.Get(ctx, leaseKey(id))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return "", renewed, nil
	}
	if err != nil {
		return "", renewed, fmt.Errorf("lease of lane %s: %w", id, err)
	}
	var v leaseValue
	_ = json.Unmarshal(e.Value(), &v) // only to say who it is
	return cmp.Or(v.Holder, "unknown"), e.Created(), nil
}

func leaseKey(id lane.ID) string { return "lane." + id.String() }
