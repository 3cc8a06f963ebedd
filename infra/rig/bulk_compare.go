package rig

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// SourcedRecord is a record as it was read back, with the source that its chunk
// says that it came from.
type SourcedRecord struct {
	Source string
	segment.Item
}

// Live is a record of a publisher, as [Comparison] takes it.
func (r SourcedRecord) Live() Read {
	live := Read{Number: -1, Key: string(r.Key), Value: r.Value, Rejected: r.Rejected, Place: Place{r.Position.Sequence, r.Position.Row}}
	for _, h := range r.Headers {
		if n, err := strconv.Atoi(string(h.Value)); h.Name == NumberHeader && err == nil {
			live.Number = n
		}
	}
	return live
}

// ReadSources reads a topic to its end, from its files and in this process. The
// memory of a record is the reader's own.
func ReadSources(ctx context.Context, store *segment.Store, name string, add func(SourcedRecord)) error {
	t, err := store.Topic(ctx, name)
	if err != nil {
		return err
	}
	chunks, err := chunksOf(ctx, t)
	if err != nil {
		return err
	}
	r, err := t.Read(ctx, nil)
	if err != nil {
		return err
	}
	for item, err := range r.Next(ctx) {
		if err != nil {
			return err
		}
		list := chunks[item.Segment]
		i, _ := slices.BinarySearchFunc(list, item.Offset, func(c segment.Chunk, at uint64) int {
			if c.End() <= at {
				return -1
			}
			return 1
		})
		if i == len(list) || item.Offset < list[i].Base {
			return fmt.Errorf("topic %s: no chunk of segment %s has offset %d", name, item.Segment, item.Offset)
		}
		add(SourcedRecord{list[i].Source, item})
	}
	return nil
}

// chunksOf lists the chunks of every segment.
func chunksOf(ctx context.Context, t *segment.Topic) (map[topic.SegmentID][]segment.Chunk, error) {
	segments, err := t.Segments(ctx)
	if err != nil {
		return nil, err
	}
	all := map[topic.SegmentID][]segment.Chunk{}
	for _, s := range segments {
		for c, err := range s.Chunks(ctx, 0) {
			if err != nil {
				return nil, err
			}
			if !c.Sealed {
				all[s.ID] = append(all[s.ID], c)
			}
		}
	}
	return all, nil
}

// BulkComparison checks records that backfill jobs made, as they are read back one
// by one, against the files: each row once, as it is there, and of each source the
// rows of a key in their order. One goroutine uses it.
type BulkComparison struct {
	Read     int
	Problems []string
	More     int // problems beyond those

	sources map[string]*comparedSource
}

// comparedSource is one source of a job.
type comparedSource struct {
	from   *BulkObjects
	starts []int // in from, by number of the object less 1
	counts []int
	seen   [][]bool
	last   map[string]topic.Position // by key
}

// NewBulkComparison starts a comparison.
func NewBulkComparison() *BulkComparison {
	return &BulkComparison{sources: map[string]*comparedSource{}}
}

// Expect has the rows of a job's objects expected.
func (c *BulkComparison) Expect(j backfill.Job, from *BulkObjects) error {
	for _, s := range j.Sources {
		of := &comparedSource{from: from, last: map[string]topic.Position{}}
		for _, o := range s.Objects {
			i := slices.Index(from.Names, o.Name())
			if i < 0 {
				return fmt.Errorf("job %s has %s, which was not put", j.ID, o)
			}
			of.starts, of.counts = append(of.starts, from.Starts[i]), append(of.counts, from.Starts[i+1]-from.Starts[i])
			of.seen = append(of.seen, make([]bool, from.Starts[i+1]-from.Starts[i]))
		}
		c.sources[s.Name] = of
	}
	return nil
}

// Add compares one record. It tells whether it is of one of the jobs.
func (c *BulkComparison) Add(r SourcedRecord) bool {
	s := c.sources[r.Source]
	if s == nil {
		return false
	}
	c.Read++
	at := r.Position
	object, row := int(at.Sequence)-1, int(at.Row)
	if object < 0 || object >= len(s.starts) || row >= s.counts[object] {
		c.problem("%s at %s: there is no such row", r.Source, at)
		return true
	}
	key, hash := s.from.row(s.starts[object] + row)
	switch {
	case r.Rejected != "":
		c.problem("%s at %s was rejected: %s", r.Source, at, r.Rejected)
	case s.seen[object][row]:
		c.problem("%s at %s is there twice, again in segment %s at offset %d", r.Source, at, r.Segment, r.Offset)
	case string(r.Key) != key || xxhash.Sum64(r.Value) != hash:
		c.problem("%s at %s was altered: key %q, not %q, value %.80q", r.Source, at, r.Key, key, r.Value)
	case s.last[key].After(at):
		c.problem("%s: key %s is out of order: %s after %s", r.Source, key, at, s.last[key])
	}
	s.seen[object][row], s.last[key] = true, at
	return true
}

// Done ends the comparison: every row must have been read. It tells whether there
// was no problem.
func (c *BulkComparison) Done() bool {
	for name, s := range c.sources {
		for object, rows := range s.seen {
			if row := slices.Index(rows, false); row >= 0 {
				missing := 0
				for _, seen := range rows[row:] {
					if !seen {
						missing++
					}
				}
				c.problem("%s, object %d: %d of %d rows are lost, the first is %d", name, object+1, missing, len(rows), row)
			}
		}
	}
	return len(c.Problems) == 0
}

func (c *BulkComparison) problem(format string, args ...any) {
	if len(c.Problems) == maxProblems {
		c.More++
		return
	}
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}
