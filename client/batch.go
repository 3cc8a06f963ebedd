package client

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
)

// batch is some records of one topic on their way into one lane. Its batcher
// fills it under its lock; once sealed it belongs to the lane's sender, except
// that whoever comes first packs it.
type batch struct {
	queue *queue
	topic string
	born  time.Time // of the first record
	ready time.Time // when its queue was released; zero: it was never held
	after string    // as sent: what must be committed before it
	due   bool      // no need to wait for more records
	raw   []byte    // encoded records
	rows  int
	cost  int64 // of the producer's buffer budget
	slab  []Pending

	once    sync.Once
	codec   string
	payload []byte
	packErr error

	producer string // as sent
	sequence uint64

	// acked is closed when receipt and err are final. stored, made when the first
	// record asks for it, is closed when storedErr is final as well.
	acked     chan struct{}
	stored    chan struct{}
	receipt   Receipt // of row 0, Buffered
	err       error
	storedErr error
}

// slabs hold the Pendings of a batch, in steps, to save allocations.
const largestSlab = 256

// pending makes the Pending of the next row.
func (b *batch) pending(level Level) *Pending {
	if len(b.slab) == cap(b.slab) {
		b.slab = make([]Pending, 0, min(max(4, 2*cap(b.slab)), largestSlab))
	}
	if level == Stored && b.stored == nil {
		b.stored = make(chan struct{})
	}
	b.slab = append(b.slab, Pending{batch: b, row: uint32(b.rows), level: level})
	b.rows++
	return &b.slab[len(b.slab)-1]
}

// settled gives the channel that is closed when all of the batch's records have
// their outcome. While the batch is open its batcher must be locked.
func (b *batch) settled() <-chan struct{} {
	if b.stored != nil {
		return b.stored
	}
	return b.acked
}

// pack makes the payload out of a sealed batch. Publishers call it for the
// batches that they fill, so that compression runs beside the sender; the sender
// calls it for all, and waits if it is under way.
func (b *batch) pack(compression string) {
	b.once.Do(func() {
		if compression == Zstandard && b.queue.shrinks.worthTrying(len(b.raw)) && b.compress() {
			b.finishPacking(Zstandard)
			return
		}
		b.payload, b.packErr = record.EncodeBatch(getBuffer(len(b.raw)+reserved), Null, b.rows, b.raw)
		b.finishPacking(Null)
	})
}

// compress reports whether compression makes the batch clearly smaller.
func (b *batch) compress() bool {
	out, err := record.EncodeBatch(getBuffer(len(b.raw)+reserved), Zstandard, b.rows, b.raw)
	shrunk := err == nil && len(out) < len(b.raw)-len(b.raw)/shrinkBy
	b.queue.shrinks.note(shrunk)
	if !shrunk {
		putBuffer(out)
		return false
	}
	b.payload = out
	return true
}

func (b *batch) finishPacking(codec string) {
	b.codec = codec
	putBuffer(b.raw)
	b.raw = nil
	if b.packErr != nil {
		b.packErr = fmt.Errorf("encode a batch: %w", b.packErr)
	}
}

const (
	smallestShrinkable = 512 // bytes; below it a frame's overhead eats the gain
	shrinkBy           = 16  // compression must save one byte in so many
	notTried           = 15  // batches not compressed after one that did not shrink
)

// shrinkage remembers for a topic whether compression helps: its batches are
// much alike.
type shrinkage struct{ skip atomic.Int32 }

func (s *shrinkage) worthTrying(size int) bool {
	return size >= smallestShrinkable && s.skip.Add(-1) < 0
}

func (s *shrinkage) note(shrunk bool) {
	if shrunk {
		s.skip.Store(0)
	} else {
		s.skip.Store(notTried)
	}
}
