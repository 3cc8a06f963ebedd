package guard

import (
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// MemoryError tells that a file would need more than its memory. The allocator panics
// with it, because the library expects allocators to succeed.
type MemoryError struct{ Wanted, Held, Limit int64 }

func (e *MemoryError) Error() string {
	return fmt.Sprintf("its pages are too large: %d bytes and then %d, of at most %d at a time", e.Held, e.Wanted, e.Limit)
}

// Memory is the library's allocator for one file. It hands out no more than its limit,
// and large pieces again and again: garbage of that size would double what the process
// takes. The library frees from finalizers too, so it locks.
type Memory struct {
	limit int64

	mu   sync.Mutex
	used int64    // handed out, or charged
	idle [][]byte // freed pieces, which are not in used
	size int64    // of idle
}

var _ memory.Allocator = (*Memory)(nil)

// NewMemory makes an allocator that hands out so many bytes at a time.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

const (
	reuseFrom = 64 << 10 // bytes of a piece that is worth keeping
	mostIdle  = 256      // pieces
)

// Allocate implements memory.Allocator.
func (m *Memory) Allocate(size int) []byte {
	if err := m.Charge(int64(size)); err != nil {
		panic(err)
	}
	return m.take(size)
}

// take gives a piece that is charged for.
func (m *Memory) take(size int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size >= reuseFrom {
		for i, b := range m.idle {
			if cap(b) >= size && cap(b) <= size+size/4 {
				m.idle = slices.Delete(m.idle, i, i+1)
				m.size -= int64(cap(b))
				return b[:size]
			}
		}
	}
	for len(m.idle) > 0 && m.used+m.size > m.limit {
		m.size -= int64(cap(m.idle[0]))
		m.idle = slices.Delete(m.idle, 0, 1)
	}
	return make([]byte, size)
}

// Reallocate implements memory.Allocator.
func (m *Memory) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) {
		m.Release(int64(len(b) - size))
		return b[:size]
	}
	grown := m.Allocate(size)
	copy(grown, b)
	m.Free(b)
	return grown
}

// Free implements memory.Allocator.
func (m *Memory) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= int64(len(b))
	if cap(b) >= reuseFrom && len(m.idle) < mostIdle {
		m.idle = append(m.idle, b[:0])
		m.size += int64(cap(b))
	}
}

// Charge counts memory that is taken elsewhere.
func (m *Memory) Charge(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.limit {
		return &MemoryError{n, m.used, m.limit}
	}
	m.used += n
	return nil
}

// Release takes back what was charged.
func (m *Memory) Release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}
