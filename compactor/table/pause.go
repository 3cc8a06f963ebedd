package table

import (
	"context"
	"math/rand/v2"
	"time"
)

// Pauses between tries: from 20 ms, doubling to 2 s.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
)

// pause waits between tries, longer each time. It has jitter: committers that
// collided once would do so again.
type pause struct{ n int }

// wait returns an error when ctx ends.
func (p *pause) wait(ctx context.Context) error {
	d := min(firstPause<<min(p.n, 10), lastPause)
	p.n++
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return ctx.Err()
	}
}
