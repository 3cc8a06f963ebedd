package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/backfill"
)

// demo is one run.
type demo struct {
	out   io.Writer
	begin time.Time
	steps int

	svg    string // the file for the picture
	policy string // the planner's, a file

	env     *rig.Env
	lane    *rig.Lane
	worker  *rig.Process
	planner *rig.Process
	ledger  *rig.Ledger

	backfill *rig.Process
	jobs     *backfill.Jobs
	job      backfill.Job
	killedAt uint64 // rows that it had taken in when it was killed
	rows     int    // of it that were read back

	epoch          uint64 // up to which edits have been told
	splits, merges int    // that planners made
	above          int    // records unacknowledged when the worker was killed
	read           int

	table  tableFiles
	engine string // that queried it
}

func (d *demo) step(format string, args ...any) {
	d.steps++
	fmt.Fprintf(d.out, "\n%5.1f s  %d. %s\n", time.Since(d.begin).Seconds(), d.steps, fmt.Sprintf(format, args...))
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "            %s\n", fmt.Sprintf(format, args...))
}

// sayAll shows what a command printed.
func (d *demo) sayAll(out []byte) {
	for line := range strings.Lines(strings.TrimSpace(string(out))) {
		d.say("%s", strings.TrimRight(line, "\n"))
	}
}

// startFunctions makes the topic, and starts what works on it.
func (d *demo) startFunctions(ctx context.Context) (err error) {
	d.step("create topic %s, keyed by what each record is published with; start an ingest worker and a planner", topicName)
	if _, err := d.env.CLI(ctx, "topic", "create", topicName, "--key", "header"); err != nil {
		return err
	}
	if d.worker, err = d.env.StartWorker(); err != nil {
		return err
	}
	if d.policy, err = d.env.Policy("policy", policy); err != nil {
		return err
	}
	if err := d.startPlanner(); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if d.lane, err = d.env.WaitLane(wait); err != nil {
		return err
	}
	d.say("the worker is process %d, the planner process %d; logs in %s", d.worker.PID(), d.planner.PID(), filepath.Dir(d.worker.Log))
	d.say("The topic's keys are hashed to slots 0 to 65535. One segment has them all now. The planner is to keep")
	d.say("each segment below %s records/s, few for the sake of this demo (default: 50,000).", humanize.Comma(targetRecords))
	return nil
}

func (d *demo) readBack(ctx context.Context) error {
	d.step("read everything back in another process (spillway read) and compare with the receipts")
	c := d.ledger.Compare()
	files, err := newFileRows()
	if err != nil {
		return err
	}
	err = d.env.ReadBack(ctx, topicName, func(r rig.Read) {
		if r.Number < 0 {
			files.add(r)
		} else {
			c.Add(r)
		}
	})
	if err != nil {
		return err
	}
	ok := c.Done()
	d.read, d.rows = c.Read, files.read
	d.say("%d records read: every acknowledged one is there, once, as it was sent, at the place that its receipt names, in the order of its key: %v", c.Read, ok)
	if !ok {
		return fmt.Errorf("%d problems:\n  %s", len(c.Problems)+c.More, strings.Join(c.Problems, "\n  "))
	}
	d.say("%d rows of the two files read: each is there as often as the files have it: %v", files.read, files.problem() == nil)
	return files.problem()
}

func (d *demo) verify(ctx context.Context) error {
	d.step("verify the topic from its files and the lane alone (spillway verify)")
	out, err := d.verified(ctx)
	d.say("%s", strings.TrimSpace(string(out)))
	return err
}

// verified is what `spillway verify` prints, which must be that all is well.
func (d *demo) verified(ctx context.Context) ([]byte, error) {
	out, err := d.env.CLI(ctx, "verify", topicName, "--json")
	if err != nil {
		return out, err
	}
	var report struct {
		OK      bool `json:"ok"`
		Records int  `json:"records"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return out, fmt.Errorf("spillway verify printed no report: %w", err)
	}
	if !report.OK || report.Records != d.read+d.rows {
		return out, fmt.Errorf("verify does not agree: ok %v, %d records", report.OK, report.Records)
	}
	return out, nil
}
