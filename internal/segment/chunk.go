package segment

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// SourcePosition says how far a source is taken in: everything up to At in this
// segment's range is in the segment or its ancestors. Time is the append time
// of the record at At: a source that shows another record there went back.
type SourcePosition struct {
	Source string
	At     topic.Position
	Time   time.Time
}

// Chunk is the state that an entry of a segment's log carries in its
// attributes. The zero Chunk is the state before the first.
type Chunk struct {
	Base      uint64 // offset of the first record
	Count     uint64 // records
	ByteBase  uint64 // bytes of all records before the first, trimmed or not
	Bytes     uint64 // of records, before compression
	First     time.Time
	Last      time.Time      // append times; never earlier than the chunk before
	Source    string         // the one source of all records here
	From      topic.Position // checkpoint from which the writer had read the source
	Positions []SourcePosition
	Load      []Bucket
	Hot       []HotSlot // ascending by slot
	Refs      uint64    // accepted records with a reference
	Pending   []Span    // which of them were not verified; ascending, see IsPending
	Digest    string    // "xxh64:" and 16 hex digits of the file's bytes
	Sealed    bool      // no records; nothing can follow
	// Floors, of a seal, is what the children inherit: per range and source, how
	// far it is taken in here or in the ancestors (rule 11). What lies at or
	// below the source's checkpoint is left out (rule 10).
	Floors []topic.Floor

	Entry commitlog.Entry
}

// End is the offset that the next record gets.
func (c Chunk) End() uint64 { return c.Base + c.Count }

// ByteEnd is ByteBase of the chunk that follows. The difference of two is what
// the segment took in between them.
func (c Chunk) ByteEnd() uint64 { return c.ByteBase + c.Bytes }

// PositionOf is how far a source is taken in, zero if it is not known here.
func (c Chunk) PositionOf(source string) SourcePosition {
	for _, p := range c.Positions {
		if p.Source == source {
			return p
		}
	}
	return SourcePosition{Source: source}
}

// Names of a chunk's attributes, after filer.AttrPrefix.
const (
	attrBase      = "Base"
	attrCount     = "Count"
	attrByteBase  = "Byte-Base"
	attrBytes     = "Bytes"
	attrFirst     = "First"
	attrLast      = "Last"
	attrSource    = "Source"
	attrFrom      = "From"
	attrPositions = "Positions"
	attrLoad      = "Load"
	attrHot       = "Hot"
	attrRefs      = "Refs"
	attrPending   = "Pending"
	attrDigest    = "Digest"
	attrSealed    = "Sealed"
	attrFloors    = "Floors"
)

// attrs encodes the chunk's state.
func (c Chunk) attrs() filer.Attrs {
	u := func(n uint64) string { return strconv.FormatUint(n, 10) }
	a := filer.Attrs{
		attrBase: u(c.Base), attrCount: u(c.Count), attrByteBase: u(c.ByteBase), attrBytes: u(c.Bytes),
		attrFirst: formatTime(c.First), attrLast: formatTime(c.Last),
		attrPositions: formatPositions(c.Positions),
	}
	if c.Sealed {
		a[attrSealed], a[attrFloors] = "true", formatFloors(c.Floors)
		return a
	}
	a[attrSource], a[attrFrom] = c.Source, formatFrom(c.From)
	a[attrLoad], a[attrDigest] = formatLoad(c.Load), c.Digest
	if len(c.Hot) > 0 {
		a[attrHot] = formatHot(c.Hot)
	}
	if c.Refs > 0 {
		a[attrRefs] = u(c.Refs)
	}
	if len(c.Pending) > 0 {
		a[attrPending] = formatPending(c.Pending)
	}
	return a
}

// parseChunk decodes an entry's attributes. Errors match filer.ErrCorrupt.
func parseChunk(e commitlog.Entry) (Chunk, error) {
	c := Chunk{Entry: e, Source: e.Attrs[attrSource], Digest: e.Attrs[attrDigest], Sealed: e.Attrs[attrSealed] == "true"}
	p := attrParser{attrs: e.Attrs}
	c.Base, c.Count = p.number(attrBase), p.number(attrCount)
	c.ByteBase, c.Bytes = p.number(attrByteBase), p.number(attrBytes)
	if c.End() < c.Base {
		p.fail(attrCount)
	}
	if c.ByteEnd() < c.ByteBase {
		p.fail(attrBytes)
	}
	c.First, c.Last = p.time(attrFirst), p.time(attrLast)
	if !c.Sealed {
		c.From = p.from()
	}
	c.Positions, c.Load, c.Hot, c.Floors = p.positions(), p.load(), p.hot(), p.floors()
	c.Refs, c.Pending = p.refs(c.Count), p.pending(c.Count)
	if p.err != nil {
		return Chunk{}, fmt.Errorf("%s: %w: %w", e.Path, filer.ErrCorrupt, p.err)
	}
	return c, nil
}

type attrParser struct {
	attrs filer.Attrs
	err   error
}

func (p *attrParser) fail(name string) {
	if p.err == nil {
		p.err = fmt.Errorf("attribute %s is %q", name, p.attrs[name])
	}
}

func (p *attrParser) number(name string) uint64 {
	n, err := strconv.ParseUint(p.attrs[name], 10, 64)
	if err != nil {
		p.fail(name)
	}
	return n
}

func (p *attrParser) time(name string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, p.attrs[name])
	if err != nil || formatTime(t) != p.attrs[name] {
		p.fail(name)
	}
	return t
}

func (p *attrParser) positions() (list []SourcePosition) {
	for _, field := range strings.Fields(p.attrs[attrPositions]) {
		sp, ok := parsePosition(field)
		if !ok {
			p.fail(attrPositions)
			return nil
		}
		list = append(list, sp)
	}
	return list
}

// parsePosition reads "source=position@micros".
func parsePosition(field string) (SourcePosition, bool) {
	source, rest, _ := strings.Cut(field, "=")
	at, micros, _ := strings.Cut(rest, "@")
	pos, err := topic.ParsePosition(at)
	us, err2 := strconv.ParseInt(micros, 10, 64)
	return SourcePosition{source, pos, time.UnixMicro(us).UTC()}, err == nil && err2 == nil && source != ""
}

// floors reads "lo-hi/source=position@micros …".
func (p *attrParser) floors() (list []topic.Floor) {
	for _, field := range strings.Fields(p.attrs[attrFloors]) {
		slots, rest, _ := strings.Cut(field, "/")
		from, to, _ := strings.Cut(slots, "-")
		lo, err := strconv.ParseUint(from, 10, 32)
		hi, err2 := strconv.ParseUint(to, 10, 32)
		sp, ok := parsePosition(rest)
		r := topic.Range{Lo: uint32(lo), Hi: uint32(hi)}
		if err != nil || err2 != nil || !ok || !r.Valid() {
			p.fail(attrFloors)
			return nil
		}
		list = append(list, topic.Floor{Range: r, Source: sp.Source, At: sp.At, Time: sp.Time})
	}
	return list
}

// from reads a checkpoint, "sequence" or, of a backfill, "sequence:row".
func (p *attrParser) from() topic.Position {
	at, err := topic.ParsePosition(p.attrs[attrFrom])
	if err != nil {
		p.fail(attrFrom)
	}
	return at
}

func formatFrom(at topic.Position) string {
	if at == (topic.Position{}) {
		return "0"
	}
	return at.String()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func formatPositions(list []SourcePosition) string {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b SourcePosition) int { return strings.Compare(a.Source, b.Source) })
	fields := make([]string, len(list))
	for i, p := range list {
		fields[i] = fmt.Sprintf("%s=%s@%d", p.Source, p.At, p.Time.UnixMicro())
	}
	return strings.Join(fields, " ")
}

func formatFloors(list []topic.Floor) string {
	fields := make([]string, len(list))
	for i, f := range list {
		fields[i] = fmt.Sprintf("%d-%d/%s=%s@%d", f.Lo, f.Hi, f.Source, f.At, f.Time.UnixMicro())
	}
	return strings.Join(fields, " ")
}

func digest(data []byte) string { return fmt.Sprintf("xxh64:%016x", xxhash.Sum64(data)) }

// MaxChunkFile bounds what a reader takes into memory for one chunk file.
const MaxChunkFile = 64 << 20

// ChunkError says which chunk file is wrong, and how. It matches
// filer.ErrCorrupt.
type ChunkError struct {
	Path   string
	Reason string
}

func (e *ChunkError) Error() string { return fmt.Sprintf("chunk %s: %s", e.Path, e.Reason) }

// Is makes it match filer.ErrCorrupt.
func (e *ChunkError) Is(target error) bool { return target == filer.ErrCorrupt }

// Records yields the chunk's records in order, after its bytes have been
// checked against its digest, and checks that there are as many as it says.
// Records whose reference was not verified say so.
func (s *Segment) Records(ctx context.Context, c Chunk) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		if c.Count == 0 {
			return
		}
		bad := func(format string, a ...any) {
			yield(record.Record{}, &ChunkError{c.Entry.Path, fmt.Sprintf(format, a...)})
		}
		data, err := s.fetch(ctx, c)
		if err != nil {
			yield(record.Record{}, err)
			return
		}
		if got := digest(data); got != c.Digest {
			bad("its bytes have the digest %s, its attributes say %s", got, c.Digest)
			return
		}
		r, err := record.NewReader(bytes.NewReader(data))
		if err != nil {
			bad("%v", err)
			return
		}
		n := uint64(0)
		for ; ; n++ {
			rec, err := r.Next()
			if err == io.EOF { //nolint:errorlint // the Reader's contract is io.EOF itself
				break
			}
			if err != nil {
				bad("record %d: %v", n, err)
				return
			}
			rec.Pending = rec.Ref != nil && rec.Rejected == "" && c.IsPending(n)
			if !yield(rec, nil) {
				return
			}
		}
		if n != c.Count {
			bad("it holds %d records, its attributes say %d", n, c.Count)
		}
	}
}

func (s *Segment) fetch(ctx context.Context, c Chunk) (data []byte, err error) {
	if c.Entry.Size > MaxChunkFile {
		return nil, &ChunkError{c.Entry.Path, fmt.Sprintf("it has %d bytes, more than a chunk can have", c.Entry.Size)}
	}
	if len(c.Entry.Blobs) == 0 {
		return c.Entry.Content, nil
	}
	err = filer.Retry(ctx, func(ctx context.Context) error {
		r, err := s.topic.store.Filer.Open(ctx, c.Entry.Entry, 0)
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // read-only
		data, err = io.ReadAll(io.LimitReader(r, MaxChunkFile+1))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read chunk %s: %w", c.Entry.Path, err)
	}
	return data, nil
}
