package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/refcheck"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (a *app) refs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "refs", Short: "Check, adopt and drop the objects that records refer to", Args: usage(cobra.NoArgs), RunE: group,
		Long: `A reference is a record whose payload is an object on S3. It is "valid" if the
object is there and is the one that the record says, "changed" if it is another one,
"missing" if it is not there, "deleted" if the bucket remembers that it was, and
"pending" if it could not be looked at. A topic has a pin on each valid object of its
records, where the objects are on Spillway's own filer: nothing of Spillway deletes
an object with a pin.

Values over 512 KiB are uploaded before their records are published, as objects below
spillway/<topic>/. A producer that dies in between leaves an upload that no record
names: an orphan.`,
		Example: "  spillway refs check images\n  spillway refs adopt images --unpinned\n  spillway refs drop images --dry-run",
	}
	cmd.AddCommand(a.refsCheck(), a.refsAdopt(), a.refsDrop())
	return cmd
}

// checkOptions of one call.
type checkOptions struct {
	since                   string
	limit                   uint64
	olderThan               time.Duration
	all, rejected, progress bool
}

func (a *app) refsCheck() *cobra.Command {
	var o checkOptions
	cmd := &cobra.Command{
		Use: "check TOPIC", Short: "Look at the objects of a topic's references", Args: usage(cobra.ExactArgs(1)),
		Long: `Looks at the object of each reference that the topic retains, and says what state it
is in, and which have no pin. Then it lists the uploads below spillway/<topic>/, in
the topic's buckets and the one that --s3-bucket names, and says which of them

  orphaned   no record names, no pin holds, and are older than --older-than
  held       no record names, but a pin holds: of a record that was trimmed, or of
             another topic
  refused    only rejected records name; of those only the ones that were read

It changes nothing, reads no object, and may run while records arrive. Only chunks
that hold references are read, so that rejected references in others are not counted;
--rejected reads all. With --since or --limit orphans cannot be told.

Each finding is a line; of more than 100 of a kind the first are shown, --all shows
all. --json gives one object, with --all one line per finding and the object last.

Exit codes: 0 all is well, 1 a reference is missing, changed, deleted or not pinned,
or an upload is orphaned, 75 some objects could not be looked at, 78 not with these
settings.`,
		Example: "  spillway refs check images\n  spillway refs check images --since -24h\n  spillway refs check images --json --all | jq -c 'select(.kind==\"dangling\")'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.checkRefs(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.since, "since", "", "only records appended since a time, or an age such as -24h")
	f.Uint64Var(&o.limit, "limit", 0, "end after so many references")
	f.DurationVar(&o.olderThan, "older-than", time.Hour, "how old an upload is before it can be an orphan; the record of a younger one may be on its way")
	f.BoolVar(&o.all, "all", false, "show all findings")
	f.BoolVar(&o.rejected, "rejected", false, "read all chunks, for rejected references")
	f.BoolVar(&o.progress, "progress", false, "show progress even if standard error is no terminal")
	return cmd
}

// parseSince reads a time or an age.
func parseSince(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age < 0 {
		return time.Now().Add(age), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		err = fmt.Errorf("--since %q: want a time as in 2006-01-02T15:04:05Z, or an age such as -24h", text)
	}
	return at, err
}

func (a *app) checkRefs(ctx context.Context, name string, o checkOptions) error {
	since, err := parseSince(o.since)
	if err := errors.Join(err, topic.CheckName(name), notNegative(o.olderThan)); err != nil {
		return &functions.UsageError{Err: err}
	}
	store, done, err := a.filer(ctx)
	if err != nil {
		return err
	}
	defer done()
	checker, done, err := a.checker(ctx, store, name)
	if err != nil {
		return err
	}
	defer done()
	progress := newProgress(a.errs, o.progress)
	defer progress.end()
	show := &findings{app: a, all: o.all, listed: []refcheck.Finding{}, leftOut: map[refcheck.Kind]uint64{}}
	checker.Since, checker.Limit, checker.OlderThan, checker.Rejected = since, o.limit, o.olderThan, o.rejected
	checker.Found = show.add
	checker.Progress = func(n uint64) { progress.at(n, 0) }
	r, err := checker.Check(ctx)
	if err != nil {
		return whileThere(ctx, store, checker.Topic, err)
	}
	if err := show.end(r); err != nil {
		return err
	}
	return functions.Worst(unwell(r), show.pending.err("references could not be looked at"))
}

func notNegative(d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("--older-than %s: want no negative time", d)
	}
	return nil
}

// unwell says in one line what a check found.
func unwell(r refcheck.Report) error {
	var errs []error
	for _, n := range []struct {
		n    uint64
		what string
	}{
		{r.Dangling(), "references dangle"}, {r.Unpinned, "objects are not pinned"}, {r.Uploads.Orphaned, "uploads are orphaned"},
	} {
		if n.n > 0 {
			errs = append(errs, fmt.Errorf("%d %s", n.n, n.what))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("topic %q: %w", r.Topic, join(errs))
}

// join is errors.Join in one line.
func join(errs []error) error {
	all := errs[0]
	for _, err := range errs[1:] {
		all = fmt.Errorf("%w, %w", all, err)
	}
	return all
}
