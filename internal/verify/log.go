package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
)

// logState is what a commit log looks like from outside.
type logState struct {
	head    uint64
	headErr error
	last    *commitlog.Entry // nil: the log is empty
}

// checkHead: there is a head, and it does not lie beyond the last entry (rules 3
// and 6).
func checkHead(s logState) string {
	switch {
	case s.headErr != nil:
		return fmt.Sprintf("its head cannot be read: %v", s.headErr)
	case s.head > 0 && s.last == nil:
		return fmt.Sprintf("head is %d, but there is no entry at or above it", s.head)
	}
	return ""
}

// link is an entry with the one that stands before it in the listing.
type link struct {
	expect uint64 // the number that is next
	prev   *commitlog.Entry
	e      commitlog.Entry
}

// checkGap: numbers are dense from head on.
func checkGap(l link) string {
	switch l.e.N {
	case l.expect:
		return ""
	case l.expect + 1:
		return fmt.Sprintf("entry %d is missing, but %d is there", l.expect, l.e.N)
	}
	return fmt.Sprintf("entries %d to %d are missing, but %d is there", l.expect, l.e.N-1, l.e.N)
}

// checkFork: each entry names the one before it (rule 5).
func checkFork(l link) string {
	before := ""
	switch {
	case l.e.ID == "":
		return fmt.Sprintf("entry %d has no Entry-Id: it was not written by a log", l.e.N)
	case l.prev != nil && l.prev.N+1 == l.e.N:
		before = l.prev.ID
	case l.e.N > 0:
		return "" // what it continues is not there to compare with
	}
	if l.e.Prev() == before {
		return ""
	}
	return fmt.Sprintf("entry %d continues %q, but what stands before it is %q", l.e.N, l.e.Prev(), before)
}

// walk checks a commit log and yields its entries from head on. It ends after
// the first error, which tells that the filer could not be asked.
func (v *verifier) walk(ctx context.Context, log *commitlog.Log, ext string, at place) iter.Seq2[link, error] {
	return func(yield func(link, error) bool) {
		head, _, headErr := log.Head(ctx)
		if headErr != nil && !definite(headErr) {
			yield(link{}, headErr)
			return
		}
		var prev *commitlog.Entry
		expect := head
		for e, err := range v.entries(ctx, log, ext, head) {
			if err == nil && e.N > expect {
				expect, err = v.missed(ctx, log, expect, e.N)
			}
			if err != nil {
				yield(link{}, err)
				return
			}
			l := link{expect, prev, e}
			at.path = log.Path(e.N)
			run(v, v.checks.link, at, l)
			if e.N != expect {
				v.broken = true
			}
			if !yield(l, nil) || v.full() {
				return
			}
			prev, expect = &e, e.N+1
		}
		at.path = log.Dir()
		end := logState{head, headErr, prev}
		run(v, v.checks.log, at, end)
		v.broken = v.broken || checkHead(end) != ""
	}
}

// missed explains numbers that a listing does not show: a trim that went past
// them meanwhile is no gap. It returns what must come next.
func (v *verifier) missed(ctx context.Context, log *commitlog.Log, expect, n uint64) (uint64, error) {
	head, _, err := log.Head(ctx)
	if err != nil && !definite(err) {
		return 0, err
	}
	return min(max(expect, head), n), nil
}

// entries lists a log's entries from head on, page by page. A listing that races
// with creates may show n+1 without n; that one is then looked up by name.
func (v *verifier) entries(ctx context.Context, log *commitlog.Log, ext string, head uint64) iter.Seq2[commitlog.Entry, error] {
	return func(yield func(commitlog.Entry, error) bool) {
		next := head
		after := ""
		if head > 0 {
			after = log.Name(head - 1)
		}
		for {
			page, err := v.list(ctx, log.Dir(), after)
			if err != nil {
				yield(commitlog.Entry{}, err)
				return
			}
			for _, e := range page {
				n, ok := number(e.Name(), ext)
				if !ok || n < head {
					continue
				}
				for ; next < n; next++ {
					late, err := log.At(ctx, next)
					if errors.Is(err, filer.ErrNotFound) {
						break
					}
					if !yield(late, err) || err != nil {
						return
					}
				}
				if !yield(commitlog.Entry{N: n, Entry: e}, nil) {
					return
				}
				next = n + 1
			}
			if len(page) == 0 {
				return
			}
			after = page[len(page)-1].Name()
		}
	}
}

// listPage is how many entries are listed at a time; their inline contents are
// at most 16 MiB.
const listPage = 256

func (v *verifier) list(ctx context.Context, dir, after string) (page []filer.Entry, err error) {
	err = filer.Retry(ctx, func(ctx context.Context) error {
		page, err = v.store.Filer.List(ctx, dir, after, listPage)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return page, nil
}

// number reads the file name of an entry: 16 digits and the extension.
func number(name, ext string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ext)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}
