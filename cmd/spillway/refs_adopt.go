package main

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/refcheck"
	"github.com/spillway-mq/spillway/internal/topic"
)

// adoptOptions of one call.
type adoptOptions struct {
	urls                      []string
	key                       string
	hasKey                    bool
	unpinned, orphans, dryRun bool
	olderThan                 time.Duration
}

func (a *app) refsAdopt() *cobra.Command {
	var o adoptOptions
	cmd := &cobra.Command{
		Use: "adopt TOPIC [URL...]", Short: "Pin unpinned objects, and publish records of orphaned uploads",
		Long: `Takes what "refs check" shows as unpinned or orphaned under the topic's care: puts a
pin on each valid object of its records that has none, and publishes a record of each
upload that no record names, whose payload it is (--key: with this key). With URLs it
deals with those objects only; --unpinned and --orphans choose one of the two.

It waits until all that is in the lanes is in files, publishes, and waits until that
is in files as well. So each orphan gets one record, also when this is called again.
Of several calls at once one publishes, where the objects are on Spillway's own filer;
elsewhere each may. A call that is killed leaves nothing to be mended: 10 minutes
later another one goes on. Each object that is dealt with is a line, or with --json an
object, and the sums come last.

Exit codes: 0 done, 1 or 2 something could not be adopted, for the reason shown, 75
try again, 78 not with these settings.`,
		Example: "  spillway refs adopt images\n  spillway refs adopt images --orphans --key recovered --dry-run\n  spillway refs adopt images s3://photos/spillway/images/0f3c…",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.urls, o.hasKey = args[1:], cmd.Flags().Changed("key")
			if err := errors.Join(topic.CheckName(args[0]), notNegative(o.olderThan), checkURLs(o.urls)); err != nil {
				return &functions.UsageError{Err: err}
			}
			if !o.unpinned && !o.orphans {
				o.unpinned, o.orphans = true, true
			}
			return a.adoptRefs(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.key, "key", "", "key of the records that are published")
	f.BoolVar(&o.unpinned, "unpinned", false, "only objects that are not pinned")
	f.BoolVar(&o.orphans, "orphans", false, "only uploads that no record names")
	f.DurationVar(&o.olderThan, "older-than", time.Hour, "how old an upload is before it is adopted; the producer of a younger one may be about to publish")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done")
	return cmd
}

func checkURLs(urls []string) error {
	var errs []error
	for _, url := range urls {
		_, err := ref.Parse(url)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (a *app) adoptRefs(ctx context.Context, name string, o adoptOptions) error {
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
	objects, err := a.objects(ctx)
	if err != nil {
		return err
	}
	p, err := client.NewProducer(e.nc, client.Options{
		Ack: client.Stored, RetryBudget: min(a.cfg.Timeout, maxBudget), Objects: objects, Logger: a.log,
	})
	if err != nil {
		return err
	}
	defer p.Close(context.WithoutCancel(ctx)) //nolint:errcheck // each record's outcome was waited for
	show := &deeds{app: a}
	if len(o.urls) == 0 {
		show.fine = func(why error) bool { return errors.Is(why, refcheck.ErrNoOrphan) }
	}
	var pending tally
	checker.OlderThan = o.olderThan
	adopter := &refcheck.Adopter{
		Checker: checker, Unpinned: o.unpinned, Orphans: o.orphans,
		Call:    refcheck.Call{URLs: o.urls, DryRun: o.dryRun, Tell: show.tell, Settle: func(ctx context.Context) error { return a.settle(ctx, e, name) }},
		Pending: func(f refcheck.Finding) { pending.add(explainRefs(f.Err)) },
		Publish: func(ctx context.Context, f refcheck.Finding) (func(context.Context) error, error) {
			return a.publishUpload(ctx, p, name, f, o)
		},
	}
	if err := adopter.Adopt(ctx); err != nil {
		return whileThere(ctx, e.store, checker.Topic, err)
	}
	if err := show.end(name, o.dryRun); err != nil {
		return err
	}
	return functions.Worst(show.bad.err("could not be adopted"), pending.err("references could not be looked at"))
}

// publishUpload publishes the record of an upload.
func (a *app) publishUpload(ctx context.Context, p *client.Producer, name string, f refcheck.Finding, o adoptOptions) (func(context.Context) error, error) {
	r := client.Record{}
	if o.hasKey {
		r.Key = []byte(o.key)
	}
	pending, err := p.Submit(ctx, name, client.Reference{URL: f.URL, SHA256: digestOf(f.URL)}, r)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, a.cfg.Timeout+ackGrace)
		defer cancel()
		_, err := pending.Wait(ctx)
		return err
	}, nil
}

// digestOf is the SHA-256 that the name of an upload says; nil: it says none.
func digestOf(url string) []byte {
	sum, err := hex.DecodeString(url[strings.LastIndexByte(url, '/')+1:])
	if err != nil || len(sum) != 32 {
		return nil
	}
	return sum
}
