package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/topic"
)

// traceOptions of one call.
type traceOptions struct {
	seq         uint64
	row         uint32
	hasRow      bool
	lane        string
	incarnation string
}

func (a *app) trace() *cobra.Command {
	var o traceOptions
	cmd := &cobra.Command{
		Use:   "trace [TOPIC] RECEIPT | trace TOPIC --seq N",
		Short: "Follow a receipt or a lane's message into its file",
		Long: `Tells where a record went: its segment, offset and file. A receipt is what
publish --receipts wrote, "default.0/k3j9x2@123:4": lane, incarnation, message and
row. --seq follows a whole message, whose rows may lie in several segments.

A receipt does not name its topic. While the message is in the lane, the lane does;
later all topics are searched, unless you name one. Messages for topics that do not
exist are found in "unrouted". It may also be that the message waits in the lane
(CHECKPOINT says how far workers have got), or that it was dropped as a duplicate
of an earlier one, which is then traced. A rejected record is shown with its reason.

Exit codes: 0 found, 75 not committed yet, 2 the lane never had such a message,
1 the lane's checkpoint has passed it and no file has it.`,
		Example: "  spillway trace default.0/k3j9x2ab@123:4\n  spillway trace orders --seq 123 --lane default.0 --json",
		Args:    usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.hasRow = cmd.Flags().Changed("row")
			q, err := o.query(args, cmd.Flags().Changed("seq"))
			if err != nil {
				return &functions.UsageError{Err: err}
			}
			e, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer e.close()
			if q.Lane.Group == "" {
				if q.Lane, err = onlyLane(cmd.Context(), e, q.Topic); err != nil {
					return err
				}
			}
			return a.follow(cmd.Context(), e, q)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.seq, "seq", 0, "sequence of the message in its lane")
	f.Uint32Var(&o.row, "row", 0, "with --seq: only this row of the message, from 0")
	f.StringVar(&o.lane, "lane", "", "with --seq: the lane, such as default.0 (default: the topic's, if it has one)")
	f.StringVar(&o.incarnation, "incarnation", "", "with --seq: the lane's incarnation (default: the present one)")
	return cmd
}

// query is what the arguments ask for. The lane may be left open.
func (o traceOptions) query(args []string, bySeq bool) (q inspect.Query, err error) {
	if bySeq {
		return o.bySequence(args)
	}
	if o.hasRow || o.lane != "" || o.incarnation != "" {
		return q, errors.New("--row, --lane and --incarnation go with --seq; a receipt says them itself")
	}
	r, err := client.ParseReceipt(args[len(args)-1])
	if err != nil {
		return q, fmt.Errorf("%w; or give TOPIC and --seq", err)
	}
	if len(args) == 2 {
		q.Topic, err = args[0], topic.CheckName(args[0])
	}
	if err == nil {
		q.Lane, err = lane.ParseID(r.Lane)
	}
	q.Incarnation, q.Rows = r.Incarnation, inspect.OneRow(topic.Position{Sequence: r.Sequence, Row: r.Row})
	return q, err
}

func (o traceOptions) bySequence(args []string) (q inspect.Query, err error) {
	switch {
	case len(args) != 1:
		return q, errors.New("--seq goes with a TOPIC alone")
	case o.seq == 0 || o.seq > math.MaxInt64:
		return q, fmt.Errorf("--seq %d: sequences in a lane start at 1", o.seq)
	}
	q.Topic, q.Incarnation, q.Rows = args[0], o.incarnation, inspect.AllRows(o.seq)
	if o.hasRow {
		q.Rows = inspect.OneRow(topic.Position{Sequence: o.seq, Row: o.row})
	}
	if o.lane != "" {
		q.Lane, err = lane.ParseID(o.lane)
	}
	if o.incarnation != "" && strings.Trim(o.incarnation, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		err = errors.Join(err, fmt.Errorf("--incarnation %.40q: want letters a-z and digits", o.incarnation))
	}
	return q, errors.Join(topic.CheckName(args[0]), err)
}

// onlyLane is the lane of a topic whose group has but one.
func onlyLane(ctx context.Context, e *env, name string) (lane.ID, error) {
	t, err := e.store.Topic(ctx, name)
	if err != nil {
		return lane.ID{}, err
	}
	id := lane.ID{Group: t.Lanes}
	info, err := lane.Open(ctx, e.js, id)
	if err == nil && info.Lanes > 1 {
		err = &functions.UsageError{Err: fmt.Errorf("topic %q has %d lanes, %s to %s.%d: say which with --lane", name, info.Lanes, id, id.Group, info.Lanes-1)}
	}
	return id, err
}

// follow traces a message and shows what became of it.
func (a *app) follow(ctx context.Context, e *env, q inspect.Query) error {
	t, err := inspect.Tracer{Store: e.store, Lanes: e.js}.Trace(ctx, q)
	if errors.Is(err, inspect.ErrNoIncarnation) {
		err = &functions.UsageError{Err: err}
	}
	if err != nil {
		return err
	}
	if a.cfg.JSON {
		err = a.json(a.traced(t))
	} else {
		err = a.showTrace(t)
	}
	return cmp.Or(err, fateError(t))
}

// fateError is the error of a message that was not found.
func fateError(t inspect.Trace) error {
	what := "message " + t.Name()
	switch t.Fate {
	case inspect.FateWaiting:
		return &functions.RetryError{Err: fmt.Errorf("%s is not committed yet: the checkpoint is %d, %d messages behind it", what, t.Checkpoint, t.Lag())}
	case inspect.FateAbsent:
		return &functions.UsageError{Err: fmt.Errorf("there is no %s: the last message of the lane is %d", what, t.Last)}
	case inspect.FateTrimmed:
		return fmt.Errorf("%s is in no file: the part of the segments where it would be was trimmed", what)
	case inspect.FateMissing:
		hint := "the lane does not have it any more, so that its topic is not known; that topic may have been deleted, or it was a duplicate"
		if t.InLane {
			hint = fmt.Sprintf("it was published to topic %q; was that topic, or an earlier one of the name, deleted?", t.Topic)
		}
		return fmt.Errorf("%s is in no file, although the checkpoint %d has passed it: %s", what, t.Checkpoint, hint)
	}
	return nil
}

// traced is what `trace --json` prints.
type traced struct {
	Topic       string            `json:"topic,omitempty"`
	Lane        string            `json:"lane"`
	Incarnation string            `json:"incarnation"`
	Sequence    uint64            `json:"sequence"`
	Row         *uint32           `json:"row,omitempty"` // only where one was asked for
	Fate        inspect.Fate      `json:"fate"`
	Partial     bool              `json:"partial,omitempty"`
	InLane      bool              `json:"in_lane"`
	Checkpoint  uint64            `json:"checkpoint"`
	Last        uint64            `json:"last,omitempty"`
	Lag         uint64            `json:"lag"`
	Places      []place           `json:"places"`
	Producer    *inspect.Producer `json:"producer,omitempty"`
	Original    *traced           `json:"original,omitempty"`
}

// place is where a row lies.
type place struct {
	Topic    string          `json:"topic"`
	Row      uint32          `json:"row"`
	Segment  topic.SegmentID `json:"segment"`
	Range    topic.Range     `json:"range"`
	Offset   uint64          `json:"offset"`
	Chunk    *uint64         `json:"chunk,omitempty"` // number; none: the file is a data file of a compacted segment
	Index    uint64          `json:"index"`           // in the file, from 0
	File     string          `json:"file"`
	S3       string          `json:"s3"`
	Time     time.Time       `json:"ts"`
	Rejected string          `json:"rejected,omitempty"`
	Pending  bool            `json:"pending,omitempty"` // its object was not verified when it was committed
}

func (a *app) traced(t inspect.Trace) traced {
	out := traced{
		Topic: t.Topic, Lane: t.Lane.String(), Incarnation: t.Incarnation, Sequence: t.Rows.From.Sequence, Fate: t.Fate,
		Partial: t.Partial, InLane: t.InLane, Checkpoint: t.Checkpoint, Last: t.Last, Lag: t.Lag(), Producer: t.Producer,
		Places: make([]place, len(t.Places)),
	}
	if t.Rows.From == t.Rows.To {
		out.Row = &t.Rows.From.Row
	}
	for i, p := range t.Places {
		out.Places[i] = place{
			Topic: p.Topic, Row: p.Position.Row, Segment: p.Segment, Range: p.Range, Offset: p.Offset, Index: p.Index,
			File: a.fileURL(p.File), S3: s3Name(p.File), Time: p.Time, Rejected: p.Rejected, Pending: p.Pending,
		}
		if p.Chunk.Entry.ID != "" {
			n := p.Chunk.Entry.N
			out.Places[i].Chunk = &n
		}
	}
	if t.Original != nil {
		first := a.traced(*t.Original)
		out.Original = &first
	}
	return out
}

func (a *app) fileURL(path string) string { return "http://" + a.cfg.Filer + path }

func s3Name(path string) string { return "s3://" + strings.TrimPrefix(path, "/buckets/") }
