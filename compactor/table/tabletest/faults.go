package tabletest

import (
	"context"
	"sync"

	"github.com/apache/iceberg-go/catalog/rest"
)

// Errors as real catalogs give them.
var (
	// ErrLost is the answer to a request that had its effect, or will.
	ErrLost = rest.ErrCommitStateUnknown
	// ErrDown is an answer 503.
	ErrDown = rest.ErrServiceUnavailable
	// ErrConflict is an answer 409 to a commit.
	ErrConflict = rest.ErrCommitFailed
	// ErrForbidden is an answer 403.
	ErrForbidden = rest.ErrForbidden
)

// Op is one call of one client.
type Op struct {
	Name string // the method of table.Catalog
	N    int    // counts this client's calls, from 1
}

// Fault is what happens to one call. The zero Fault is none.
type Fault struct {
	// Before fails the call without any effect.
	Before error
	// After is returned instead of the result, once the effect has been had.
	After error
	// Late returns After (ErrLost when nil) at once. The effect comes with Arrive.
	Late bool
	// Hang lets the call wait until its context ends, without any effect.
	Hang bool
	// Then runs after the effect, before the call returns.
	Then func()
}

// Hook decides about a call before it happens. It may do things of its own, to
// happen before the call. It may be called concurrently.
type Hook func(Op) Fault

// injector gives calls the faults that a hook wants.
type injector struct {
	hook  Hook
	delay func(func()) // keeps an effect until it arrives

	mu sync.Mutex
	n  int
}

func (i *injector) fault(name string) Fault {
	if i.hook == nil {
		return Fault{}
	}
	i.mu.Lock()
	i.n++
	n := i.n
	i.mu.Unlock()
	return i.hook(Op{name, n})
}

// inject has the effect of a call, with its fault.
func inject[T any](ctx context.Context, i *injector, name string, effect func(context.Context) (T, error)) (T, error) {
	var none T
	f := i.fault(name)
	if err := ctx.Err(); err != nil {
		return none, err
	}
	// A request that has arrived has its effect, whether anybody still waits or not.
	arrived := context.WithoutCancel(ctx)
	switch {
	case f.Before != nil:
		return none, f.Before
	case f.Hang:
		<-ctx.Done()
		return none, ctx.Err()
	case f.Late:
		i.delay(func() { _, _ = effect(arrived) }) // nobody hears the reply
		if f.After == nil {
			return none, ErrLost
		}
		return none, f.After
	}
	v, err := effect(arrived)
	if f.Then != nil {
		f.Then()
	}
	if f.After != nil {
		return none, f.After
	}
	return v, err
}

// latecomers are effects that have not come yet.
type latecomers struct {
	mu   sync.Mutex
	late []func()
}

func (l *latecomers) add(effect func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = append(l.late, effect)
}

// Arrive lets the requests that were delayed (Fault.Late) have their effect.
func (l *latecomers) Arrive() {
	l.mu.Lock()
	late := l.late
	l.late = nil
	l.mu.Unlock()
	for _, effect := range late {
		effect()
	}
}
