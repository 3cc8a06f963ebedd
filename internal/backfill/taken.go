package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path"
	"slices"

	"github.com/spillway-mq/spillway/internal/filer"
)

// ledger is which objects the jobs of a schedule have taken, in files that are in
// order of keys. It is a cache of the jobs' files, which are the truth and live as
// long as the topic: what is missing or damaged is made again from them, and whoever
// makes a file makes the same one. So nothing is lost with it, and nobody has to keep
// it right.
//
// The schedule's jobs are numbered from 0. A file covers the jobs [from, to) and is
// called so. There is one per job at first; every 16 of a size become one of the next
// size, so that a year of hours is in 30 files.
type ledger struct {
	store   filer.Store
	dir     string
	objects func(ctx context.Context, job uint64) ([]Object, error) // of a job that was made
	log     *slog.Logger
}

const takenFanout = 16

// span is the jobs [from, to).
type span struct{ from, to uint64 }

func (s span) name() string { return fmt.Sprintf("%012d-%012d", s.from, s.to) }

// parseSpan accepts the names that files get.
func parseSpan(name string) (s span, ok bool) {
	if _, err := fmt.Sscanf(name, "%d-%d", &s.from, &s.to); err != nil || s.name() != name || s.to <= s.from {
		return span{}, false
	}
	size := s.to - s.from
	for n := size; n > 1; n /= takenFanout {
		if n%takenFanout != 0 {
			return span{}, false
		}
	}
	return s, s.from%size == 0
}

func (l *ledger) path(s span) string { return path.Join(l.dir, s.name()) }

// open gives files that together hold what the first n jobs took. It makes those
// that are missing, merges, and deletes what is merged. errMerged, here and when the
// files are read: open again.
func (l *ledger) open(ctx context.Context, n uint64) ([]*takenFile, error) {
	files, err := l.tryOpen(ctx, n)
	return files, l.heal(ctx, err)
}

// heal deletes the file that an error says is damaged, so that it is made again from
// the jobs' files. The error is errMerged then.
func (l *ledger) heal(ctx context.Context, err error) error {
	var bad *takenError
	if !errors.As(err, &bad) {
		return err
	}
	l.log.WarnContext(ctx, "a file of the ledger is damaged; it is made again from the jobs' files", "path", bad.path, "reason", bad.reason)
	if err := l.remove(ctx, bad.path, bad.id); err != nil {
		return err
	}
	return errMerged
}

func (l *ledger) tryOpen(ctx context.Context, n uint64) ([]*takenFile, error) {
	have, err := l.list(ctx)
	if err != nil {
		return nil, err
	}
	var cover []span
	for at := uint64(0); at < n; {
		next, ok := longest(have, at, n)
		if !ok {
			next = span{at, at + 1}
			if err := l.build(ctx, next); err != nil {
				return nil, err
			}
		}
		if cover, err = l.carry(ctx, append(cover, next)); err != nil {
			return nil, err
		}
		at = next.to
	}
	for _, s := range have {
		merged := func(c span) bool { return c != s && c.from <= s.from && s.to <= c.to }
		if !slices.ContainsFunc(cover, merged) {
			continue
		}
		if err := l.remove(ctx, l.path(s), ""); err != nil {
			return nil, err
		}
	}
	files := make([]*takenFile, len(cover))
	for i, s := range cover {
		if files[i], err = openTaken(ctx, l.store, l.path(s)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func longest(have []span, at, n uint64) (best span, ok bool) {
	for _, s := range have {
		if s.from == at && s.to <= n && s.to > best.to {
			best, ok = s, true
		}
	}
	return best, ok
}

func (l *ledger) list(ctx context.Context) (have []span, err error) {
	for after := ""; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = l.store.List(ctx, l.dir, after, 0)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", l.dir, err)
		}
		if len(page) == 0 {
			return have, nil
		}
		for _, e := range page {
			if s, ok := parseSpan(e.Name()); ok && !e.IsDir {
				have = append(have, s)
			}
		}
		after = page[len(page)-1].Name()
	}
}

func (l *ledger) remove(ctx context.Context, file, id string) error {
	err := filer.Retry(ctx, func(ctx context.Context) error { return l.store.Delete(ctx, file, id) })
	if err != nil && !errors.Is(err, filer.ErrConflict) { // else it was made again already
		return fmt.Errorf("delete %s: %w", file, err)
	}
	return nil
}

// build makes the file of one job.
func (l *ledger) build(ctx context.Context, s span) error {
	objects, err := l.objects(ctx, s.from)
	if err != nil {
		return err
	}
	entries := make([]takenEntry, len(objects))
	for i, o := range objects {
		entries[i] = entryOf(o)
	}
	slices.SortFunc(entries, takenEntry.compare)
	return l.write(ctx, s, func(w *takenWriter) error {
		for _, e := range entries {
			if err := w.add(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *ledger) write(ctx context.Context, s span, fill func(*takenWriter) error) error {
	w := newTakenWriter(l.store, l.path(s))
	err := fill(w)
	if err == nil {
		err = w.create(ctx)
	}
	if err != nil {
		w.drop(context.WithoutCancel(ctx))
	}
	return err
}

// carry merges the last of the spans as long as they fill one of the next size.
func (l *ledger) carry(ctx context.Context, cover []span) ([]span, error) {
	last := cover[len(cover)-1]
	for size := uint64(takenFanout); last.to%size == 0; size *= takenFanout {
		whole := span{last.to - size, last.to}
		i := slices.IndexFunc(cover, func(s span) bool { return s.from == whole.from })
		if i < 0 || i == len(cover)-1 { // in a larger one, or it is the one
			continue
		}
		if err := l.merge(ctx, cover[i:], whole); err != nil {
			return nil, err
		}
		for _, s := range cover[i:] {
			if err := l.remove(ctx, l.path(s), ""); err != nil {
				return nil, err
			}
		}
		cover = append(cover[:i:i], whole)
	}
	return cover, nil
}

func (l *ledger) merge(ctx context.Context, parts []span, whole span) error {
	files := make([]*takenFile, len(parts))
	for i, s := range parts {
		var err error
		if files[i], err = openTaken(ctx, l.store, l.path(s)); err != nil {
			return err
		}
	}
	return l.write(ctx, whole, func(w *takenWriter) error { return mergeTaken(ctx, files, w) })
}

const (
	// Objects are compared with the ledger so many at a time. Listings are nearly in
	// order of keys, so each batch meets a stretch of the ledger of its own.
	batchObjects = 1 << 16
	batchBytes   = 16 << 20 // of keys
)

// fresh hands on, in their order, the objects that no file holds, until take has
// enough. Of an object that is listed twice it may hand on both.
func fresh(ctx context.Context, files []*takenFile, objects iter.Seq2[Object, error], take func(Object) bool) error {
	var batch []Object
	bytes := 0
	flush := func() (bool, error) {
		taken, err := struck(ctx, files, batch)
		if err != nil {
			return false, err
		}
		for i, o := range batch {
			if !taken[i] && !take(o) {
				return false, nil
			}
		}
		batch, bytes = batch[:0], 0
		return true, nil
	}
	for o, err := range objects {
		if err != nil {
			return err
		}
		batch = append(batch, o)
		if bytes += len(o.Key); len(batch) < batchObjects && bytes < batchBytes {
			continue
		}
		if more, err := flush(); err != nil || !more {
			return err
		}
	}
	_, err := flush()
	return err
}

// struck tells which of the objects are in one of the files.
func struck(ctx context.Context, files []*takenFile, batch []Object) ([]bool, error) {
	type numbered struct {
		takenEntry
		i int
	}
	order := make([]numbered, len(batch))
	for i, o := range batch {
		order[i] = numbered{entryOf(o), i}
	}
	slices.SortFunc(order, func(a, b numbered) int { return a.compare(b.takenEntry) })
	entries, found := make([]takenEntry, len(batch)), make([]bool, len(batch))
	for i, o := range order {
		entries[i] = o.takenEntry
	}
	for _, f := range files {
		if err := f.strike(ctx, entries, found); err != nil {
			return nil, err
		}
	}
	taken := make([]bool, len(batch))
	for i, o := range order {
		taken[o.i] = found[i]
	}
	return taken, nil
}
