package lane

import (
	"container/heap"
	"maps"
	"slices"
	"sync"
)

// book holds the known checkpoint of each incarnation of a lane and those who
// wait for higher ones. The zero value is ready. Callbacks run outside its lock.
type book struct {
	mu     sync.Mutex
	known  map[string]uint64
	queues map[string]*waiters
	closed bool
}

type waiter struct {
	incarnation string
	seq         uint64
	done        func(error)
	index       int // in its heap; -1: in none
}

// add registers w, or settles it at once and reports false.
func (b *book) add(w *waiter) bool {
	b.mu.Lock()
	settled, err := b.settle(w)
	b.mu.Unlock()
	if settled {
		w.done(err)
	}
	return !settled
}

func (b *book) settle(w *waiter) (settled bool, err error) {
	w.index = -1
	if cp, ok := b.known[w.incarnation]; ok && cp >= w.seq {
		return true, nil
	}
	if b.closed {
		return true, ErrWatchClosed
	}
	if b.queues == nil {
		b.queues = map[string]*waiters{}
	}
	q := b.queues[w.incarnation]
	if q == nil {
		q = &waiters{}
		b.queues[w.incarnation] = q
	}
	heap.Push(q, w)
	return false, nil
}

func (b *book) remove(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.index < 0 {
		return
	}
	q := b.queues[w.incarnation]
	heap.Remove(q, w.index)
	if q.Len() == 0 {
		delete(b.queues, w.incarnation)
	}
}

// advance notes a checkpoint and settles who waited for it. It reports whether
// somebody waits for another incarnation.
func (b *book) advance(incarnation string, checkpoint uint64) (others bool) {
	b.mu.Lock()
	if b.known == nil || len(b.known) > 16 { // resets are rare: this only bounds nonsense
		b.known = map[string]uint64{}
	}
	b.known[incarnation] = max(b.known[incarnation], checkpoint)
	var ready []*waiter
	if q := b.queues[incarnation]; q != nil {
		for q.Len() > 0 && (*q)[0].seq <= checkpoint {
			ready = append(ready, heap.Pop(q).(*waiter))
		}
		if q.Len() == 0 {
			delete(b.queues, incarnation)
		}
	}
	_, same := b.queues[incarnation]
	others = len(b.queues) > 1 || len(b.queues) == 1 && !same
	b.mu.Unlock()
	finish(ready, nil)
	return others
}

// incarnations lists those that somebody waits for.
func (b *book) incarnations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.queues))
}

// expire settles everybody who waits for one of the candidates, except current.
func (b *book) expire(candidates []string, current string) {
	b.mu.Lock()
	var late []*waiter
	for _, inc := range candidates {
		if q := b.queues[inc]; q != nil && inc != current {
			late = append(late, q.drain()...)
			delete(b.queues, inc)
		}
	}
	b.mu.Unlock()
	finish(late, ErrIncarnation)
}

func (b *book) close() {
	b.mu.Lock()
	b.closed = true
	var left []*waiter
	for inc, q := range b.queues {
		left = append(left, q.drain()...)
		delete(b.queues, inc)
	}
	b.mu.Unlock()
	finish(left, ErrWatchClosed)
}

func (b *book) waiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues) > 0
}

func finish(ws []*waiter, err error) {
	for _, w := range ws {
		w.done(err)
	}
}

// waiters is a heap by sequence.
type waiters []*waiter

func (h waiters) Len() int           { return len(h) }
func (h waiters) Less(i, j int) bool { return h[i].seq < h[j].seq }
func (h waiters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waiters) Push(x any) {
	w := x.(*waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waiters) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	w.index = -1
	return w
}

// drain empties the heap in any order.
func (h *waiters) drain() []*waiter {
	all := *h
	*h = nil
	for _, w := range all {
		w.index = -1
	}
	return all
}
