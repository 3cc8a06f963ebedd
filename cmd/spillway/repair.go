package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/compactor/repair"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// repairOptions of one call.
type repairOptions struct {
	fromLane, dryRun bool
	drop, reason     string
}

func (a *app) repair() *cobra.Command {
	var o repairOptions
	cmd := &cobra.Command{
		Use: "repair TOPIC SEGMENT", Short: "Mend what of a segment cannot be read, or give it up", Args: usage(cobra.ExactArgs(2)),
		Long: `Deals with chunks of a segment whose bytes are lost or damaged. Such a segment is in
quarantine: it is not compacted, doctor tells of it, and readers stop there. The other
segments are as ever. Exactly one of two ways is to be said:

--from-lane reads the messages again that a damaged chunk was made of, if its lane
still holds them (ten minutes after they were committed, by default), and puts the same
bytes in the place of those that are there. Whether they are the same is told by the
digest in the chunk's attributes, which stay as they are. It tries all damaged chunks
of the segment.

--drop FIRST-LAST gives the records with these offsets up: the segment is compacted
without them, readers are told that they are gone, and verify shows them. They must be
all records of one or more damaged chunks, since nothing is given up that can be read.
Who did so, when, and why (--reason) is kept beside the segment.

--dry-run says what would be done. Either may be called again, and by several at once.
A segment that is compacted needs no repair: its manifest and its data files count.

Exit codes: 0 nothing is damaged any more, or it is given up, 1 something is, and the
reason is shown, 2 wrong usage, 75 try again, 78 not with these settings.`,
		Example: "  spillway repair orders 00000000-00-k3n5x2ab --from-lane\n" +
			"  spillway repair orders 00000000-00-k3n5x2ab --drop 8192-10239 --reason \"volume 7 lost\" --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			first, last, err := o.check()
			if err := errors.Join(err, topic.CheckName(args[0]), checkSegmentID(args[1])); err != nil {
				return &functions.UsageError{Err: err}
			}
			id := topic.SegmentID(args[1])
			if o.fromLane {
				return a.repairFromLane(cmd.Context(), args[0], id, o.dryRun)
			}
			return a.repairDrop(cmd.Context(), args[0], id, repair.Drop{First: first, Last: last, Reason: o.reason, DryRun: o.dryRun})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.fromLane, "from-lane", false, "make damaged chunks again from their lanes")
	f.StringVar(&o.drop, "drop", "", "offsets of records to give up, FIRST-LAST")
	f.StringVar(&o.reason, "reason", "", "with --drop: why, for those who ask later")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be done")
	return cmd
}

func (o repairOptions) check() (first, last uint64, err error) {
	switch {
	case o.fromLane == (o.drop != ""):
		return 0, 0, errors.New("say either --from-lane or --drop FIRST-LAST")
	case o.fromLane && o.reason != "":
		return 0, 0, errors.New("--reason goes with --drop")
	case o.fromLane:
		return 0, 0, nil
	case strings.TrimSpace(o.reason) == "" || len(o.reason) > repair.MaxReason:
		return 0, 0, fmt.Errorf("--drop gives records up: say why with --reason, in 1 to %d bytes", repair.MaxReason)
	}
	from, to, ok := strings.Cut(o.drop, "-")
	first, err = strconv.ParseUint(from, 10, 63)
	last, err2 := strconv.ParseUint(to, 10, 63)
	if !ok || err != nil || err2 != nil || last < first {
		return 0, 0, fmt.Errorf("--drop %.60q: want the offsets FIRST-LAST", o.drop)
	}
	return first, last, nil
}

// checkSegmentID refuses what cannot be a segment's folder.
func checkSegmentID(id string) error {
	if id == "" || len(id) > 100 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("%.100q is no id of a segment; spillway segments lists them", id)
	}
	return nil
}

func (a *app) repairFromLane(ctx context.Context, name string, id topic.SegmentID, dryRun bool) error {
	e, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer e.close()
	r := a.repairer(e.store)
	r.Lane = func(ctx context.Context, source string, t topic.Definition, to uint64) iter.Seq2[*record.Set, error] {
		return func(yield func(*record.Set, error) bool) {
			again, err := ingest.OpenReread(ctx, e.nc, source, t)
			if err != nil {
				yield(nil, unlessLost(err))
				return
			}
			for set, err := range again.Records(ctx, to) {
				if !yield(set, unlessLost(err)) || err != nil {
					return
				}
			}
		}
	}
	report, err := r.FromLane(ctx, name, id, dryRun)
	return a.repaired(report, err)
}

// unlessLost makes a *repair.LostError of what says that a lane has the messages no more.
func unlessLost(err error) error {
	for _, known := range []error{lane.ErrNoLane, ingest.ErrOtherIncarnation, ingest.ErrNoMessage, ingest.ErrNoSource} {
		if errors.Is(err, known) {
			return &repair.LostError{Reason: err.Error()}
		}
	}
	return err
}

func (a *app) repairDrop(ctx context.Context, name string, id topic.SegmentID, o repair.Drop) error {
	store, done, err := a.filer(ctx)
	if err != nil {
		return err
	}
	defer done()
	report, err := a.repairer(store).Drop(ctx, name, id, o)
	return a.repaired(report, err)
}

func (a *app) repairer(store *segment.Store) *repair.Repairer {
	return &repair.Repairer{Store: store, By: who(), Now: time.Now, Logger: a.log}
}

// repaired shows what was found and done.
func (a *app) repaired(r repair.Report, err error) error {
	var bad *repair.RangeError
	switch {
	case errors.Is(err, filer.ErrNotFound):
		return &functions.UsageError{Err: err}
	case errors.As(err, &bad), errors.Is(err, repair.ErrLive), errors.Is(err, repair.ErrCompacted):
		return &functions.UsageError{Err: err}
	case err != nil:
		return err
	}
	if a.cfg.JSON {
		err = a.json(r)
	} else {
		err = a.showRepair(r)
	}
	if err == nil && r.Lost() > 0 && !r.Compacted {
		err = fmt.Errorf("segment %s of topic %q: %d chunks cannot be read", r.Segment, r.Topic, r.Lost())
	}
	return err
}

func (a *app) showRepair(r repair.Report) error {
	for _, d := range r.Damaged {
		text := fmt.Sprintf("chunk %d, records %d to %d: %s", d.Chunk, d.First, d.Last, d.Outcome)
		if d.Why != "" {
			text += ": " + oneLine(d.Why)
		}
		if err := a.printf("%s\n  %s\n", text, oneLine(d.Reason)); err != nil {
			return err
		}
	}
	for _, d := range r.Dropped {
		if err := a.printf("given up: records %d to %d: %s\n", d.First, d.Last, oneLine(d.Reason)); err != nil {
			return err
		}
	}
	end := ""
	switch {
	case r.Compacted:
		end = "; the segment is compacted, so that its chunks do not matter"
	case r.DryRun:
		end = "; nothing was changed"
	}
	return a.printf("%d chunks, %d of them damaged%s\n", r.Chunks, len(r.Damaged), end)
}
