package commitlog

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spillway-mq/spillway/internal/filer"
)

// listPage is how many entries are asked for at a time.
const listPage = 256

// Trim makes every entry below the given number void and deletes it, in
// ascending order. head moves first, by compare-and-swap (rule 3); a crash in
// between leaves files below head, which the next Trim removes. The tail entry
// cannot be trimmed: below must be at most its number.
func (l *Log) Trim(ctx context.Context, below uint64) error {
	head, id, err := l.Head(ctx)
	if err != nil {
		return err
	}
	if below > head {
		if _, err := l.At(ctx, below); err != nil {
			return fmt.Errorf("trim %s below %d: %w", l.dir, below, err)
		}
		if err := filer.Replace(ctx, l.store, l.headPath(), id, headFile(below)); err != nil {
			return err
		}
		head = below
	}
	return l.sweep(ctx, head)
}

// sweep deletes what lies below head.
func (l *Log) sweep(ctx context.Context, head uint64) error {
	for {
		page, err := l.list(ctx, "")
		if err != nil {
			return err
		}
		for _, e := range page {
			n, ok := l.number(e.Name())
			if !ok {
				return nil
			}
			if n >= head {
				return nil
			}
			if err := l.remove(ctx, Entry{n, e}); err != nil {
				return err
			}
		}
		if len(page) < listPage {
			return nil
		}
	}
}

// Entries yields the entries from number n on, in order, up to the end of the
// log as it is when it gets there. It starts at head if that is higher.
func (l *Log) Entries(ctx context.Context, n uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		head, _, err := l.Head(ctx)
		if err != nil {
			yield(Entry{}, err)
			return
		}
		next := max(n, head)
		for {
			page, err := l.page(ctx, next)
			if err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				next = e.N + 1
			}
			if len(page) == 0 {
				return
			}
		}
	}
}

// page lists the dense run of entries from n on. A listing that raced with
// creates may show n+1 without n; what is missing is looked up by name.
func (l *Log) page(ctx context.Context, n uint64) ([]Entry, error) {
	after := ""
	if n > 0 {
		after = l.Name(n - 1)
	}
	listed, err := l.list(ctx, after)
	if err != nil {
		return nil, err
	}
	var dense []Entry
	for _, e := range listed {
		num, ok := l.number(e.Name())
		if !ok || num < n {
			continue
		}
		for num > n {
			missed, err := l.At(ctx, n)
			if errors.Is(err, filer.ErrNotFound) {
				return dense, l.gap(ctx, n)
			}
			if err != nil {
				return nil, err
			}
			dense = append(dense, missed)
			n++
		}
		dense = append(dense, Entry{num, e})
		n++
	}
	return dense, nil
}

// gap explains a missing number below an existing one: a trim that is under
// way, or a log that lost an entry.
func (l *Log) gap(ctx context.Context, n uint64) error {
	head, _, err := l.Head(ctx)
	if err != nil {
		return err
	}
	if head > n {
		return fmt.Errorf("%s: entry %d: %w", l.dir, n, ErrVoid)
	}
	return fmt.Errorf("%s: entry %d is missing, later ones exist: %w", l.dir, n, ErrWentBack)
}

func (l *Log) list(ctx context.Context, after string) (page []filer.Entry, err error) {
	err = filer.Retry(ctx, func(ctx context.Context) error {
		page, err = l.store.List(ctx, l.dir, after, listPage)
		return err
	})
	return page, err
}

func (l *Log) remove(ctx context.Context, e Entry) error {
	err := filer.Retry(ctx, func(ctx context.Context) error { return l.store.Delete(ctx, l.Path(e.N), e.ID) })
	if errors.Is(err, filer.ErrConflict) || errors.Is(err, filer.ErrNotFound) {
		return nil
	}
	return err
}
