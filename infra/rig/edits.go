package rig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Around how many live segments Editor keeps a topic.
const fewLive, manyLive = 2, 6

// Editor splits, merges and rolls a topic at random, each time with a `spillway
// edit` process of its own, and kills some of these with SIGKILL in the middle.
type Editor struct {
	Env   *Env
	Topic string
	Every time.Duration
	// Killed is the share of edits that are killed; somebody else finishes them.
	Killed float64
	Rand   *rand.Rand

	Edits, Kills, Unavailable atomic.Int64 // done; killed; refused because something was down
}

// Run edits until the context ends. It fails if an edit fails otherwise than by
// being killed, or because a server is down.
func (e *Editor) Run(ctx context.Context) error {
	for Pause(ctx, e.Every) == nil {
		args, err := e.random(ctx)
		if err != nil {
			e.Unavailable.Add(1)
			continue
		}
		if err := e.edit(ctx, args); err != nil {
			return err
		}
	}
	return nil
}

// random is the arguments of an edit.
func (e *Editor) random(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	t, err := e.Env.Store.Topic(ctx, e.Topic)
	if err != nil {
		return nil, err
	}
	l, err := t.Layout(ctx)
	if err != nil {
		return nil, err
	}
	n := len(l.Live)
	at := e.Rand.IntN(n)
	id := func(i int) string { return string(l.Live[i].ID) }
	switch roll := e.Rand.IntN(10); {
	case roll == 0:
		return []string{"edit", "roll", e.Topic, id(at)}, nil
	case n <= fewLive || n < manyLive && roll < 5:
		return []string{"edit", "split", e.Topic, id(at), "--at", fmt.Sprint(e.cut(l.Live[at].Range))}, nil
	case at+1 < n:
		return []string{"edit", "merge", e.Topic, id(at), id(at + 1)}, nil
	}
	return []string{"edit", "merge", e.Topic, id(at - 1), id(at)}, nil
}

func (e *Editor) cut(r topic.Range) uint32 { return r.Lo + 1 + e.Rand.Uint32N(max(1, r.Size()-1)) }

// edit runs one edit to its end, or kills it after a while.
func (e *Editor) edit(ctx context.Context, args []string) error {
	mine, kill := context.WithCancel(ctx)
	defer kill()
	doomed := e.Rand.Float64() < e.Killed
	if doomed {
		after := 10*time.Millisecond + time.Duration(e.Rand.Int64N(int64(150*time.Millisecond)))
		defer time.AfterFunc(after, kill).Stop()
	}
	_, err := e.Env.CLI(mine, args...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		e.Edits.Add(1)
	case ctx.Err() != nil:
	case doomed && mine.Err() != nil:
		e.Kills.Add(1)
	case errors.As(err, &exit) && exit.ExitCode() == functions.ExitRetry:
		e.Unavailable.Add(1)
	case errors.As(err, &exit) && exit.ExitCode() == functions.ExitUsage:
		// An edit that was left half-done is finished first, and may have ended
		// the segments that were meant.
	default:
		return fmt.Errorf("an edit failed: %w", err)
	}
	return nil
}
