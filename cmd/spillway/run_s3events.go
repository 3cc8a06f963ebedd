package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (a *app) runS3Events() *cobra.Command {
	var o functions.S3EventsOptions
	var from, metrics string
	cmd := &cobra.Command{
		Use:   "s3-events",
		Short: "Publish a SeaweedFS bucket's events to a topic",
		Long: `Follows what happens to the objects of a bucket on the filer, and publishes it to a
topic as S3 event notifications, since SeaweedFS's S3 gateway sends none. An ingest
worker makes a record of each, which refers to the object. The topic has to allow the
bucket.

A relay that has run before goes on where it ended; the first one begins now, or
--since before. Notifications come at least once, and the worker drops those that
come twice. Any number of relays may run.

What the filer forgets when it is killed, the last minute, is found by listing the
bucket: when the relay starts, when the filer was away, and every --reconcile. Removals
that it forgets are not found.

Resident, it waits for as long as the lane takes nothing or the filer is away, and ends
with an error only if the topic or the bucket is not there. With --once it publishes
what has happened until now, prints one line of JSON, and exits 0 when that is done, 75
when a server is not available, or at the deadline, and 78 when the setup is wrong.`,
		Example: "  spillway run s3-events --from orders-in --topic orders\n" +
			"  spillway run s3-events --from orders-in/2026/ --topic orders --once --since 24h",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkS3EventsRun(&o, from, cmd.Flags().Changed("reconcile")); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.s3EventsFunction(cmd.Context(), o, metrics)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "bucket whose events are published, or bucket/prefix for the objects whose keys begin so")
	f.StringVar(&o.Topic, "topic", "", "topic that they are published to")
	f.DurationVar(&o.Since, "since", 0, "of the first relay: begin so long ago, such as 24h")
	f.DurationVar(&o.Reconcile, "reconcile", functions.DefaultReconcile, "resident: time between two listings")
	f.BoolVar(&o.Once, "once", false, "publish what has happened until now, then end")
	f.DurationVar(&o.Deadline, "deadline", 0, "with --once: be done by then, such as 55s")
	f.StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	return cmd
}

func checkS3EventsRun(o *functions.S3EventsOptions, from string, reconcile bool) error {
	entry, err := topic.ParseBucket(from)
	o.Bucket, o.Prefix, _ = strings.Cut(entry, "/")
	switch {
	case from == "" || o.Topic == "":
		return errors.New("give --from and --topic")
	case err != nil:
		return fmt.Errorf("--from: %w", err)
	case o.Once && reconcile:
		return errors.New("--reconcile is for a resident relay, --once lists the bucket once")
	case !o.Once && o.Deadline != 0:
		return errors.New("--deadline goes with --once")
	case o.Deadline < 0:
		return fmt.Errorf("--deadline %s: want a positive time", o.Deadline)
	case o.Since < 0:
		return fmt.Errorf("--since %s: want a positive time", o.Since)
	case o.Reconcile < time.Second:
		return fmt.Errorf("--reconcile %s: want 1s or more", o.Reconcile)
	}
	return nil
}

func (a *app) s3EventsFunction(ctx context.Context, o functions.S3EventsOptions, metrics string) error {
	return a.withDeps(ctx, metrics, func(d functions.Deps) error {
		sum, err := functions.S3Events(ctx, d, o)
		if o.Once {
			return errors.Join(err, a.json(sum))
		}
		a.log.Info("relay of S3 events ended", "published", sum.Published, "found", sum.Found, "retries", sum.Retries)
		return err
	})
}
