package refcheck

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
)

// id stands for a name, or for all that a reference says. Two that differ have
// the same with a probability of 2^-128, also if somebody tries to make it so.
type id [16]byte

func idOf(format string, args ...any) id {
	sum := sha256.Sum256(fmt.Appendf(nil, format, args...))
	return id(sum[:16])
}

// nameID is the same for all names that SeaweedFS has one entry for.
func nameID(n object.Name) id {
	return idOf("%s/%s", n.Bucket, strings.TrimSuffix(filer.CleanKey(n.Key), "/"))
}

// maxNames bounds what is kept of the names of uploads: 256 MiB, and twice that
// while there come many new ones.
const maxNames = 1 << 24

// names is a set of ids, of 16 bytes each. Those that come again cost nothing for
// long.
type names struct {
	sorted, fresh []id
	full          bool // there were more than maxNames, and some are missing
}

func (s *names) add(n id) {
	if s.full {
		return
	}
	s.fresh = append(s.fresh, n)
	if len(s.fresh) >= max(len(s.sorted), 1<<12) {
		s.settle()
		s.full = len(s.sorted) > maxNames
	}
}

// settle puts what was added where has finds it.
func (s *names) settle() {
	s.sorted = append(s.sorted, s.fresh...)
	slices.SortFunc(s.sorted, compare)
	s.sorted, s.fresh = slices.Compact(s.sorted), s.fresh[:0]
}

// has tells whether an id is among those that were added before the last settle.
func (s *names) has(n id) bool {
	_, found := slices.BinarySearchFunc(s.sorted, n, compare)
	return found
}

func compare(a, b id) int { return bytes.Compare(a[:], b[:]) }
