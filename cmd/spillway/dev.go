package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack"
)

func (a *app) dev() *cobra.Command {
	var dir, metrics string
	var noWorkers, natsChild bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole stack on this machine: NATS, SeaweedFS and the functions",
		Long: `Starts a NATS server with JetStream, a SeaweedFS ("weed mini") and an ingest
worker, all on loopback, and keeps their data in a folder between runs. The
folder's stack.json tells other commands where everything is (--stack). Topics
that messages name are made by themselves here. Ends at Ctrl-C or SIGTERM.`,
		Example: "  spillway dev\n  spillway dev --dir /var/tmp/stack --metrics 127.0.0.1:9090",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			conf := devstack.Config{Dir: dir, Logger: a.log, Bucket: a.cfg.Bucket}
			if natsChild {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				conf.NATSChild = []string{self, "devstack-nats"}
			}
			return a.runDev(cmd.Context(), conf, metrics, !noWorkers)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultStack, "folder for data, logs and stack.json")
	cmd.Flags().StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	cmd.Flags().BoolVar(&noWorkers, "no-workers", false, "only the servers; run the functions yourself")
	cmd.Flags().BoolVar(&natsChild, "nats-child", false, "run the NATS server in a process of its own")
	return cmd
}

func (a *app) runDev(ctx context.Context, conf devstack.Config, metrics string, workers bool) error {
	a.note("starting NATS and SeaweedFS in %s (about 5 s; 16 s when it holds data)", conf.Dir)
	stack, err := devstack.Start(ctx, conf)
	if err != nil {
		return startError(err)
	}
	defer func() {
		if err := stack.Close(context.WithoutCancel(ctx)); err != nil {
			a.log.Error("the stack did not stop cleanly", "err", err)
		}
	}()
	i := stack.Info
	a.note("ready\n  NATS   %s\n  filer  http://%s/buckets/%s/\n  S3     %s\n  folder %s\nstop with Ctrl-C", i.NATS, i.Filer, i.Bucket, i.S3.URL, i.Dir)
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-stack.Died():
			cancel(err)
		case <-run.Done():
		}
	}()
	a.cfg.Stack = conf.Dir
	if workers {
		err = a.ingest(run, functions.IngestOptions{AutoCreate: true}, metrics)
	} else {
		<-run.Done()
	}
	if died := context.Cause(run); died != nil && !errors.Is(died, context.Canceled) {
		return died
	}
	return err
}

func startError(err error) error {
	var locked *devstack.LockedError
	var other *devstack.VersionError
	var weed *devstack.WeedNotFoundError
	var corrupt *devstack.CorruptError
	if errors.As(err, &locked) || errors.As(err, &other) || errors.As(err, &weed) || errors.As(err, &corrupt) {
		return &functions.ConfigError{Err: err}
	}
	return &functions.RetryError{Err: err}
}

// nats runs the stack's NATS server in this process; devstack calls it.
func (a *app) nats() *cobra.Command {
	return &cobra.Command{
		Use: "devstack-nats SPEC", Hidden: true, Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return devstack.RunNATS(cmd.Context(), args[0]) },
	}
}

func (a *app) runCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Run one function, as it is deployed", Args: usage(cobra.NoArgs), RunE: group}
	var o functions.IngestOptions
	var metrics string
	ingest := &cobra.Command{
		Use:   "ingest",
		Short: "Move messages from a lane into segments",
		Long: `Runs an ingest worker: resident, or with --once until the lane is drained or the
deadline is near. One worker reads a lane at a time; others wait for its lease
and take over within 10 s when it dies. SIGTERM finishes the current flush.

With --once it prints one line of JSON and exits 0 when the lane is drained (or
another worker is at it), 75 when work is left or a server is not available, 78
when the setup is wrong.`,
		Example: "  spillway run ingest --nats nats://nats:4222 --filer filer:8888\n  spillway run ingest --once --deadline 55s",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Deadline < 0 || o.Deadline > 0 && !o.Once {
				return &functions.UsageError{Err: errors.New("--deadline is a positive time and goes with --once")}
			}
			return a.ingest(cmd.Context(), o, metrics)
		},
	}
	f := ingest.Flags()
	f.BoolVar(&o.Once, "once", false, "end when the lane is drained")
	f.DurationVar(&o.Deadline, "deadline", 0, "with --once: be done by then, such as 55s")
	f.StringVar(&o.Group, "group", "default", "lane group")
	f.DurationVar(&o.TrimLag, "trim-lag", 0, "how long committed messages stay in the lane (default 10m)")
	f.BoolVar(&o.AutoCreate, "auto-create", false, "make topics that messages name")
	f.Int64Var(&o.LaneBytes, "lane-bytes", 0, "size of the lane if it is made now (default 1 GiB)")
	f.StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	cmd.AddCommand(ingest)
	return cmd
}

// memoryLimit is the soft limit of a worker's heap, below the 256 MiB that it is
// to stay under. GOMEMLIMIT overrides it.
const memoryLimit = 200 << 20

func (a *app) ingest(ctx context.Context, o functions.IngestOptions, metrics string) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	e, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer e.close()
	if err := selfCheck(ctx, e.store); err != nil {
		return err
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	stop, err := a.serveMetrics(metrics, reg)
	if err != nil {
		return err
	}
	defer stop()
	sum, err := functions.Ingest(ctx, functions.Deps{NATS: e.nc, Store: e.store, Logger: a.log, Metrics: reg}, o)
	if o.Once {
		return errors.Join(err, a.json(sum))
	}
	a.log.Info("ingest ended", "messages", sum.Messages, "records", sum.Committed, "chunks", sum.Chunks,
		"rejected", sum.Rejected, "duplicates", sum.Duplicates, "conflicts", sum.Conflicts)
	return err
}

func (a *app) serveMetrics(addr string, reg *prometheus.Registry) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, &functions.ConfigError{Err: err}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go srv.Serve(l)                        //nolint:errcheck // ends with Close
	return func() { _ = srv.Close() }, nil // the process ends
}
