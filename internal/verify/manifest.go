package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// manifestFormat is the one that is known.
const manifestFormat = 1

// GivenUp is records that an operator gave up, as a segment's manifest says.
type GivenUp struct {
	Segment topic.SegmentID `json:"segment"`
	segment.DroppedRange
}

// manifestStep is a manifest with what its segment's log says.
type manifestStep struct {
	segment.Manifest
	id   topic.SegmentID
	err  error
	seal *segment.Chunk // nil: it is not known
	// first is the chunk with number 0, if it was there.
	first *segment.Chunk
	// bytes are those of the chunks that were there, and all says that these were all.
	bytes uint64
	all   bool
}

// checkManifestFile: a manifest can be read, and is that of its segment.
func checkManifestFile(s manifestStep) string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case s.Format != manifestFormat:
		return fmt.Sprintf("it has the format %d, known is %d", s.Format, manifestFormat)
	case s.Segment != s.id:
		return fmt.Sprintf("it is the manifest of segment %.100q", s.Segment)
	}
	for _, f := range s.Files {
		if want := dataName(f); f.Name != want {
			return fmt.Sprintf("a file with the offsets %d to %d and the digest %.80q is called %.120q", f.First, f.Last, f.Digest, f.Name)
		}
	}
	return ""
}

// dataName is how a data file is called, by its offsets and its content (rule 35).
func dataName(f segment.DataFile) string {
	digest, ok := strings.CutPrefix(f.Digest, "sha256:")
	if !ok || len(digest) != 64 {
		return ""
	}
	return fmt.Sprintf("%020d-%020d-%s.parquet", f.First, f.Last, digest[:16])
}

// checkManifestSeal: it ends where the segment does, and begins where its first chunk
// did.
func checkManifestSeal(s manifestStep) string {
	switch {
	case s.err != nil || s.seal == nil:
		return ""
	case !s.seal.Sealed:
		return "the segment has a manifest, but is not sealed"
	case s.Seal != s.seal.Entry.N:
		return fmt.Sprintf("it says that entry %d is the seal, that is %d", s.Seal, s.seal.Entry.N)
	case s.End != s.seal.Base:
		return fmt.Sprintf("it ends before offset %d, the seal says %d", s.End, s.seal.Base)
	case s.first != nil && s.Base != s.first.Base:
		return fmt.Sprintf("it begins at offset %d, the first chunk at %d", s.Base, s.first.Base)
	}
	return ""
}

// checkManifestRanges: its files, and what was given up, are all offsets once, in order.
// Files of one batch share its offset.
func checkManifestRanges(s manifestStep) string {
	if s.err != nil {
		return ""
	}
	next, dropped := s.Base, s.Dropped
	give := func() {
		for len(dropped) > 0 && dropped[0].First == next && dropped[0].Last >= next {
			next, dropped = dropped[0].Last+1, dropped[1:]
		}
	}
	for i, f := range s.Files {
		give()
		shared := i > 0 && f.First+1 == next && s.Files[i-1].Last == f.First
		if f.First != next && !shared || f.Last < f.First {
			return fmt.Sprintf("file %s has the offsets %d to %d, expected is %d", f.Name, f.First, f.Last, next)
		}
		next = f.Last + 1
	}
	give()
	switch {
	case len(dropped) > 0:
		return fmt.Sprintf("the offsets %d to %d are given up, but are no gap between files", dropped[0].First, dropped[0].Last)
	case next != s.End:
		return fmt.Sprintf("its files end before offset %d, it says %d", next, s.End)
	}
	return ""
}

// checkManifestSums: what it says of all files is what it says of each, and of the
// records what their chunks said.
func checkManifestSums(s manifestStep) string {
	if s.err != nil {
		return ""
	}
	var rows, lost uint64
	for _, f := range s.Files {
		rows += f.Rows
	}
	for _, d := range s.Dropped {
		lost += d.Last - d.First + 1
	}
	switch records := s.End - s.Base - lost; {
	case s.Records != records && checkManifestRanges(s) == "":
		return fmt.Sprintf("it says %d records, its offsets are %d", s.Records, records)
	case s.Rows != rows:
		return fmt.Sprintf("it says %d rows, its files have %d", s.Rows, rows)
	case s.all && lost == 0 && s.Bytes != s.bytes:
		return fmt.Sprintf("it says that the records have %d bytes, their chunks say %d", s.Bytes, s.bytes)
	}
	return ""
}

// loadManifest reads a segment's manifest. Nil and no error: there is none. What is
// wrong with it is in its err.
func (v *verifier) loadManifest(ctx context.Context, id topic.SegmentID) (*manifestStep, error) {
	m := &manifestStep{id: id}
	var e filer.Entry
	var data []byte
	if e, data, m.err = v.loadFile(ctx, v.manifestPath(id)); m.err == nil {
		m.err = m.read(data, e.Attrs["Digest"])
	}
	if errors.Is(m.err, filer.ErrNotFound) {
		return nil, nil
	}
	return m, ifUnknown(m.err)
}

func (v *verifier) manifestPath(id topic.SegmentID) string {
	return path.Join(v.segmentDir(id), "manifest.json")
}

// read decodes a manifest whose bytes have the digest that its attributes say.
func (s *manifestStep) read(data []byte, digest string) error {
	if got := fmt.Sprintf("xxh64:%016x", xxhash.Sum64(data)); got != digest {
		return fmt.Errorf("%w: its bytes have the digest %s, its attributes say %.40q", filer.ErrCorrupt, got, digest)
	}
	if err := json.Unmarshal(data, &s.Manifest); err != nil {
		return fmt.Errorf("%w: %w", filer.ErrCorrupt, err)
	}
	return nil
}

func (v *verifier) loadFile(ctx context.Context, path string) (e filer.Entry, data []byte, err error) {
	err = filer.Retry(ctx, func(ctx context.Context) (err error) { e, err = v.store.Filer.Lookup(ctx, path); return err })
	if err == nil {
		data, err = v.content(ctx, e)
	}
	return e, data, err
}

func (v *verifier) loadJSON(ctx context.Context, path string, into any) error {
	_, data, err := v.loadFile(ctx, path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%w: %w", filer.ErrCorrupt, err)
	}
	return nil
}

// aside reads what stands beside the log of a segment that an edit has ended: its
// manifest, and what of its records an operator gave up.
func (v *verifier) aside(ctx context.Context, s *segmentState) (err error) {
	if s.ended.IsZero() {
		return nil
	}
	if s.manifest, err = v.loadManifest(ctx, s.ID); err != nil {
		return err
	}
	if s.manifest != nil && s.manifest.err == nil {
		s.dropped = s.manifest.Dropped
		return nil
	}
	var q segment.Quarantine
	err = v.loadJSON(ctx, path.Join(v.segmentDir(s.ID), "quarantine.json"), &q)
	if err == nil {
		s.dropped = q.Drop
	}
	return ifUnknown(err)
}

// givenUp tells whether all records of a chunk were given up.
func (s *segmentState) givenUp(c segment.Chunk) bool {
	for _, d := range s.dropped {
		if c.Count > 0 && d.First <= c.Base && c.End()-1 <= d.Last {
			return true
		}
	}
	return false
}

// compacted judges a segment's manifest and its data files, after its chunks.
func (v *verifier) compacted(ctx context.Context, s *segmentState) error {
	if s.manifest == nil && s.prev != nil && s.prev.Sealed {
		// It may have been made while the chunks were read.
		var err error
		if s.manifest, err = v.loadManifest(ctx, s.ID); err != nil {
			return err
		}
	}
	for _, d := range s.dropped {
		v.report.GivenUp = append(v.report.GivenUp, GivenUp{s.ID, d})
	}
	m := s.manifest
	if m == nil {
		return nil
	}
	v.report.Compacted++
	m.seal, m.first, m.bytes = s.prev, s.first, s.bytes
	m.all = s.prev != nil && s.covers(m.Base, s.prev.Base)
	at := place{path: v.manifestPath(s.ID), segment: s.ID, offset: m.Base}
	if !run(v, v.checks.manifest, at, *m) {
		v.broken = true
		if m.err != nil || m.Segment != s.ID {
			return nil //nolint:nilerr // it is in the report: what is wrong with the data is no error
		}
	}
	if len(m.Dropped) > 0 && s.prev != nil {
		v.trimmed(*s.prev) // what was in them cannot be missed
	}
	if err := v.data(ctx, s, *m); err != nil {
		return err
	}
	return v.recorded(ctx, m.Manifest)
}
