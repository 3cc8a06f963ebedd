package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/refcheck"
	"github.com/spillway-mq/spillway/internal/topic"
)

// dropOptions of one call.
type dropOptions struct {
	urls          []string
	olderThan     time.Duration
	force, dryRun bool
}

func (a *app) refsDrop() *cobra.Command {
	var o dropOptions
	cmd := &cobra.Command{
		Use: "drop TOPIC [URL...]", Short: "Delete orphaned uploads",
		Long: `Deletes the uploads that "refs check" shows as orphaned: objects below
spillway/<topic>/ that no record names, rejected ones included, and on which nobody
has a pin. With URLs it deals with those objects only. Each is deleted on condition
that its entry on the filer is as it was judged, so that a worker that pins it at that
moment keeps it. Deleted objects are lines of the output (with --json objects, and the
sums last), and of the log.

It waits until all that is in the lanes is in files, and reads all chunks if there is
anything to delete.

Only uploads older than --older-than are deleted. Producers name an upload of the same
value that is up to 12 hours old, and upload it again if it is older; so less than 13
hours takes --force, which is safe only while nobody publishes to the topic. --force
also deletes where no such condition is possible: at another endpoint than the filer's
own, and, by a delete marker, in buckets with versions. Nothing makes it delete what a
record names or a pin holds.

Exit codes: 0 done, 1 something that was asked for was not deleted, for the reason
shown, 2 wrong usage, 75 try again, 78 not with these settings.`,
		Example: "  spillway refs drop images --dry-run\n  spillway refs drop images\n  spillway refs drop images s3://photos/spillway/images/0f3c… --older-than 720h",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.urls = args[1:]
			if err := errors.Join(topic.CheckName(args[0]), notNegative(o.olderThan), checkURLs(o.urls), o.checkAge()); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.dropRefs(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.olderThan, "older-than", refcheck.DropAge, "how old an upload is before it is deleted")
	f.BoolVar(&o.force, "force", false, "also younger ones, and those that cannot be deleted on condition")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be deleted")
	return cmd
}

func (o *dropOptions) checkAge() error {
	if o.olderThan >= refcheck.SafeAge || o.force {
		return nil
	}
	return fmt.Errorf("--older-than %s: a producer may be about to name an upload that is younger than %s; with --force, while nobody publishes to the topic", o.olderThan, refcheck.SafeAge)
}

func (a *app) dropRefs(ctx context.Context, name string, o dropOptions) error {
	e, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer e.close()
	checker, done, err := a.checker(ctx, e.store, name)
	if err != nil {
		return err
	}
	defer done()
	show := &deeds{app: a}
	if len(o.urls) == 0 {
		show.fine = refcheck.Settled
	}
	checker.OlderThan = o.olderThan
	dropper := &refcheck.Dropper{
		Checker: checker, Force: o.force, Logger: a.log,
		Call: refcheck.Call{URLs: o.urls, DryRun: o.dryRun, Tell: show.tell, Settle: func(ctx context.Context) error { return a.settle(ctx, e, name) }},
	}
	if r := removerOf(e.store); r != nil {
		dropper.Remover = r
	}
	if store, ok := checker.Objects.(*object.Store); ok {
		dropper.Deleter = store
	}
	if err := dropper.Drop(ctx); err != nil {
		return whileThere(ctx, e.store, checker.Topic, err)
	}
	if err := show.end(name, o.dryRun); err != nil {
		return err
	}
	return show.bad.err("uploads were not deleted")
}
