package verify

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// rowRun is consecutive rows of one message, lo to hi, in one chunk.
type rowRun struct {
	seq    uint64
	lo, hi uint32
	event  bool   // of an S3 event notification
	chunk  uint32 // in verifier.chunks
	at     uint32 // offset of row lo, from the chunk's base
}

// source is what the topic's files hold of one source.
type source struct {
	name     string
	path     string // of the chunk that was found first
	runs     []rowRun
	batches  []uint64 // hashes of the identities of batches
	rejected []uint64 // messages whose first row is rejected
	// from is the highest checkpoint that a chunk says its writer started from,
	// and fromPath that chunk.
	from     topic.Position
	fromPath string
	// known is the sequence up to which chunks may have been trimmed away, so
	// that nothing can be missing up to it.
	known uint64

	counted       *tallied           // of a backfill; as it was before the chunks were read
	checkpoint    segment.Checkpoint // read after the chunks
	checkpointErr error
}

// sourceOf is what is known of a source; path is of a chunk that tells of it.
func (v *verifier) sourceOf(name, path string) *source {
	src := v.sources[name]
	if src == nil {
		src = &source{name: name, path: path}
		v.sources[name] = src
	}
	return src
}

// trimmed notes how far each source had been taken in by chunks that are gone, by
// the first entry that is left.
func (v *verifier) trimmed(c segment.Chunk) {
	v.trims = append(v.trims, c.Positions)
	for _, p := range c.Positions {
		src := v.sourceOf(p.Source, c.Entry.Path)
		src.known = max(src.known, p.At.Sequence)
	}
}

// take notes a record that is in a chunk.
func (s *source) take(r *record.Record, chunk, at uint32) {
	p := r.Position
	if n := len(s.runs) - 1; n >= 0 {
		if last := &s.runs[n]; last.chunk == chunk && last.seq == p.Sequence && last.hi != math.MaxUint32 && last.hi+1 == p.Row {
			last.hi = p.Row
			return
		}
	}
	event := r.ID == nil && len(r.Headers) > 0 && r.Headers[0].Name == "S3-Event"
	s.runs = append(s.runs, rowRun{p.Sequence, p.Row, p.Row, event, chunk, at})
	if r.Rejected != "" && r.Ref == nil && p.Row == 0 { // one that is refused for its reference says nothing of the others
		s.rejected = append(s.rejected, p.Sequence)
	}
	if p.Row == 0 {
		s.batches = append(s.batches, identities(r)...)
	}
}

// identities gives the hash of the identity of the batch that brought a record,
// if one did. A rejected record has it among its headers only.
func identities(r *record.Record) []uint64 {
	if r.ID != nil {
		return []uint64{batchHash(r.ID.Producer, r.ID.Sequence)}
	}
	if r.Rejected == "" {
		return nil
	}
	header := map[string][]string{}
	for _, h := range r.Headers {
		header[h.Name] = append(header[h.Name], string(h.Value))
	}
	if hash, ok := identity(header); ok {
		return []uint64{hash}
	}
	return nil
}

// identity is the hash of the identity in a batch's headers.
func identity(header map[string][]string) (hash uint64, ok bool) {
	producer, seq := header[lane.HeaderProducer], header[lane.HeaderSequence]
	if header[lane.HeaderBatch] == nil || len(producer) != 1 || len(seq) != 1 {
		return 0, false
	}
	n, err := strconv.ParseUint(seq[0], 10, 63)
	return batchHash(producer[0], n), err == nil
}

// batchHash stands for a batch's identity: 8 bytes for each are kept. That two
// of some million are the same is unlikely enough.
func batchHash(producer string, seq uint64) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(producer)
	_, _ = d.Write([]byte{0, byte(seq), byte(seq >> 8), byte(seq >> 16), byte(seq >> 24),
		byte(seq >> 32), byte(seq >> 40), byte(seq >> 48), byte(seq >> 56)})
	return d.Sum64()
}

// rowStep is a run of rows of a message with what comes before it.
type rowStep struct {
	source string
	first  bool   // of its message
	prev   rowRun // the run before, of the same message unless first
	run    rowRun
	where  string // the chunk of prev
	due    bool   // all rows of the message must be there
}

// checkTwice: each (source, sequence, row) is there once.
func checkTwice(s rowStep) string {
	if s.first || s.run.lo > s.prev.hi {
		return ""
	}
	return fmt.Sprintf("row %d of message %d of source %s is also in %s", s.run.lo, s.run.seq, s.source, s.where)
}

// checkMissing: up to the checkpoint, a message's rows are there from 0 on
// without a hole. Not so those of S3 event notifications: events that make no record
// use their rows up.
func checkMissing(s rowStep) string {
	next := uint32(0)
	if !s.first {
		next = s.prev.hi + 1
	}
	if !s.due || s.run.lo <= next || s.run.event {
		return ""
	}
	return fmt.Sprintf("rows [%d,%d) of message %d of source %s are missing, row %d is there", next, s.run.lo, s.run.seq, s.source, s.run.lo)
}

// source judges one source over all segments.
func (v *verifier) source(ctx context.Context, s *source) error {
	s.checkpoint, s.checkpointErr = v.loadCheckpoint(ctx, s.name)
	if s.checkpointErr != nil && !definite(s.checkpointErr) {
		return s.checkpointErr
	}
	if t, ok := v.tallied[s.name]; ok {
		s.counted = &t
		s.known = max(s.known, v.unnamed(s.name, t.at))
	}
	run(v, v.checks.source, place{path: v.store.CheckpointFile(s.name).Path()}, s)
	if v.broken {
		return nil
	}
	trail, err := v.trailOf(ctx, s.name)
	if err != nil {
		return err
	}
	slices.SortFunc(s.runs, func(a, b rowRun) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.lo, b.lo)) })
	slices.Sort(s.rejected)
	slices.Sort(s.batches)
	due := v.before[s.name].Sequence
	step := rowStep{source: s.name, first: true}
	for _, r := range s.runs {
		step.first = step.prev.seq != r.seq
		step.run, step.due = r, r.seq <= due && r.seq > s.known && !trail.givenUp(r.seq) && !s.holes(r.seq)
		if !step.first {
			step.where = v.chunks[step.prev.chunk].path
		}
		at := v.chunks[r.chunk].place
		at.offset += uint64(r.at)
		run(v, v.checks.rows, at, step)
		if v.full() {
			return nil
		}
		if step.first || r.hi > step.prev.hi {
			step.prev = r
		}
	}
	return nil
}

// rowsOf counts the rows of a message, from run i on, and returns where the
// search for later messages goes on.
func (s *source) rowsOf(seq uint64, i int) (rows uint64, next int) {
	for i < len(s.runs) && s.runs[i].seq < seq {
		i++
	}
	for ; i < len(s.runs) && s.runs[i].seq == seq; i++ {
		rows += uint64(s.runs[i].hi-s.runs[i].lo) + 1
	}
	return rows, i
}
