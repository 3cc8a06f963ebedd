package client

import (
	"math/bits"
	"sync"
)

// Buffers come in powers of two, so that many quiet topics hold little and busy
// ones reuse big buffers.
const (
	smallestBuffer = 9  // 512 B
	largestBuffer  = 20 // 1 MiB
)

var bufferPools [largestBuffer + 1]sync.Pool

// getBuffer returns an empty buffer of at least n bytes.
func getBuffer(n int) []byte {
	class := max(bits.Len(uint(max(n, 1)-1)), smallestBuffer)
	if class > largestBuffer {
		return make([]byte, 0, n)
	}
	if b, ok := bufferPools[class].Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, 1<<class)
}

// putBuffer takes a buffer back that nobody uses any more. Any buffer will do.
func putBuffer(b []byte) {
	class := bits.Len(uint(cap(b))) - 1 // the largest class that it can serve
	if class >= smallestBuffer && class <= largestBuffer {
		b = b[:0]
		bufferPools[class].Put(&b)
	}
}

// fifo is a queue that uses its memory again.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }
func (f *fifo[T]) peek() T  { return f.items[f.head] }

func (f *fifo[T]) push(v T) {
	if f.head > 32 && f.head > len(f.items)/2 {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

func (f *fifo[T]) pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	if f.head++; f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
	return v
}
