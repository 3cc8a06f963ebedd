package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
)

const editHelp = `A SEGMENT is named by its id, by its short name as --tree draws it ("4-1"), by the
beginning of its id if no other begins so, by "slot:1234", or by "key:TEXT" (where
records with that key go).`

func (a *app) edit() *cobra.Command {
	cmd := &cobra.Command{
		Use: "edit", Short: "Split, merge and roll segments", Args: usage(cobra.NoArgs), RunE: group,
		Long: `Changes which segments a topic has, while records flow: producers and readers do
not notice, order and exactly once hold, and positions stay valid. An edit seals
its parents and makes children that cover the same slots. One edit is in flight
per topic; whoever meets one that somebody left unfinished finishes it first.

` + editHelp + `

Exit codes: 0 done; 2 the edit cannot be made (a segment that is not live, a bad
cut, no neighbours), nothing was changed; 75 a server was not available: if the
edit had begun, workers finish it, and so does "edit finish".`,
		Example: "  spillway edit split orders slot:0 --half-load\n  spillway edit merge orders 2-0 2-1",
	}
	cmd.AddCommand(a.editSplit(), a.editMerge(), a.editRoll(), a.editFinish())
	return cmd
}

// editOptions are what all edits share.
type editOptions struct {
	reason string
	dryRun bool
}

func (o *editOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.reason, "reason", "by hand", "why; it is kept with the layout")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "change nothing, show the layout that would result")
}

// maxReason bounds what is kept with a layout.
const maxReason = 1000

func (o *editOptions) check() error {
	if len(o.reason) > maxReason {
		return &functions.UsageError{Err: fmt.Errorf("--reason has %d bytes, at most %d are kept", len(o.reason), maxReason)}
	}
	return nil
}

func (a *app) editSplit() *cobra.Command {
	var o editOptions
	var at []uint
	var ways int
	var half bool
	cmd := &cobra.Command{
		Use:   "split TOPIC SEGMENT",
		Short: "Replace a segment by several, each with a part of its slots",
		Long: `Splits a segment: at given slots, each the first slot of a child (--at), into
nearly equal parts (--ways, 2 by default), or where half of its load lies on each
side (--half-load), as the last 256 chunks have counted it: in 64 parts of the
range, and slot by slot where a slot is hot. A slot cannot be divided.

` + editHelp,
		Example: "  spillway edit split orders slot:0 --half-load --reason 'hot'\n" +
			"  spillway edit split orders 0-0 --at 1024 --at 2048\n  spillway edit split orders key:SAN --ways 4 --dry-run",
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := 0
			for _, name := range []string{"at", "ways", "half-load"} {
				if cmd.Flags().Changed(name) {
					given++
				}
			}
			if given > 1 {
				return &functions.UsageError{Err: errors.New("--at, --ways and --half-load exclude each other")}
			}
			cuts, err := slots(at)
			if err != nil {
				return err
			}
			return a.change(cmd.Context(), args[0], o, func(e editing) (topic.Edit, error) {
				s, err := e.resolve(args[1])
				switch {
				case err != nil:
					return topic.Edit{}, err
				case half:
					return e.splitHalf(s)
				case len(cuts) > 0:
					return e.layout.Split(s.ID, cuts...)
				}
				return e.layout.SplitWays(s.ID, ways)
			})
		},
	}
	cmd.Flags().UintSliceVar(&at, "at", nil, "first slot of a child; may be repeated, ascending")
	cmd.Flags().IntVar(&ways, "ways", 2, "split into so many parts of nearly equal range")
	cmd.Flags().BoolVar(&half, "half-load", false, "split where half of the load lies on each side")
	o.flags(cmd)
	return cmd
}

func slots(at []uint) ([]uint32, error) {
	cuts := make([]uint32, len(at))
	for i, slot := range at {
		if slot >= topic.Slots {
			return nil, &functions.UsageError{Err: fmt.Errorf("--at %d: want slots below %d", slot, topic.Slots)}
		}
		cuts[i] = uint32(slot)
	}
	return cuts, nil
}

// splitHalf splits where half of the load lies on each side.
func (e editing) splitHalf(s topic.Live) (topic.Edit, error) {
	load, err := e.topic.Load(e.ctx, s.ID)
	if err != nil {
		return topic.Edit{}, err
	}
	cut, err := inspect.HalfLoad(load)
	if errors.Is(err, inspect.ErrNoLoad) {
		return topic.Edit{}, &functions.UsageError{Err: fmt.Errorf("segment %s %s: %w; --at and --ways do without", s.ID, s.Range, err)}
	}
	if err != nil {
		return topic.Edit{}, err
	}
	e.app.note("cutting at slot %d: %.1f%% of the load below, %.1f%% above", cut.Slot, share(cut.Left, cut.Right), share(cut.Right, cut.Left))
	return e.layout.Split(s.ID, cut.Slot)
}

func share(part, rest float64) float64 { return 100 * part / (part + rest) }

func (a *app) editMerge() *cobra.Command {
	var o editOptions
	cmd := &cobra.Command{
		Use:   "merge TOPIC SEGMENT SEGMENT...",
		Short: "Replace neighbouring segments by one",
		Long: `Merges segments that are neighbours in the key space into one, in whatever order
they are named.

` + editHelp,
		Example: "  spillway edit merge orders 2-0 2-1 --reason 'both are cold'\n  spillway edit merge orders slot:0 slot:32768 --dry-run",
		Args:    usage(cobra.MinimumNArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.change(cmd.Context(), args[0], o, func(e editing) (topic.Edit, error) {
				var ids []topic.SegmentID
				for _, ref := range args[1:] {
					s, err := e.resolve(ref)
					if err != nil {
						return topic.Edit{}, err
					}
					if slices.Contains(ids, s.ID) {
						return topic.Edit{}, &inspect.RefError{Ref: ref, Reason: fmt.Sprintf("segment %s is named twice", s.ID)}
					}
					ids = append(ids, s.ID)
				}
				return e.layout.Merge(ids...)
			})
		},
	}
	o.flags(cmd)
	return cmd
}

func (a *app) editRoll() *cobra.Command {
	var o editOptions
	var all bool
	cmd := &cobra.Command{
		Use:   "roll TOPIC [SEGMENT]",
		Short: "Replace a segment by one with the same slots",
		Long: `Rolls a segment: it is sealed, and a child takes its place. --all rolls every
segment that is live now, one after the other, and tells of each when it is done;
one that somebody else replaces meanwhile is left out.

` + editHelp,
		Example: "  spillway edit roll orders 0-0\n  spillway edit roll orders --all --reason 'before the backup'",
		Args:    usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) == 2) {
				return &functions.UsageError{Err: errors.New("name a SEGMENT, or give --all")}
			}
			if all {
				return a.rollAll(cmd.Context(), args[0], o)
			}
			return a.change(cmd.Context(), args[0], o, func(e editing) (topic.Edit, error) {
				s, err := e.resolve(args[1])
				if err != nil {
					return topic.Edit{}, err
				}
				return e.layout.Roll(s.ID)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "roll all live segments")
	o.flags(cmd)
	return cmd
}
