package verify

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/record"
)

// recordSum is a digest of consecutive records: all that a reader gets of them.
type recordSum struct {
	d   xxhash.Digest
	set bool
	buf []byte
}

func (s *recordSum) reset() { s.set = false }

func (s *recordSum) value() uint64 {
	if !s.set {
		return 0
	}
	return s.d.Sum64()
}

// add takes a record in.
func (s *recordSum) add(r *record.Record) {
	if !s.set {
		s.d.Reset()
		s.set = true
	}
	b := s.buf[:0]
	b = binary.AppendVarint(b, r.Time.UnixMicro())
	b = binary.AppendUvarint(b, r.Position.Sequence)
	b = binary.AppendUvarint(b, uint64(r.Position.Row))
	b = flagged(b, r.ID != nil)
	if r.ID != nil {
		b = binary.AppendUvarint(texts(b, r.ID.Producer), r.ID.Sequence)
	}
	b = texts(b, r.Rejected)
	if b = flagged(b, !r.EventTime.IsZero()); !r.EventTime.IsZero() {
		b = binary.AppendVarint(b, r.EventTime.UnixMicro())
	}
	b = texts(flagged(b, r.Key != nil), string(r.Key))
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		b = texts(texts(b, h.Name), string(h.Value))
	}
	b = sumRef(b, r.Ref)
	b = flagged(b, r.Pending)
	b = binary.AppendUvarint(flagged(b, r.Value != nil), uint64(len(r.Value)))
	s.d.Write(b)
	s.d.Write(r.Value)
	s.buf = b
}

func sumRef(b []byte, f *record.Ref) []byte {
	if b = flagged(b, f != nil); f == nil {
		return b
	}
	b = binary.AppendVarint(texts(b, f.URL), f.Size)
	b = texts(texts(texts(b, f.ETag), f.Version), f.ContentType)
	b = texts(b, string(f.SHA256))
	if b = flagged(b, f.Records != nil); f.Records != nil {
		b = binary.AppendVarint(b, *f.Records)
	}
	return b
}

func texts(b []byte, s string) []byte { return append(binary.AppendUvarint(b, uint64(len(s))), s...) }

func flagged(b []byte, set bool) []byte {
	if set {
		return append(b, 1)
	}
	return append(b, 0)
}
