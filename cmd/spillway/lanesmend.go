package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/lane"
)

// repair makes what mends a lane.
func (e *env) repair(id lane.ID) ingest.Repair {
	return ingest.Repair{NATS: e.nc, Store: e.store, ID: id, By: who()}
}

func (a *app) lanesReset() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "reset LANE --yes", Short: "Take a lane into use again that went back", Args: usage(cobra.ExactArgs(1)),
		Long: `Gives a lane a new incarnation, when workers refuse it because it went back: it was
restored from a backup, purged, or lost its end in a power failure. Everything in
it that is newer than the last message known to be committed is read; what is older
is committed already. No message that the lane holds is dropped that was not
committed, as long as the server's clock was not set back.

It says how it is known that the lane went back, and refuses when that cannot be
seen. What was done is kept beside the lane's checkpoint. Publishers that wait for
"stored" get an unknown outcome for what they had in the lane before.`,
		Example: "  spillway lanes reset default.0 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := lane.ParseID(args[0])
			if err != nil {
				return &functions.UsageError{Err: err}
			}
			if !yes {
				return &functions.UsageError{Err: fmt.Errorf("this starts lane %s anew at the first message that was not committed; say so with --yes", id)}
			}
			return a.laneCommand(cmd, func(ctx context.Context, e *env) error {
				rep, err := e.repair(id).Reset(ctx)
				if err != nil {
					return err
				}
				return a.showReset(rep)
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (a *app) showReset(rep ingest.ResetReport) error {
	a.log.Warn("a lane was reset", "lane", rep.Lane, "reason", rep.Reason, "was", rep.Was, "incarnation", rep.Is, "first", rep.First)
	if a.cfg.JSON {
		return a.json(rep)
	}
	missing := ""
	if rep.Missing > 0 {
		missing = fmt.Sprintf("; %d committed messages are not in it any more", rep.Missing)
	}
	if rep.Twice > 0 {
		a.note("a worker had gone on after the lane went back: records of messages %d to %d may be in the topics twice", rep.First, rep.Twice)
	}
	return a.printf("lane %s went back: %s%s\nits incarnation is %s now, was %s\n%d messages are to be read, from %d on (%d were committed before that)\n",
		rep.Lane, rep.Reason, missing, rep.Is, rep.Was, rep.Messages, rep.First, rep.Finished)
}

func (a *app) lanesAcceptGap() *cobra.Command {
	var yes bool
	var to uint64
	cmd := &cobra.Command{
		Use: "accept-gap LANE --to SEQ --yes", Short: "Go on behind messages that a lane has lost", Args: usage(cobra.ExactArgs(1)),
		Long: `Moves the checkpoint of a lane over messages that were removed before they were
committed. Workers stop at such a gap, since it is a loss; the error names the
numbers. SEQ is the last one of the missing messages. It refuses when any message
up to SEQ is there. Who did this, when, and which numbers were given up is kept
beside the checkpoint; lanes describe shows it.`,
		Example: "  spillway lanes accept-gap default.0 --to 4711 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := lane.ParseID(args[0])
			if err != nil {
				return &functions.UsageError{Err: err}
			}
			if to == 0 {
				return &functions.UsageError{Err: errors.New("--to SEQ is needed: the last missing message")}
			}
			if !yes {
				return &functions.UsageError{Err: fmt.Errorf("this gives up the messages of lane %s up to %d; say so with --yes", id, to)}
			}
			return a.laneCommand(cmd, func(ctx context.Context, e *env) error {
				from, err := e.repair(id).AcceptGap(ctx, to)
				if err != nil {
					return err
				}
				a.log.Warn("messages of a lane were given up", "lane", id.String(), "from", from+1, "to", to)
				if a.cfg.JSON {
					return a.json(map[string]any{"lane": id.String(), "from": from, "to": to})
				}
				return a.printf("lane %s: gave up messages %d to %d; the checkpoint is %d\n", id, from+1, to, to)
			})
		},
	}
	cmd.Flags().Uint64Var(&to, "to", 0, "the last missing message; needed")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}
