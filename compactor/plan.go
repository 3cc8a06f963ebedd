package compactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Candidate is a segment in a plan.
type Candidate struct {
	Segment topic.SegmentID `json:"segment"`
	Base    uint64          `json:"base"` // offsets
	End     uint64          `json:"end"`
	Records uint64          `json:"records"`
	Bytes   uint64          `json:"bytes"` // of the records, before compression
	Files   int             `json:"files"`
	State   State           `json:"state"`
	Do      Step            `json:"do"`
	Reason  string          `json:"reason"`         // one line
	Until   time.Time       `json:"until,omitzero"` // the end of its grace
}

// Plan says of each segment of a topic, parents before children, what a run would do
// now, and why not more. It changes nothing, and makes no table. What is wrong with the
// catalog comes beside a plan that has all but what needs it.
func (c *Compactor) Plan(ctx context.Context, name string) ([]Candidate, error) {
	t, err := c.Store.Topic(ctx, name)
	if err != nil {
		return nil, err
	}
	l, err := t.Lineage(ctx)
	if err != nil {
		return nil, err
	}
	s := situation{catalog: c.Tables != nil, grace: c.Grace, now: c.Now()}
	var fault error
	if s.catalog {
		s.table, fault = c.findTable(ctx, t)
	}
	ids := make([]topic.SegmentID, len(l.Members))
	for i, m := range l.Members {
		ids[i] = m.ID
	}
	all, err := c.look(ctx, t, ids, func(i int) bool { return len(l.Members[i].Children) == 0 })
	if err != nil {
		return nil, err
	}
	list := make([]Candidate, len(all))
	for i, f := range all {
		list[i] = f.candidate(s)
		list[i].Segment = ids[i]
	}
	return list, fault
}

// findTable is the UUID of the topic's table; empty: it has none yet, or it is not known.
func (c *Compactor) findTable(ctx context.Context, t *segment.Topic) (string, error) {
	found, err := c.Tables.Find(ctx, table.Topic{Name: t.Name, Incarnation: t.Incarnation})
	if errors.Is(err, table.ErrNoTable) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return found.UUID(), nil
}

func (f found) candidate(s situation) Candidate {
	switch {
	case f.err != nil:
		return Candidate{State: Quarantined, Do: Nothing, Reason: clip(f.err.Error())}
	case f.live:
		return Candidate{
			End: f.seal.End(), Records: f.seal.End(), Bytes: f.seal.ByteEnd(), State: Live, Do: Nothing,
			Reason: "it still takes records; a split, a merge or a roll seals it",
		}
	}
	state, do, until := f.next(s)
	c := Candidate{State: state, Do: do, Until: until}
	if m := f.manifest; m != nil {
		c.Base, c.End, c.Records, c.Bytes, c.Files = m.Base, m.End, m.Records, m.Bytes, len(m.Files)
	} else {
		c.End, c.Records, c.Bytes = f.seal.Base, f.seal.Base, f.seal.ByteBase
	}
	c.Reason = f.reason(c, s)
	return c
}

// reason says in one line why a step is done, or none.
func (f found) reason(c Candidate, s situation) string {
	switch {
	case c.State == Quarantined:
		return "in quarantine, and tried again where that may help: " + f.quarantine.Reason
	case c.Do == Rewrite && f.seal.Base == 0:
		return "it is empty, and gets a manifest without files"
	case c.Do == Rewrite:
		return "its chunks become data files"
	case c.Do == Commit && s.table == "":
		return "its data files come into the table, once that is there"
	case c.Do == Commit:
		return "its data files come into the table"
	case c.Do == Trim:
		return "its grace is over, and its chunks go"
	case !c.Until.IsZero():
		return fmt.Sprintf("its chunks stay until %s", c.Until.UTC().Format(time.RFC3339))
	}
	return "all is done"
}
