package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack"
)

func (a *app) dev() *cobra.Command {
	var dir, metrics, policy string
	var noWorkers, natsChild bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole stack on this machine: NATS, SeaweedFS and the functions",
		Long: `Starts a NATS server with JetStream, a SeaweedFS ("weed mini"), an ingest worker, a
planner, a follow-up of references, a backfill and a compactor, all on loopback, and keeps
their data in a folder between runs. The folder's stack.json tells other commands where everything is
(--stack). Topics that messages name are made by themselves here, and may refer to objects in
the bucket of the setting s3-bucket, if there is one. Ends at Ctrl-C or SIGTERM.`,
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
			policies, err := loadPolicy(policy)
			if err != nil {
				return err
			}
			return a.runDev(cmd.Context(), conf, func(ctx context.Context) error {
				if noWorkers {
					<-ctx.Done()
					return nil
				}
				return a.devFunctions(ctx, functions.PlanOptions{Policies: policies}, metrics)
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultStack, "folder for data, logs and stack.json")
	cmd.Flags().StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	cmd.Flags().StringVar(&policy, "policy", "", "YAML file with the planner's policy")
	cmd.Flags().BoolVar(&noWorkers, "no-workers", false, "only the servers; run the functions yourself")
	cmd.Flags().BoolVar(&natsChild, "nats-child", false, "run the NATS server in a process of its own")
	return cmd
}

// runDev runs a stack, and what works on it until ctx ends or a server dies.
func (a *app) runDev(ctx context.Context, conf devstack.Config, work func(context.Context) error) error {
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
	a.note("ready\n  NATS   %s\n  filer  http://%s/buckets/%s/\n  S3     %s\n  tables %s\n  folder %s\nstop with Ctrl-C", i.NATS, i.Filer, i.Bucket, i.S3.URL, i.Catalog.URL, i.Dir)
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case err := <-stack.Died():
			cancel(err)
		case <-run.Done():
		}
	}()
	// The functions belong to this stack, whatever other settings say.
	a.cfg.NATS, a.cfg.Filer, a.cfg.FilerGRPC, a.cfg.Bucket = i.NATS, i.Filer, "", i.Bucket
	a.cfg.S3, a.cfg.S3AccessKey, a.cfg.S3SecretKey = i.S3.URL, i.S3.AccessKey, i.S3.SecretKey
	if a.cfg.Catalog != noCatalog {
		a.cfg.Catalog, a.cfg.Warehouse, a.cfg.CatalogCred = i.Catalog.URL, i.Catalog.Warehouse, ""
	}
	err = work(run)
	if died := context.Cause(run); is[*devstack.DiedError](died) {
		return &functions.RetryError{Err: died}
	}
	return err
}

// devFunctions runs all functions in this process until ctx ends.
func (a *app) devFunctions(ctx context.Context, plan functions.PlanOptions, metrics string) error {
	return a.withDeps(ctx, metrics, func(d functions.Deps) error {
		done, err := a.compacting(ctx, &d)
		if err != nil {
			return err
		}
		defer done()
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error {
			return a.ingestFunction(ctx, d, functions.IngestOptions{AutoCreate: true, Buckets: a.allowedByDefault()})
		})
		g.Go(func() error {
			_, err := functions.Plan(ctx, d, plan)
			return err
		})
		g.Go(func() error {
			_, err := functions.Refs(ctx, d, functions.RefsOptions{})
			return err
		})
		g.Go(func() error {
			_, err := functions.Backfill(ctx, d, functions.BackfillOptions{})
			return err
		})
		g.Go(func() error {
			_, err := functions.Compact(ctx, d, functions.CompactOptions{Grace: devGrace, Period: devPeriod})
			return err
		})
		return g.Wait()
	})
}

func startError(err error) error {
	if is[*devstack.LockedError](err) || is[*devstack.VersionError](err) || is[*devstack.WeedNotFoundError](err) || is[*devstack.CorruptError](err) {
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
