package compactor

import (
	"encoding/binary"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/parquet"
)

// sum is a checksum of rows in their order, of everything in them. It is compared within
// one rewriting and kept nowhere.
type sum struct {
	hash *xxhash.Digest
	buf  []byte
}

func newSum() sum { return sum{hash: xxhash.New()} }

func (s *sum) value() uint64 { return s.hash.Sum64() }

func (s *sum) add(r *parquet.Row) {
	s.buf = s.buf[:0]
	s.text(string(r.Segment))
	s.text(r.Source)
	s.text(r.Error)
	s.text(r.Rejected)
	s.number(r.Offset)
	s.number(uint64(uint32(r.Batch)))
	s.number(r.Position.Sequence)
	s.number(uint64(r.Position.Row))
	s.time(r.Time)
	s.time(r.EventTime)
	if r.ID != nil {
		s.text(r.ID.Producer)
		s.number(r.ID.Sequence)
	}
	s.number(uint64(len(r.Headers)))
	for _, h := range r.Headers {
		s.text(h.Name)
		s.bytes(h.Value)
	}
	s.ref(r)
	s.bytes(r.Key)
	_, _ = s.hash.Write(s.buf) // never fails
	s.value8(r.Value)
}

// ref adds the reference.
func (s *sum) ref(r *parquet.Row) {
	f := r.Ref
	if f == nil {
		s.number(0)
		return
	}
	s.number(1)
	s.text(f.URL)
	s.number(uint64(f.Size))
	s.text(f.ETag)
	s.text(f.Version)
	s.text(f.ContentType)
	s.bytes(f.SHA256)
	if f.Records != nil {
		s.number(uint64(*f.Records))
	}
	if r.Pending {
		s.number(1)
	}
}

// value8 adds a value without copying it.
func (s *sum) value8(v []byte) {
	s.buf = s.buf[:0]
	s.length(v)
	_, _ = s.hash.Write(s.buf)
	_, _ = s.hash.Write(v)
}

// length adds how long bytes are; nil is not empty.
func (s *sum) length(b []byte) {
	if b == nil {
		s.number(0)
		return
	}
	s.number(uint64(len(b)) + 1)
}

func (s *sum) bytes(b []byte) {
	s.length(b)
	s.buf = append(s.buf, b...)
}

func (s *sum) text(t string) {
	s.number(uint64(len(t)))
	s.buf = append(s.buf, t...)
}

func (s *sum) number(n uint64) { s.buf = binary.LittleEndian.AppendUint64(s.buf, n) }

func (s *sum) time(t time.Time) {
	if t.IsZero() {
		s.number(1 << 63)
		return
	}
	s.number(uint64(t.UnixMicro()))
}
