package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/expand"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verify"
)

func (a *app) verify() *cobra.Command {
	var filesOnly, counted bool
	cmd := &cobra.Command{
		Use:   "verify TOPIC",
		Short: "Prove from files and lanes that a topic is whole",
		Long: `Reads every file of a topic, and its messages that are still in the lane, and
checks that nothing is missing, doubled, out of order or damaged. It trusts
nothing that a worker has in memory, and may run while records arrive. Exit code
1 if anything is wrong; each violation names the file, segment and offset.

--expand also reads the objects of batch references to their ends, and compares how
many records they hold with what the references say. The exit code is 75 or 78 if
nothing is wrong, and some could not, or must not, be read.`,
		Example: "  spillway verify orders\n  spillway verify orders --json | jq '.violations[]'\n  spillway verify orders --files-only\n  spillway verify flights --expand",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.verifyTopic(cmd.Context(), args[0], filesOnly, counted)
		},
	}
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "do not look into the lane")
	cmd.Flags().BoolVar(&counted, "expand", false, "read the objects of batch references, and count their records")
	return cmd
}

func (a *app) verifyTopic(ctx context.Context, name string, filesOnly, counted bool) error {
	e, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer e.close()
	lanes := verify.JetStream(e.js)
	if filesOnly {
		lanes = nil
	}
	var opts []verify.Option
	var unread tally
	if counted {
		c, err := a.newExpander(ctx, func(ctx context.Context) (*segment.Topic, error) { return e.store.Topic(ctx, name) })
		if err != nil {
			return err
		}
		defer c.store.Close()
		opts = append(opts, verify.Expand(rowCounter{c, &unread}))
	}
	report, err := verify.Topic(ctx, e.store, lanes, name, opts...)
	if err != nil {
		return err
	}
	if a.cfg.JSON {
		err = a.json(report)
	} else {
		err = a.showReport(report)
	}
	if err == nil && !report.OK {
		err = fmt.Errorf("topic %q: %d violations", name, len(report.Violations))
	}
	return functions.Worst(err, unread.err("batch references could not be read"))
}

// rowCounter counts the rows of batch references for a verification.
type rowCounter struct {
	*expander
	unread *tally
}

// Count implements [verify.Counter].
func (c rowCounter) Count(ctx context.Context, f record.Ref, b ref.Batch) (verify.Counted, error) {
	var found expand.Count
	r, no, err := c.open(ctx, f, b)
	switch {
	case err != nil: // of the topic
		no = err
	case no == nil:
		no = errors.Join(found.All(r), r.Close())
	}
	counted := verify.Counted{Rows: found.Rows, Rejected: found.Rejected}
	switch {
	case no == nil:
		return counted, nil
	case expand.Definite(no):
		counted.Wrong = no
		return counted, nil
	case ctx.Err() == nil:
		c.unread.add(objectFault(fmt.Errorf("%s: %w", f.URL, no)))
	}
	return verify.Counted{}, no
}

func (a *app) showReport(r verify.Report) error {
	for _, v := range r.Violations {
		if err := a.printf("%s: %s: %s\n", v.Kind, v.Path, v.Detail); err != nil {
			return err
		}
	}
	if !r.OK {
		return nil
	}
	return a.printf("ok: %d records (%d rejected) in %d chunks of %d segments%s\n", r.Records, r.Rejected, r.Chunks, r.Segments, shownBatches(r.BatchRefs))
}

// shownBatches is what is said of batch references, if there are some.
func shownBatches(b verify.BatchRefs) string {
	switch {
	case b.Count == 0:
		return ""
	case b.Read+b.Unread > 0:
		return fmt.Sprintf("; %d batch references, %d of them read: %d rows (%d rejected)", b.Count, b.Read, b.Rows, b.Rejected)
	}
	return fmt.Sprintf("; %d batch references, %d of them to %d records, not counted", b.Count, b.Said, b.Records)
}
