package rows

import (
	"fmt"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// maxPages bounds what the pages of all columns of a Parquet file take at a time,
// packed and unpacked, dictionaries included. Of one column that is a page of about
// 80 MiB; a page of plain values that is packed by nothing or by gzip can have any
// size, since it is unpacked bit by bit.
const maxPages = 112 << 20

// memoryError tells that a file would need more than maxPages. The allocator panics
// with it, because the library expects allocators to succeed, and the border of this
// package makes a *FileError of it.
type memoryError struct{ wanted, held int64 }

func (e *memoryError) Error() string {
	return fmt.Sprintf("its pages are too large: %d bytes and then %d, of at most %d at a time", e.held, e.wanted, int64(maxPages))
}

// pageMemory is the library's allocator for one file. It hands out no more than
// maxPages, and large pieces again and again: garbage of that size would double what
// the process takes. The library frees from finalizers too, so it locks.
type pageMemory struct {
	mu   sync.Mutex
	used int64    // handed out, or charged
	idle [][]byte // freed pieces, which are not in used
	size int64    // of idle
}

var _ memory.Allocator = (*pageMemory)(nil)

const (
	reuseFrom = 64 << 10 // bytes of a piece that is worth keeping
	mostIdle  = 256      // pieces
)

func (m *pageMemory) Allocate(size int) []byte {
	if err := m.charge(int64(size)); err != nil {
		panic(err)
	}
	return m.take(size)
}

// take gives a piece that is charged for.
func (m *pageMemory) take(size int) []byte {
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
	for len(m.idle) > 0 && m.used+m.size > maxPages {
		m.size -= int64(cap(m.idle[0]))
		m.idle = slices.Delete(m.idle, 0, 1)
	}
	return make([]byte, size)
}

func (m *pageMemory) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) {
		m.release(int64(len(b) - size))
		return b[:size]
	}
	grown := m.Allocate(size)
	copy(grown, b)
	m.Free(b)
	return grown
}

func (m *pageMemory) Free(b []byte) {
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

// charge counts memory that is taken elsewhere.
func (m *pageMemory) charge(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > maxPages {
		return &memoryError{n, m.used}
	}
	m.used += n
	return nil
}

func (m *pageMemory) release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
}
