// Bench measures Spillway side by side with the limits that JetStream and
// SeaweedFS set on the same machine in the same run, prints a table and writes
// bench/latest.json. Everything is measured several times; the medians count.
//
// Megabytes are 10^6 bytes of record values; keys and frames are not counted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/infra/rig"
)

// benchmark is one measurement. It is run once a run, in the order of the list,
// and may give several rows, whose names start with its own.
type benchmark struct {
	name string
	run  func(context.Context, *lab) ([]Row, error)
	full bool // it needs the large data, unless it has to be quick
}

// benchmarks are all that there are. Later ones join here. The limits come first,
// since others are compared with them.
var benchmarks = []benchmark{
	{name: "limit", run: measureLimits},
	{name: "ingest/1KiB/random", run: throughput(1024, false)},
	{name: "ingest/1KiB/flights", run: throughput(1024, true)},
	{name: "ingest/100B/random", run: throughput(100, false)},
	{name: "ingest/100B/flights", run: throughput(100, true)},
	{name: "latency/stored/1000rps", run: measureLatency},
	{name: "edits/10000rps", run: measureEdits(10_000)},
	{name: "edits/flood", run: measureEdits(rate.Inf)},
	{name: "planner", run: measurePlanner},
	{name: "segments/500", run: measureWide},
	{name: "topics/1000", run: measureMany},
	{name: "refs", run: measureRefs},
	{name: "backfill", run: measureBackfill, full: true},
	{name: "backfill/live", run: measureBackfillLive, full: true},
	{name: "compact", run: measureCompact, full: true},
	{name: "compact/commit", run: measureCommits},
}

// options are the flags.
type options struct {
	runs  int
	quick bool
	large int
	only  *regexp.Regexp
	out   string
	cfg   rig.Config
}

func main() { rig.Main(program) }

func program(ctx context.Context) int {
	var o options
	var only string
	flag.IntVar(&o.runs, "runs", 3, "how often everything is measured")
	flag.BoolVar(&o.quick, "quick", false, "one run with little data, to see that it works")
	flag.StringVar(&only, "run", "", "only benchmarks whose names match this expression, and the limits")
	flag.IntVar(&o.large, "large", fewObjects, "how many distinct objects of 64 MiB the 160 references to such are about, in refs")
	flag.StringVar(&o.out, "out", "bench/latest.json", "where the results go; empty: nowhere")
	flag.StringVar(&o.cfg.Dir, "dir", "", "folder of the stack, kept afterwards; a temporary one by default")
	flag.StringVar(&o.cfg.Bin, "bin", "bin/spillway", "the spillway binary")
	verbose := flag.Bool("v", false, "show what the stack logs")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if o.large < fewObjects || o.large > bulkRefs {
		fmt.Fprintf(os.Stderr, "-large %d: want %d to %d\n", o.large, fewObjects, bulkRefs)
		return 2
	}
	if o.quick {
		o.runs = 1
	}
	if *verbose {
		o.cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

// wants tells whether a benchmark is to run. The limits always are.
func (o options) wants(b benchmark) bool { return b.name == "limit" || o.only.MatchString(b.name) }

// lacking is an error if large data are needed that are not there: what needs them
// fails, and others tells whether there is anything else to measure.
func (o options) lacking() (others bool, err error) {
	for _, b := range benchmarks {
		switch {
		case b.name == "limit" || !o.wants(b):
		case !b.full || o.quick:
			others = true
		default:
			_, err = rig.FullData()
		}
	}
	if err != nil {
		err = fmt.Errorf("backfills and compaction cannot be measured, so this FAILS: %w (-quick takes a sample)", err)
	}
	return others, err
}

func run(ctx context.Context, o options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 45*time.Minute)
	defer cancel()
	others, lacking := o.lacking()
	if lacking != nil && !others {
		return lacking
	}
	if lacking != nil {
		fmt.Fprintln(os.Stderr, "bench:", lacking)
	}
	l, err := openLab(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	var all [][]Row
	for i := range o.runs {
		rows, err := l.once(ctx, i, func(b benchmark) bool { return o.wants(b) && (!b.full || lacking == nil) })
		if err != nil {
			return err
		}
		all = append(all, rows)
	}
	rows := medians(all)
	printTable(os.Stdout, rows)
	if o.out != "" {
		if err := writeJSON(o.out, rows); err != nil {
			return err
		}
		fmt.Printf("\nwritten to %s\n", o.out)
	}
	return errors.Join(faults(rows), lacking)
}
