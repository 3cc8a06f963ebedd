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

Of compacted segments it reads the data files, and holds them against the chunks that
are still there. With a catalog it also compares the topic's table with the manifests.
What an operator gave up is shown, and is no violation.

--expand also reads the objects of batch references to their ends, and compares how
many records they hold with what the references say. The exit code is 75 or 78 if
nothing is wrong, and some could not, or must not, be read.`,
		Example: "  spillway verify orders\n  spillway verify orders --json | jq '.violations[]'\n  spillway verify orders --files-only\n  spillway verify flights --expand",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.verifyTopic(cmd.Context(), args[0], filesOnly, counted)
		},
	}
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "do not look into the lane, nor at the table")
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
	if !filesOnly {
		compare, done, err := a.compareTable(ctx, e.store)
		if err != nil {
			return err
		}
		defer done()
		if compare != nil {
			opts = append(opts, verify.InTable(compare))
		}
	}
	report, err := verify.Topic(ctx, e.store, lanes, name, opts...)
	if err != nil {
		return explainCatalog(err)
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
	for _, g := range r.GivenUp {
		if err := a.printf("given up: records %d to %d of segment %s: %s\n", g.First, g.Last, g.Segment, oneLine(g.Reason)); err != nil {
			return err
		}
	}
	if !r.OK {
		return nil
	}
	return a.printf("ok: %d records (%d rejected) in %s of %d segments%s%s\n",
		r.Records, r.Rejected, shownFiles(r), r.Segments, shownTable(r), shownBatches(r.BatchRefs))
}

// shownFiles says in which files the records are.
func shownFiles(r verify.Report) string {
	text := fmt.Sprintf("%d chunks", r.Chunks)
	if r.DataFiles > 0 {
		text += fmt.Sprintf(" and %d data files", r.DataFiles)
	}
	return text
}

// shownTable says how much is in the table, if one was looked at.
func shownTable(r verify.Report) string {
	if r.InTable == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of %d compacted segments are in the table, %d rows", r.InTable, r.Compacted, r.TableRows)
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
