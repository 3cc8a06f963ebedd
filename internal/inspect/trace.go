package inspect

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Fate is what became of a message in a lane, as far as can be told.
type Fate string

// All fates. A rejected record is committed like any other, with its reason.
const (
	FateCommitted Fate = "committed" // its rows are in files; see Trace.Partial
	FateWaiting   Fate = "waiting"   // in the lane, above the checkpoint
	FateDuplicate Fate = "duplicate" // dropped as a repeat of Trace.Original
	FateControl   Fate = "control"   // a message among workers, without a record
	FateNoRecord  Fate = "no-record" // an S3 event notification that leaves none: repeats, removals, tests
	FateTrimmed   Fate = "trimmed"   // its chunk is gone, or may be
	FateAbsent    Fate = "absent"    // the lane has had no such message
	FateMissing   Fate = "missing"   // the checkpoint has passed it, and it is in no file
)

// Query names a message, or a row of it, and where to look.
type Query struct {
	Lane        lane.ID
	Incarnation string // "": the lane's present one
	Rows        Rows
	Topic       string // "": the one that the lane or the files tell
}

// Trace is what is known of a message.
type Trace struct {
	Topic       string // that it was published to; "" if that cannot be told
	Lane        lane.ID
	Incarnation string
	Rows        Rows
	Fate        Fate
	Places      []Place
	Partial     bool // it lies above the checkpoint: rows may be missing here
	InLane      bool // the lane still has the message
	Checkpoint  uint64
	Last        uint64    // sequence in the lane; 0: the lane cannot be asked
	Original    *Trace    // of a duplicate; nil if it is not known
	Producer    *Producer // who sent it, if the lane still has the message
}

// Producer is a batch's identity.
type Producer struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"sequence"`
}

// Name is the message's receipt, without a row where the whole of it is meant.
func (t Trace) Name() string { return fmt.Sprintf("%s/%s@%s", t.Lane, t.Incarnation, t.rows()) }

func (t Trace) rows() string {
	if t.Rows.From != t.Rows.To {
		return t.Rows.To.String()
	}
	return t.Rows.From.String()
}

// Lag is how many messages the checkpoint has to pass until it passes this one.
func (t Trace) Lag() uint64 {
	if t.Rows.From.Sequence <= t.Checkpoint {
		return 0
	}
	return t.Rows.From.Sequence - t.Checkpoint
}

// ErrNoIncarnation says that a lane has never been read in an incarnation of this
// name: there is no checkpoint of it.
var ErrNoIncarnation = errors.New("no such incarnation of the lane")

// Tracer follows messages from lanes into files.
type Tracer struct {
	Store *segment.Store
	Lanes jetstream.JetStream
}

// Trace finds out what became of a message. Errors are those of servers and of
// topics that do not exist; what it finds is no error. [ErrNoIncarnation];
// lane.ErrNoLane: the lane is gone, and the query does not say which incarnation
// of it is meant.
func (t Tracer) Trace(ctx context.Context, q Query) (Trace, error) {
	out := Trace{Lane: q.Lane, Incarnation: q.Incarnation, Rows: q.Rows}
	seen, err := t.look(ctx, &out)
	if err != nil {
		return out, err
	}
	if out.Fate != "" {
		return out, nil
	}
	names, err := t.topics(ctx, q, out.Topic)
	if err != nil {
		return out, err
	}
	// The checkpoint is read first: what it has passed is in a file by now.
	c, err := t.checkpoint(ctx, &out)
	if err != nil {
		return out, err
	}
	trimmed := false
	for _, name := range names {
		f, err := t.find(ctx, name, out, q)
		if err != nil {
			return out, err
		}
		trimmed = trimmed || len(f.Trimmed) > 0
		if out.Places = f.Places; len(f.Places) > 0 {
			break
		}
	}
	switch {
	case len(out.Places) > 0:
		out.Fate, out.Topic = FateCommitted, out.Places[0].Topic
		out.Partial = out.Lag() > 0 && q.Rows.From != q.Rows.To
	case out.Lag() > 0:
		out.Fate = FateWaiting
	case seen != nil && lane.IsEvent(seen.subject):
		out.Fate = FateNoRecord
	case seen != nil && seen.producer != nil:
		err = t.duplicate(ctx, c, *seen, &out)
	case trimmed:
		out.Fate = FateTrimmed
	default:
		out.Fate = FateMissing
	}
	return out, err
}

func (t Tracer) checkpoint(ctx context.Context, out *Trace) (segment.Checkpoint, error) {
	c, _, err := t.Store.CheckpointFile(out.Lane.Source(out.Incarnation)).Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		err = fmt.Errorf("%w: lane %s, incarnation %s", ErrNoIncarnation, out.Lane, out.Incarnation)
	}
	out.Checkpoint = c.Sequence
	return c, err
}

// find looks into a topic. One that is gone, or goes meanwhile, holds nothing,
// unless nothing but the query names it.
func (t Tracer) find(ctx context.Context, name string, out Trace, q Query) (Found, error) {
	top, err := Open(ctx, t.Store, name)
	var f Found
	if err == nil {
		f, err = top.Find(ctx, out.Lane.Source(out.Incarnation), q.Rows)
	}
	gone := errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting)
	if gone && (out.InLane || name != q.Topic) {
		return Found{}, nil
	}
	return f, err
}

// topics lists where a message can lie: in the topic that it was published to,
// or among those that could not be routed. Where neither the lane nor the caller
// knows which topic that was, it can be any.
func (t Tracer) topics(ctx context.Context, q Query, published string) ([]string, error) {
	switch {
	case published != "":
		return []string{published, topic.Unrouted}, nil
	case q.Topic == topic.Unrouted:
		return []string{q.Topic}, nil
	case q.Topic != "":
		return []string{q.Topic, topic.Unrouted}, nil
	}
	defs, err := t.Store.Topics(ctx)
	names := make([]string, len(defs))
	for i, d := range defs {
		names[i] = d.Name
	}
	return names, err
}

// duplicate explains a batch that the checkpoint has passed and that is in no
// file: its producer's earlier batch of that number is (rule 22).
func (t Tracer) duplicate(ctx context.Context, c segment.Checkpoint, m message, out *Trace) error {
	out.Producer, out.Fate = m.producer, FateMissing
	at, err := t.original(ctx, c, m)
	if err != nil || at == 0 {
		return err
	}
	out.Fate = FateDuplicate
	rows := AllRows(at)
	if out.Rows.From == out.Rows.To {
		rows = OneRow(topic.Position{Sequence: at, Row: out.Rows.From.Row})
	}
	first, err := t.Trace(ctx, Query{out.Lane, out.Incarnation, rows, out.Topic})
	out.Original = &first
	return err
}
