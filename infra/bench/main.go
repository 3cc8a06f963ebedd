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
}

// benchmarks are all that there are. Later ones join here. The limits come first,
// since others are compared with them.
var benchmarks = []benchmark{
	{"limit", measureLimits},
	{"ingest/1KiB/random", throughput(1024, false)},
	{"ingest/1KiB/flights", throughput(1024, true)},
	{"ingest/100B/random", throughput(100, false)},
	{"ingest/100B/flights", throughput(100, true)},
	{"latency/stored/1000rps", measureLatency},
	{"edits/10000rps", measureEdits(10_000)},
	{"edits/flood", measureEdits(rate.Inf)},
	{"planner", measurePlanner},
	{"segments/500", measureWide},
	{"topics/1000", measureMany},
	{"refs", measureRefs},
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

func run(ctx context.Context, o options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 45*time.Minute)
	defer cancel()
	l, err := openLab(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	var all [][]Row
	for i := range o.runs {
		rows, err := l.once(ctx, i, o)
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
	return faults(rows)
}
