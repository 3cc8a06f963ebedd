package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// stored is a chunk's file.
type stored struct {
	c    segment.Chunk
	data []byte
	lost string // why there are no bytes
}

func checkLost(s stored) string { return s.lost }

func checkDigest(s stored) string {
	if s.lost != "" {
		return ""
	}
	if got := fmt.Sprintf("xxh64:%016x", xxhash.Sum64(s.data)); got != s.c.Digest {
		return fmt.Sprintf("its bytes have the digest %s, its attributes say %s", got, s.c.Digest)
	}
	return ""
}

// readTimeout is how long the bytes of one chunk are tried for while the filer
// itself answers.
const readTimeout = time.Minute

// fetch reads a chunk's bytes. That they are lost is no error; that the filer
// does not answer is.
func (v *verifier) fetch(ctx context.Context, c segment.Chunk) (stored, error) {
	s := stored{c: c}
	switch {
	case c.Entry.Size > segment.MaxChunkFile:
		s.lost = fmt.Sprintf("it has %d bytes, a chunk has at most %d", c.Entry.Size, segment.MaxChunkFile)
		return s, nil
	case len(c.Entry.Blobs) == 0:
		s.data = c.Entry.Content
		return s, nil
	}
	bounded, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	var err error
	if s.data, err = v.content(bounded, c.Entry.Entry); err == nil {
		return s, nil
	}
	if ctx.Err() != nil {
		return s, err
	}
	again := filer.Retry(ctx, func(ctx context.Context) error {
		_, err := v.store.Filer.Lookup(ctx, c.Entry.Path)
		return err
	})
	if again != nil && !errors.Is(again, filer.ErrNotFound) {
		return s, again
	}
	s.lost = fmt.Sprintf("its bytes cannot be read: %v", err)
	return s, nil
}

// recordStep is a record with what comes before it.
type recordStep struct {
	*segmentState
	c    segment.Chunk
	prev topic.Position // of the record before in this chunk, zero for the first
	// floors and reached are of the chunk's source: what the segment's description
	// says that the ancestors have taken in, and what they have.
	floors, reached []level
	r               *record.Record
	slot            topic.Slot
}

func checkOrder(s *recordStep) string {
	if s.r.Position.After(s.prev) {
		return ""
	}
	return fmt.Sprintf("record %s follows record %s of the same source", s.r.Position, s.prev)
}

// checkFrom: a writer takes only what lies above the checkpoint that it started
// from (rule 12).
func checkFrom(s *recordStep) string {
	if s.r.Position.After(s.c.From) {
		return ""
	}
	return fmt.Sprintf("record %s lies below checkpoint %s, from which its writer read", s.r.Position, shown(s.c.From))
}

// checkLate: a record lies above all that the segment, or its ancestors, had
// taken in before (rules 10 and 11).
func checkLate(s *recordStep) string {
	have := s.taken[s.c.Source].Max(find(s.floors, uint32(s.slot)).at)
	if s.r.Position.After(have) {
		return ""
	}
	return fmt.Sprintf("record %s of source %s comes after the segment had taken in %s", s.r.Position, s.c.Source, have)
}

// checkLineage: a record lies above all that the ancestors hold of its slot, also
// where a checkpoint had passed it and no floor says so: each key is in order
// along the lineage. What another check
// names is left to it.
func checkLineage(s *recordStep) string {
	have := find(s.reached, uint32(s.slot)).at
	if s.r.Position.After(have) || !s.Range.Contains(s.slot) || checkLate(s) != "" {
		return ""
	}
	return fmt.Sprintf("record %s of source %s comes after an ancestor had taken in %s", s.r.Position, s.c.Source, have)
}

func checkRange(s *recordStep) string {
	if s.Range.Contains(s.slot) {
		return ""
	}
	return fmt.Sprintf("record %s has slot %d, the segment's range is %s", s.r.Position, s.slot, s.Range)
}

// slotOf is where a record belongs, by the topic's key setting. Rejected ones
// have no usable key (rule 23), but for those refused for their reference.
func slotOf(key topic.Key, source string, r *record.Record) topic.Slot {
	if r.Key == nil || r.Rejected != "" && r.Ref == nil || key == topic.KeyNone {
		return topic.SpreadSlot(source, r.Position)
	}
	return topic.SlotOf(r.Key)
}

// content is a chunk whose records have all been read.
type content struct {
	*segmentState
	c           segment.Chunk
	records     uint64
	bytes       uint64
	load        *slotLoads
	refs        references
	batches     []batchAt
	sum         recordSum // of a chunk that may be compacted
	first, last time.Time // append times of the first and last record
	end         topic.Position
}

func checkCount(s *content) string {
	if s.records == s.c.Count {
		return ""
	}
	return fmt.Sprintf("it holds %d records, its attributes say %d", s.records, s.c.Count)
}

func checkBytes(s *content) string {
	if s.bytes == s.c.Bytes {
		return ""
	}
	return fmt.Sprintf("its records have %d bytes, its attributes say %d", s.bytes, s.c.Bytes)
}

// checkLastRecord: the position is that of the last record, no more and no less.
func checkLastRecord(s *content) string {
	said := s.c.PositionOf(s.c.Source).At
	if s.records == 0 || said == s.end {
		return ""
	}
	return fmt.Sprintf("it says that source %s is taken in up to %s, its last record is %s", s.c.Source, said, s.end)
}

func checkPositionTime(s *content) string {
	said := s.c.PositionOf(s.c.Source).Time
	if s.records == 0 || said.IsZero() || said.Equal(s.last) {
		return ""
	}
	return fmt.Sprintf("the position of source %s has the time %s, its last record %s", s.c.Source, stamp(said), stamp(s.last))
}

// checkRecordTimes: First and Last are the times of the first and last record,
// moved up only as far as the chunk before, or the parents' seals, ask for.
func checkRecordTimes(s *content) string {
	if s.records == 0 || s.prev == nil {
		return ""
	}
	for _, t := range [...]struct {
		name       string
		said, real time.Time
	}{{"first", s.c.First, s.first}, {"last", s.c.Last, s.last}} {
		want := t.real
		if s.notBefore().After(want) {
			want = s.notBefore()
		}
		if !t.said.Equal(want) {
			return fmt.Sprintf("its %s time is %s, by its records it is %s", t.name, stamp(t.said), stamp(want))
		}
	}
	return ""
}

// records checks a chunk's bytes and records, and notes what is in it. at is
// the chunk's place.
func (v *verifier) records(ctx context.Context, s *segmentState, c segment.Chunk, at place) error {
	if s.givenUp(c) {
		v.trimmed(c) // what was in it cannot be missed
		return nil
	}
	file, err := v.fetch(ctx, c)
	if err == nil && file.lost != "" {
		var gone bool
		if gone, err = v.gone(ctx, s.ID, c.Entry.N); gone {
			return v.wentAway(ctx, s, c)
		}
	}
	if err != nil {
		return err
	}
	if !run(v, v.checks.stored, at, file) || file.lost != "" {
		v.broken = true
		return nil
	}
	v.slots.reset()
	found := &content{segmentState: s, c: c, load: &v.slots, refs: references{ranges: c.Pending}}
	err = v.scan(s, c, file.data, found, at)
	run(v, v.checks.decoded, at, err)
	if err != nil {
		v.broken = true
		return nil //nolint:nilerr // it is in the report: what is wrong with the data is no error
	}
	v.report.Records += found.records
	s.cover(offsets{c.Base, c.End()})
	if s.manifest != nil {
		s.marks = append(s.marks, mark{offsets{c.Base, c.End()}, found.sum.value(), c.Entry.Path})
	}
	if !v.full() && !run(v, v.checks.content, at, found) {
		v.broken = v.broken || found.records != c.Count
	}
	return v.batches(ctx, found.batches, c.Base, at)
}

// gone tells whether a chunk was trimmed since it was listed.
func (v *verifier) gone(ctx context.Context, id topic.SegmentID, n uint64) (bool, error) {
	head, _, err := commitlog.New(v.store.Filer, v.segmentDir(id), ".avro").Head(ctx)
	return err == nil && head > n, ifUnknown(err)
}

// wentAway goes on after a chunk that was trimmed before it could be read. If it was
// because its segment is compacted, the data files have its records.
func (v *verifier) wentAway(ctx context.Context, s *segmentState, c segment.Chunk) (err error) {
	if s.manifest == nil {
		s.manifest, err = v.loadManifest(ctx, s.ID)
	}
	if s.manifest == nil || s.manifest.err != nil {
		v.trimmed(c)
	}
	return err
}

// isPending tells whether a record is in one of the ranges.
func isPending(list []segment.Span, n uint64) bool {
	return slices.ContainsFunc(list, func(s segment.Span) bool { return s.First <= n && n <= s.Last })
}

// scan reads a chunk's records. Its error tells that the bytes are no chunk file.
func (v *verifier) scan(s *segmentState, c segment.Chunk, data []byte, found *content, at place) error {
	r, err := record.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	sizes, err := newSizes(data)
	if err != nil {
		return err
	}
	src := v.sourceOf(c.Source, at.path)
	if !src.from.After(c.From) {
		src.from, src.fromPath = c.From, at.path
	}
	v.chunks = append(v.chunks, chunkRef{at})
	var rec record.Record
	step := recordStep{segmentState: s, c: c, r: &rec, floors: s.floors[c.Source], reached: v.reached[c.Source]}
	for !v.full() {
		err := r.Read(&rec)
		if err == io.EOF { //nolint:errorlint // the Reader's contract is io.EOF itself
			return nil
		}
		size := uint64(0)
		if err == nil {
			size, err = sizes.next()
		}
		if err != nil {
			return fmt.Errorf("record %d: %w", found.records, err)
		}
		step.slot = slotOf(s.key, c.Source, &rec)
		at.offset = c.Base + found.records
		if !run(v, v.checks.record, at, &step) {
			v.broken = true
		}
		src.take(&rec, uint32(len(v.chunks)-1), uint32(found.records))
		found.take(&rec, step.slot, size)
		if s.manifest != nil {
			rec.Pending = rec.Ref != nil && rec.Rejected == "" && isPending(c.Pending, found.records-1)
			found.sum.add(&rec)
		}
		if rec.Rejected != "" {
			v.report.Rejected++
		}
		step.prev = rec.Position
	}
	return nil
}

func (s *content) take(r *record.Record, slot topic.Slot, size uint64) {
	if s.records == 0 {
		s.first = r.Time
	}
	s.refs.take(s.records, r)
	s.batches = batchesOf(s.batches, s.records, r)
	s.records++
	s.bytes += size
	s.last, s.end = r.Time, r.Position
	if s.Range.Contains(slot) {
		s.load.add(slot, size)
	}
}
