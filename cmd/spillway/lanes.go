package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (a *app) lanes() *cobra.Command {
	cmd := &cobra.Command{
		Use: "lanes", Short: "Create, look at, mend and delete lane groups", Args: usage(cobra.NoArgs), RunE: group,
		Long: `A lane is a JetStream stream that buffers messages of any topics until a worker
has committed them. The group "default" has one lane. A topic that floods gets a
group of its own, with several: each key always goes to the same one of them.`,
		Example: "  spillway lanes create big --lanes 8\n  spillway topic set orders --lanes big\n  spillway lanes list",
	}
	cmd.AddCommand(a.lanesCreate(), a.lanesList(), a.lanesDescribe(), a.lanesDelete(), a.lanesReset(), a.lanesAcceptGap())
	return cmd
}

// laneCommand runs a command that talks to both servers, and gives the errors of
// lanes their exit codes.
func (a *app) laneCommand(cmd *cobra.Command, do func(context.Context, *env) error) error {
	e, err := a.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer e.close()
	return explainLanes(do(cmd.Context(), e))
}

// explainLanes sorts what commands about lanes can meet.
func explainLanes(err error) error {
	switch {
	case err == nil, functions.ExitCode(err) != functions.ExitBug:
		return err
	case errors.Is(err, lane.ErrNoLane):
		return &functions.UsageError{Err: fmt.Errorf("%w; `spillway lanes list` shows what there is, `spillway lanes create` makes a group", err)}
	case is[*lane.SizeError](err), is[*ingest.GroupInUseError](err), is[*ingest.NoGapError](err),
		errors.Is(err, ingest.ErrDefaultGroup), errors.Is(err, ingest.ErrNotBack):
		return &functions.UsageError{Err: err}
	case is[*ingest.UncommittedError](err), errors.Is(err, ingest.ErrMovedMeanwhile), errors.Is(err, context.DeadlineExceeded):
		return &functions.RetryError{Err: err}
	case is[*lane.IncompleteError](err):
		return &functions.ConfigError{Err: fmt.Errorf("%w; `spillway lanes create` completes it", err)}
	case is[*ingest.LaneBackError](err), errors.Is(err, ingest.ErrNoCheckpoint):
		return &functions.ConfigError{Err: err}
	}
	return err
}

func (a *app) lanesCreate() *cobra.Command {
	var s lane.Settings
	cmd := &cobra.Command{
		Use: "create NAME --lanes N", Short: "Create a lane group, or complete one", Args: usage(cobra.ExactArgs(1)),
		Long: `Creates a group of lanes. How many is fixed for good, since keys are spread over
them; a bigger group is another group, to which topics are moved. Each lane can be
as large as --max-bytes, and the server sets that much of its disk aside.

Called again with the same number it makes what is missing, and tells producers
again which topics are bound to the group, as after the loss of a NATS server.
Nothing that exists is changed. Then start a worker: run ingest --group NAME.`,
		Example: "  spillway lanes create big --lanes 8\n  spillway lanes create safe --lanes 2 --replicas 3 --max-bytes 20000000000",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := lane.CheckSize(args[0], s.Lanes); err != nil {
				return &functions.UsageError{Err: err}
			}
			if s.MaxBytes < 0 || s.Replicas < 0 || s.Replicas > 5 {
				return &functions.UsageError{Err: errors.New("--max-bytes is positive, --replicas 1 to 5")}
			}
			return a.laneCommand(cmd, func(ctx context.Context, e *env) error { return a.createLanes(ctx, e, args[0], s) })
		},
	}
	f := cmd.Flags()
	f.IntVar(&s.Lanes, "lanes", 0, fmt.Sprintf("how many lanes, 1 to %d; needed", lane.MaxLanes))
	f.Int64Var(&s.MaxBytes, "max-bytes", lane.DefaultMaxBytes, "size of each lane")
	f.IntVar(&s.Replicas, "replicas", 1, "copies that JetStream keeps of each lane")
	return cmd
}

func (a *app) createLanes(ctx context.Context, e *env, name string, s lane.Settings) error {
	if err := selfCheck(ctx, e.store); err != nil {
		return err
	}
	if _, err := ingest.CreateGroup(ctx, e.nc, e.store, name, s); err != nil {
		return err
	}
	told, err := ingest.TellAgain(ctx, e.nc, e.store, name)
	if err != nil {
		return err
	}
	if a.cfg.JSON {
		return a.json(map[string]any{"group": name, "lanes": s.Lanes, "told": told})
	}
	for _, t := range told {
		a.note("told producers of topic %s to use it", t)
	}
	return a.printf("lane group %s has %d lanes\n", name, s.Lanes)
}

func (a *app) lanesList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List lane groups", Args: usage(cobra.NoArgs),
		Long: `Lists all lane groups that the NATS server has, with what waits in them and which
topics are bound to them. A group of which lanes are missing shows as incomplete.`,
		Example: "  spillway lanes list\n  spillway lanes list --json | jq -r '.[].group'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.laneCommand(cmd, func(ctx context.Context, e *env) error {
				names, err := lane.Groups(ctx, e.js)
				if err != nil {
					return err
				}
				bound, err := boundTo(ctx, e)
				if err != nil {
					return err
				}
				groups := []groupStatus{}
				for _, name := range names {
					g, err := e.group(ctx, name)
					if err != nil {
						return err
					}
					g.Topics = bound[name]
					groups = append(groups, g)
				}
				return a.showGroups(groups)
			})
		},
	}
}

func (a *app) showGroups(groups []groupStatus) error {
	if a.cfg.JSON {
		return a.json(groups)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "GROUP\tLANES\tSTATE\tLAG\tBYTES\tTOPICS")
	for _, g := range groups {
		state := "complete"
		if g.Problem != "" {
			state = g.Problem
		}
		var lag, bytes uint64
		for _, l := range g.Lanes {
			lag += l.Lag
			bytes += uint64(max(l.Bytes, 0))
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%s\n", g.Group, len(g.Lanes), state, lag, humanize.IBytes(bytes), shortList(g.Topics))
	}
	return w.Flush()
}

func shortList(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (a *app) lanesDescribe() *cobra.Command {
	return &cobra.Command{
		Use: "describe GROUP", Short: "Show the lanes of a group", Args: usage(cobra.ExactArgs(1)),
		Long: `Shows of each lane of a group: the first and last message that it holds, its size,
the checkpoint (all up to it is committed), the lag (messages above it), which
worker holds the lease, the incarnation, and what was done to it by hand.`,
		Example: "  spillway lanes describe default\n  spillway lanes describe big --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := topic.CheckGroup(args[0]); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.laneCommand(cmd, func(ctx context.Context, e *env) error {
				g, err := e.group(ctx, args[0])
				if err != nil {
					return err
				}
				if len(g.Lanes) == 0 {
					return fmt.Errorf("lane group %s: %w", args[0], lane.ErrNoLane)
				}
				bound, err := boundTo(ctx, e)
				if err != nil {
					return err
				}
				g.Topics = bound[args[0]]
				return a.showGroup(g)
			})
		},
	}
}

func (a *app) showGroup(g groupStatus) error {
	if a.cfg.JSON {
		return a.json(g)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	row("group\t%s", g.Group)
	row("topics\t%s", shortList(g.Topics))
	if g.Problem != "" {
		row("problem\t%s", g.Problem)
	}
	row("\nLANE\tFIRST\tLAST\tBYTES\tOF\tCHECKPOINT\tLAG\tINCARNATION\tWORKER")
	for _, l := range g.Lanes {
		row("%s\t%d\t%d\t%s\t%s\t%d\t%d\t%s\t%s", l.Lane, l.First, l.Last, humanize.IBytes(uint64(max(l.Bytes, 0))),
			humanize.IBytes(uint64(max(l.MaxBytes, 0))), l.Checkpoint, l.Lag, l.Incarnation, l.Worker)
	}
	for _, l := range g.Lanes {
		for _, e := range l.Audit {
			row("\n%s\t%s by %s on %s: from %d to %d %s", l.Lane, e.What, e.By, e.At.Format(time.RFC3339), e.From, e.To, e.Detail)
		}
		if l.Problem != "" {
			row("\n%s\t%s", l.Lane, l.Problem)
		}
	}
	return w.Flush()
}

func (a *app) lanesDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete GROUP --yes", Short: "Delete a lane group that nothing uses", Args: usage(cobra.ExactArgs(1)),
		Long: `Deletes the lanes of a group. It refuses while a topic is bound to the group, and
while a lane holds anything that is not committed (exit code 75: try again).
Before it deletes, the lanes refuse messages, so that nothing is lost that was
acknowledged. A deletion that was interrupted is finished by calling it again.`,
		Example: "  spillway lanes delete big --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := topic.CheckGroup(args[0]); err != nil {
				return &functions.UsageError{Err: err}
			}
			if !yes {
				return &functions.UsageError{Err: fmt.Errorf("this deletes the lanes of group %q; say so with --yes", args[0])}
			}
			return a.laneCommand(cmd, func(ctx context.Context, e *env) error {
				if err := ingest.DeleteGroup(ctx, e.js, e.store, args[0], who()); err != nil {
					return err
				}
				if a.cfg.JSON {
					return a.json(map[string]string{"deleted": args[0]})
				}
				return a.printf("deleted lane group %s\n", args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

// who names whoever runs a command, for the audit.
func who() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// groupStatus is what is known of a group.
type groupStatus struct {
	Group   string       `json:"group"`
	Problem string       `json:"problem,omitempty"`
	Lanes   []laneStatus `json:"lanes"`
	Topics  []string     `json:"topics"`
}

type laneStatus struct {
	Lane        string         `json:"lane"`
	Incarnation string         `json:"incarnation"`
	First       uint64         `json:"first"`
	Last        uint64         `json:"last"`
	Bytes       int64          `json:"bytes"`
	MaxBytes    int64          `json:"max_bytes"`
	Checkpoint  uint64         `json:"checkpoint"`
	Lag         uint64         `json:"lag"`
	Worker      string         `json:"worker,omitempty"`
	Problem     string         `json:"problem,omitempty"`
	Audit       []ingest.Event `json:"audit,omitempty"`
}

// group looks at all lanes of a group of which there is a stream.
func (e *env) group(ctx context.Context, name string) (groupStatus, error) {
	g := groupStatus{Group: name, Lanes: []laneStatus{}, Topics: []string{}}
	ids, err := lane.List(ctx, e.js, name)
	if err != nil || len(ids) == 0 {
		return g, err
	}
	switch _, err := lane.OpenGroup(ctx, e.js, name); {
	case is[*lane.IncompleteError](err), is[*lane.MismatchError](err), errors.Is(err, lane.ErrNoLane):
		g.Problem = err.Error()
	case err != nil:
		return g, err
	}
	for _, id := range ids {
		l, err := e.lane(ctx, id)
		if err != nil {
			return g, err
		}
		g.Lanes = append(g.Lanes, l)
	}
	return g, nil
}

func (e *env) lane(ctx context.Context, id lane.ID) (laneStatus, error) {
	info, err := lane.Look(ctx, e.js, id)
	if err != nil {
		return laneStatus{}, err
	}
	l := laneStatus{Lane: id.String(), Incarnation: info.Incarnation, First: info.First, Last: info.Last, Bytes: info.Bytes, MaxBytes: info.MaxBytes}
	source := id.Source(info.Incarnation)
	c, _, err := e.store.CheckpointFile(source).Load(ctx)
	switch {
	case errors.Is(err, filer.ErrNotFound):
		l.Problem = "its checkpoint is missing"
	case err != nil:
		return l, err
	case c.Sequence > info.Last:
		l.Problem = "it went back: its checkpoint is above its last message"
	}
	l.Checkpoint, l.Lag = c.Sequence, info.Last-min(info.Last, c.Sequence)
	trail, err := ingest.Audit(ctx, e.store, source)
	if err != nil {
		return l, err
	}
	l.Audit = trail.Events
	l.Worker, _, err = ingest.Holder(ctx, e.js, id)
	return l, err
}

// boundTo lists the topics of each group, by their definitions.
func boundTo(ctx context.Context, e *env) (map[string][]string, error) {
	defs, err := e.store.Topics(ctx)
	if err != nil {
		return nil, err
	}
	bound := map[string][]string{}
	for _, d := range defs {
		bound[d.Lanes] = append(bound[d.Lanes], d.Name)
	}
	return bound, nil
}
