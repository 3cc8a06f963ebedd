package segment

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
)

// Checkpoint says of a source: every message up to and including Sequence is
// committed in every segment. It bounds what must be read again, and how far a
// lane may be trimmed. It moves only forwards, by compare-and-swap (rule 15); of a
// lane in whole messages, of a backfill in rows (ADR 0020).
type Checkpoint struct {
	Source   string `json:"source"`
	Sequence uint64 `json:"sequence"`
	// Rows, of a backfill, is how many first rows of the object after Sequence are
	// done too.
	Rows uint32 `json:"rows,omitempty"`
	// Witness is the JetStream time of message Sequence, which trimming leaves
	// in the lane: a lane that shows another one there went back (rule 17).
	Witness time.Time `json:"witness"`
	// Gap says that the lane has no message Sequence: somebody has accepted that
	// it was lost. Witness is then the time of the last one that was committed.
	Gap bool `json:"gap,omitempty"`
	// Producers is the table of last batches, a pure function of the lane up
	// to Sequence (rule 20), sorted by id.
	Producers []Producer `json:"producers"`
	// Objects is the table of the objects of S3 events, a pure function of the
	// lane as well.
	Objects ObjectRows `json:"objects,omitempty"`
	// Tally, of a backfill, is what was done up to here.
	Tally *Tally `json:"tally,omitempty"`
	// Marks are earlier values of Sequence with the wall-clock time at which
	// they were reached, oldest first; trimming follows them (rule 21).
	Marks []Mark `json:"marks"`
}

// Producer is one row of the producer table: the last batch accepted from a
// producer, and where it stands in the lane.
type Producer struct {
	ID       string `json:"id"`
	Sequence uint64 `json:"sequence"`
	At       uint64 `json:"at"`
}

// Mark is a checkpoint at a time.
type Mark struct {
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
}

// ProducerDistance is how many lane messages after its last batch a producer is
// forgotten (rule 20). A retry within JetStream's own window of two minutes is
// recognised there; this catches what that window misses, and bounds the table.
const ProducerDistance = 1 << 16

// Advance returns the checkpoint moved to a message, with the producers seen on
// the way. seen maps producer ids to their last batch. What S3 events were taken on
// the way, [Checkpoint.WithObjects] adds.
func (c Checkpoint) Advance(seq uint64, witness time.Time, seen map[string]Producer) Checkpoint {
	next := Checkpoint{Source: c.Source, Sequence: seq, Witness: witness.UTC(), Objects: c.Objects.after(seq), Marks: slices.Clone(c.Marks)}
	next.Producers = make([]Producer, 0, len(c.Producers)+len(seen))
	for _, p := range c.Producers {
		if _, again := seen[p.ID]; !again {
			next.Producers = append(next.Producers, p)
		}
	}
	for _, p := range seen {
		next.Producers = append(next.Producers, p)
	}
	next.Producers = slices.DeleteFunc(next.Producers, func(p Producer) bool { return p.Forgotten(seq + 1) })
	slices.SortFunc(next.Producers, func(a, b Producer) int { return strings.Compare(a.ID, b.ID) })
	return next
}

// Forgotten tells whether a producer no longer counts for the message at seq.
// It must be asked instead of looking whether the row is still there, so that
// every worker decides the same whenever it evicted.
func (p Producer) Forgotten(seq uint64) bool { return seq > p.At+ProducerDistance }

// maxMarks bounds the marks; spaced at an eighth of the trim lag, they cover it.
const maxMarks = 16

// Mark returns the checkpoint with a mark for now, if the newest one is older
// than an eighth of lag, and the sequence below which the lane may be trimmed:
// the newest mark that is at least lag old. The checkpoint's own message stays,
// as the witness.
func (c Checkpoint) Mark(now time.Time, lag time.Duration) (Checkpoint, uint64) {
	c.Marks = slices.Clone(c.Marks)
	if n := len(c.Marks); n == 0 || now.Sub(c.Marks[n-1].At) >= lag/8 {
		c.Marks = append(c.Marks, Mark{c.Sequence, now.UTC().Truncate(time.Millisecond)})
	}
	below := uint64(0)
	for len(c.Marks) > 0 && now.Sub(c.Marks[0].At) >= lag {
		below = c.Marks[0].Sequence
		if len(c.Marks) == 1 {
			break
		}
		c.Marks = c.Marks[1:]
	}
	if len(c.Marks) > maxMarks {
		c.Marks = c.Marks[len(c.Marks)-maxMarks:]
	}
	return c, below
}

// CheckpointFile is where a source's checkpoint is kept.
func (s *Store) CheckpointFile(source string) cursor.File[Checkpoint] {
	return cursor.At[Checkpoint](s.Filer, path.Join(s.Root(), "checkpoints", source+".json"))
}

// CreateCheckpoint makes the checkpoint of a new source, at zero. It is made
// with the source: a source without a checkpoint is an error, never a start.
func (s *Store) CreateCheckpoint(ctx context.Context, source string) error {
	_, err := s.CheckpointFile(source).Create(ctx, Checkpoint{Source: source, Producers: []Producer{}, Marks: []Mark{}})
	return err
}
