package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/backfill"
)

// backfillRate is how many rows a second the backfill takes in until it is killed: so
// it is under way for as long as it takes another worker to take over.
const backfillRate = 1200

// startBackfill has two files become records of the topic too.
func (d *demo) startBackfill(ctx context.Context) error {
	lines, err := rig.FlightsFile()
	if err != nil {
		return err
	}
	sample, err := rig.SampleBulk(1)
	if err != nil {
		return err
	}
	d.step("beside that, backfill two files of flights into the same topic (spillway backfill run), not through NATS; %s rows/s, "+
		"slow for the sake of this demo", humanize.Comma(backfillRate))
	d.backfill, err = d.env.Start("backfill", "backfill", "backfill", "run", topicName, lines, sample.Path,
		"--key", rig.KeyColumn, "--rate-rows", strconv.Itoa(backfillRate))
	if err != nil {
		return err
	}
	t, err := d.env.Store.Topic(ctx, topicName)
	if err != nil {
		return err
	}
	d.jobs = backfill.Of(d.env.Store, t)
	return d.until(ctx, "there is a job", func() (bool, error) {
		for found, err := range d.jobs.List(ctx) {
			if err = errors.Join(err, found.Err); err == nil {
				d.job, err = d.jobs.Load(ctx, found.ID)
			}
			return err == nil, err
		}
		return false, d.backfillEnded()
	})
}

// killBackfill ends the backfill with SIGKILL once it has taken something in.
func (d *demo) killBackfill(ctx context.Context) error {
	var p backfill.Progress
	err := d.until(ctx, "the backfill commits", func() (_ bool, err error) {
		p, err = d.jobs.Progress(ctx, d.job)
		return p.Rows > 0, errors.Join(err, d.backfillEnded())
	})
	if err != nil {
		return err
	}
	if d.backfill.Kill() {
		return d.backfill.Err()
	}
	if p, err = d.jobs.Progress(ctx, d.job); err != nil { // final, now that it is gone
		return err
	}
	d.killedAt = p.Rows
	d.step("kill -9 the backfill; what its checkpoints say (spillway backfill describe) is what is in files:")
	return d.describe(ctx)
}

// resumeBackfill goes on with the job, as fast as can be, to its end.
func (d *demo) resumeBackfill(ctx context.Context) (err error) {
	d.step("resume it, without a limit (spillway backfill resume)")
	if d.backfill, err = d.env.StartBackfill(topicName, d.job.ID, "--rate-rows", "0"); err != nil {
		return err
	}
	err = d.until(ctx, "the backfill is done", func() (bool, error) {
		s, err := d.jobs.State(ctx, d.job.ID)
		if err != nil || s.Phase == backfill.Done {
			return true, err
		}
		return false, d.backfillEnded()
	})
	if err != nil {
		return err
	}
	return d.describe(ctx)
}

// describe shows what a job has done.
func (d *demo) describe(ctx context.Context) error {
	out, err := d.env.CLI(ctx, "backfill", "describe", topicName, d.job.ID)
	d.sayAll(out)
	return err
}

// backfillEnded is an error if the backfill has ended.
func (d *demo) backfillEnded() error {
	select {
	case <-d.backfill.Done():
		return d.backfill.Err()
	default:
		return nil
	}
}

// fileRows are the rows of the two files, less those that were read back.
type fileRows struct {
	left map[string]int // how many there still are, by key and value
	read int
	bad  error // the first problem
}

func newFileRows() (*fileRows, error) {
	f := &fileRows{left: map[string]int{}}
	flights, err := rig.Flights()
	if err != nil {
		return nil, err
	}
	for _, l := range flights {
		f.left[l.Key+" "+string(l.Value)]++
	}
	sample, err := rig.SampleBulk(1)
	if err != nil {
		return nil, err
	}
	return f, sample.Each(func(key string, value []byte) error {
		f.left[key+" "+string(value)]++
		return nil
	})
}

// add takes a row that was read back.
func (f *fileRows) add(r rig.Read) {
	f.read++
	row := r.Key + " " + string(r.Value)
	if f.left[row]--; f.left[row] < 0 && f.bad == nil {
		f.bad = fmt.Errorf("this is there too often, or was in neither file: %.200s %s", row, r.Rejected)
	}
}

// problem tells what is wrong after all rows were read back.
func (f *fileRows) problem() error {
	missing := 0
	for _, n := range f.left {
		missing += max(n, 0)
	}
	if missing > 0 {
		return errors.Join(f.bad, fmt.Errorf("%d rows of the files are lost", missing))
	}
	return f.bad
}
