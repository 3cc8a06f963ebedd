package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/planner"
	"github.com/spillway-mq/spillway/planner/sim"
)

// simulateOptions of `plan --simulate`.
type simulateOptions struct {
	trace   string
	svg     string
	period  time.Duration
	flush   time.Duration
	roots   int
	verbose bool
}

func (o *simulateOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.trace, "simulate", "", "CSV file with a load to plan for in virtual time")
	f.StringVar(&o.svg, "svg", "", "with --simulate: draw load and segments as an SVG into this file, - for standard output and nothing else")
	f.DurationVar(&o.period, "period", planner.DefaultPeriod, "with --simulate: time between two runs of the planner")
	f.DurationVar(&o.flush, "flush-age", time.Second, "with --simulate: how long a record waits for its flush")
	f.IntVar(&o.roots, "roots", 1, "with --simulate: segments that the topic is made with")
	f.BoolVar(&o.verbose, "verbose", false, "with --simulate: list every edit with its reason")
}

// simulatePlan plays a trace, and tells how it went.
func (a *app) simulatePlan(ctx context.Context, o simulateOptions, p planner.Policy) error {
	if o.svg == "-" && (a.cfg.JSON || o.verbose) {
		return &functions.UsageError{Err: errors.New("--svg - writes a picture to standard output; --json and --verbose have no place there")}
	}
	trace, err := readTrace(o.trace)
	if err != nil {
		return err
	}
	r, err := sim.Run(ctx, trace, p, sim.Options{Period: o.period, FlushAge: o.flush, Roots: o.roots})
	if is[*sim.TraceError](err) || is[*sim.OptionError](err) {
		return &functions.UsageError{Err: fmt.Errorf("%s: %w", o.trace, err)}
	}
	if err != nil {
		return err
	}
	if o.svg != "" {
		if err := a.drawSimulation(r, o); err != nil || o.svg == "-" {
			return err
		}
	}
	if a.cfg.JSON {
		return a.json(r)
	}
	if o.verbose {
		if err := a.printf("%s\n", r.Log()); err != nil {
			return err
		}
	}
	if err := a.printf("%s", r.Text()); err != nil || o.svg == "" {
		return err
	}
	return a.printf("%-12s %s; open it in a browser\n", "picture", o.svg)
}

// drawSimulation draws how it went.
func (a *app) drawSimulation(r *sim.Result, o simulateOptions) error {
	var b bytes.Buffer
	if err := r.SVG(&b, filepath.Base(o.trace)); err != nil {
		return err
	}
	if o.svg == "-" {
		return a.printf("%s", b.Bytes())
	}
	if err := writeFile(o.svg, b.Bytes()); err != nil {
		return &functions.UsageError{Err: fmt.Errorf("write the picture: %w", err)}
	}
	return nil
}

// readTrace reads a trace from a file.
func readTrace(name string) (sim.Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return sim.Trace{}, &functions.UsageError{Err: err}
	}
	t, err := sim.Read(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return t, &functions.UsageError{Err: fmt.Errorf("%s: %w", name, err)}
	}
	return t, nil
}
