package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/topic"
)

// The planner's policy: as by default, but with a target that this load exceeds,
// and times in which one can wait for it.
const (
	targetRecords = 4000
	policy        = `target_records: 4000
short: 2s
long: 4s
cool_down: 8s
cap: 8
`
	period = "500ms"
)

func (d *demo) startPlanner() (err error) {
	d.planner, err = d.env.StartPlanner("--policy", d.policy, "--period", period)
	return err
}

// until waits until something is so, and tells of edits and ended processes
// meanwhile.
func (d *demo) until(ctx context.Context, what string, so func() (bool, error)) error {
	for {
		if err := d.news(ctx); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if ok, err := so(); ok || err != nil {
			return err
		}
		for _, p := range []*rig.Process{d.worker, d.planner} {
			select {
			case <-p.Done():
				return fmt.Errorf("wait until %s: %w", what, p.Err())
			default:
			}
		}
		if err := rig.Pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
}

// news tells of edits that have been made.
func (d *demo) news(ctx context.Context) error {
	edits, err := d.env.Edits(ctx, topicName, d.epoch+1)
	if err != nil {
		return err
	}
	for _, l := range edits {
		d.epoch = l.Epoch
		reason, ok := rig.Planned(l.Edit)
		if !ok {
			return fmt.Errorf("epoch %d: a %s that no planner decided on: %s", l.Epoch, l.Edit.Kind, l.Edit.Reason)
		}
		switch l.Edit.Kind {
		case topic.EditSplit:
			d.splits++
		case topic.EditMerge:
			d.merges++
		}
		d.step("the planner makes a %s: %d became %d. Its reason:", l.Edit.Kind, len(l.Edit.Parents), len(l.Edit.Children))
		d.say("%s", reason)
	}
	return nil
}

// mergeBack waits until the planner has merged everything back.
func (d *demo) mergeBack(ctx context.Context) error {
	d.say("There is no load any more: the planner merges what it split, once the cool-down of 8 s")
	d.say("(default: 10 min) is over.")
	t, err := d.env.Store.Topic(ctx, topicName)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	return d.until(wait, "one segment is left", func() (bool, error) {
		l, err := t.Layout(ctx)
		return !l.Pending && len(l.Live) == 1 && l.Epoch == d.epoch, err
	})
}

// showRiver draws what became of the topic's key space, in the terminal and as a
// picture.
func (d *demo) showRiver(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(d.svg), 0o755); err != nil {
		return fmt.Errorf("make a folder for the picture: %w", err)
	}
	file, err := filepath.Abs(d.svg)
	if err != nil {
		return err
	}
	if _, err := d.env.CLI(ctx, "segments", topicName, "--svg", file, "--policy", d.policy); err != nil {
		return err
	}
	d.step("draw the river of segments (spillway segments %s --tree): the key space from left to right, time downwards", topicName)
	out, err := d.env.CLI(ctx, "segments", topicName, "--tree")
	d.sayAll(out)
	d.say("")
	d.say("The same as a picture, with the load (--svg), to be opened in a browser: %s", file)
	return err
}
