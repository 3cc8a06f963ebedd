package main

import (
	"context"
	"errors"
	"os"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
)

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run", Short: "Run one function, as it is deployed", Args: usage(cobra.NoArgs), RunE: group,
		Long: `Runs one of the functions that move records: resident until SIGTERM, or once, as
a scheduler starts it. Functions keep no state; any number may run.`,
		Example: "  spillway run ingest --stack .spillway",
	}
	var o functions.IngestOptions
	var metrics string
	ingest := &cobra.Command{
		Use:   "ingest",
		Short: "Move messages from a lane into segments",
		Long: `Runs an ingest worker: resident, or with --once until the lane is drained or the
deadline is near. One worker reads a lane at a time; others wait for its lease
and take over within 10 s when it dies. SIGTERM finishes the current flush.

With --once it prints one line of JSON and exits 0 when the lane is drained, 75
when work is left, another worker had the lease all through --wait, or a server
is not available, and 78 when the setup is wrong. The default of --wait is enough
to take over from a worker that died.

The objects that records refer to are looked at where the S3 settings say (--s3 and
its kin). Without any of them, references are committed as pending, and looked at by
whoever follows them up: spillway run refs.

--metrics serves /metrics for Prometheus, and /healthz, which answers 503 with the
reason when the worker, the lane or the filer has been failing for 30 s.`,
		Example: "  spillway run ingest --nats nats://nats:4222 --filer filer:8888\n  spillway run ingest --once --deadline 55s",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Deadline < 0 || o.Deadline > 0 && !o.Once {
				return &functions.UsageError{Err: errors.New("--deadline is a positive time and goes with --once")}
			}
			if wait := cmd.Flags().Changed("wait"); wait && (o.Wait <= 0 || !o.Once) {
				return &functions.UsageError{Err: errors.New("--wait is a positive time and goes with --once")}
			}
			o.Buckets = a.allowedByDefault()
			return a.ingest(cmd.Context(), o, metrics)
		},
	}
	f := ingest.Flags()
	f.BoolVar(&o.Once, "once", false, "end when the lane is drained")
	f.DurationVar(&o.Deadline, "deadline", 0, "with --once: be done by then, such as 55s")
	f.DurationVar(&o.Wait, "wait", functions.DefaultWait, "with --once: how long to wait for a lease that another worker has")
	f.StringVar(&o.Group, "group", "default", "lane group")
	f.DurationVar(&o.TrimLag, "trim-lag", 0, "how long committed messages stay in the lane (default 10m)")
	f.BoolVar(&o.AutoCreate, "auto-create", false, "make topics that messages name")
	f.Int64Var(&o.LaneBytes, "lane-bytes", 0, "size of the lane if it is made now (default 1 GiB)")
	f.StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	cmd.AddCommand(ingest, a.runPlanner(), a.runRefs(), a.runS3Events(), a.runBackfillFunction(), a.runCompact())
	return cmd
}

// memoryLimit is the soft limit of a worker's heap, below the 256 MiB that it is
// to stay under: the pages of the program itself are some 70 MiB of those. GOMEMLIMIT
// overrides it.
const memoryLimit = 160 << 20

func (a *app) ingest(ctx context.Context, o functions.IngestOptions, metrics string) error {
	return a.withDeps(ctx, metrics, func(d functions.Deps) error {
		done, err := a.judge(ctx, &d)
		if err != nil {
			return err
		}
		defer done()
		return a.ingestFunction(ctx, d, o)
	})
}

func (a *app) ingestFunction(ctx context.Context, d functions.Deps, o functions.IngestOptions) error {
	sum, err := functions.Ingest(ctx, d, o)
	if sum.Messages == 0 {
		err = stopped(ctx, err)
	}
	if o.Once {
		return errors.Join(err, a.json(sum))
	}
	a.log.Info("ingest ended", "messages", sum.Messages, "records", sum.Committed, "chunks", sum.Chunks,
		"rejected", sum.Rejected, "duplicates", sum.Duplicates, "conflicts", sum.Conflicts)
	return err
}

// withDeps runs a function with what it works with, and serves its metrics and
// health meanwhile, if an address is given.
func (a *app) withDeps(ctx context.Context, metrics string, run func(functions.Deps) error) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	e, err := a.attach(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	defer e.close()
	if err := selfCheck(ctx, e.store); err != nil {
		return stopped(ctx, err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	d := functions.Deps{NATS: e.nc, Store: e.store, Logger: a.log, Metrics: reg, Health: ingest.NewHealth(nil)}
	stop, err := a.serveMetrics(metrics, reg, d.Health)
	if err != nil {
		return err
	}
	defer stop()
	return run(d)
}

// stopped drops an error that only says that the function was told to stop before
// it did anything.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
