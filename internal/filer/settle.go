package filer

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"
)

// NewID returns a random id of 16 lower-case characters (80 bits) for one
// write of one file.
func NewID() string { return Token(16) }

// Token returns n (at most 32) random characters of a-z and 2-7.
func Token(n int) string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))[:n]
}

// Times of retries. A try is cut off after tryTimeout, since a request whose
// reply does not come is an unknown outcome like any other.
const (
	tryTimeout   = 10 * time.Second
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = 2 * time.Second
)

// Create makes a file exclusively and settles unknown outcomes: it repeats the
// same write, with the same ID, until it knows. On nil the file at path is f.
// On ErrExists somebody else's is, and is returned. Any other error leaves the
// outcome unknown (ctx ended, or a refusal after a try without an answer) or
// means that nothing was written (ErrReadOnly, ErrInvalid). An "absent" while reading back proves nothing, since the lost
// request may still arrive: only the answer to a create does.
func Create(ctx context.Context, s Store, path string, f File) (Entry, error) {
	sent := false // an earlier try may have its effect
	for b := (backoff{}); ; {
		err := try(ctx, func(ctx context.Context) error { return s.Create(ctx, path, f) })
		switch {
		case err == nil:
			return entryOf(path, f), nil
		case refused(err) && !sent:
			return Entry{}, fmt.Errorf("create %s: %w", path, err)
		}
		var e Entry
		lookErr := try(ctx, func(ctx context.Context) (err error) { e, err = s.Lookup(ctx, path); return err })
		switch {
		case lookErr == nil && e.ID == f.ID:
			return e, nil
		case lookErr == nil && (sent || !errors.Is(err, ErrExists)):
			return e, fmt.Errorf("create %s: %w (%w)", path, ErrExists, ErrStray)
		case lookErr == nil:
			return e, fmt.Errorf("create %s: %w", path, ErrExists)
		}
		if refused(err) {
			return Entry{}, fmt.Errorf("create %s: outcome unknown, and now refused: %s", path, err.Error())
		}
		sent = true
		if !b.wait(ctx) {
			return Entry{}, fmt.Errorf("create %s: %w", path, unknown(ctx, err))
		}
	}
}

// Replace updates a file by compare-and-swap on its ID and settles unknown
// outcomes. On nil the file became f. ErrConflict: it has another ID than
// expect; where an earlier try of ours had taken effect and was replaced since,
// that is ErrConflict too, so the caller reloads either way.
func Replace(ctx context.Context, s Store, path, expect string, f File) error {
	sent := false // an earlier try may have its effect
	for b := (backoff{}); ; {
		err := try(ctx, func(ctx context.Context) error { return s.Update(ctx, path, expect, f) })
		switch {
		case err == nil:
			return nil
		case refused(err) && !sent:
			return fmt.Errorf("replace %s: %w", path, err)
		}
		var e Entry
		lookErr := try(ctx, func(ctx context.Context) (err error) { e, err = s.Lookup(ctx, path); return err })
		switch {
		case lookErr == nil && e.ID == f.ID:
			return nil
		case lookErr == nil && e.ID != expect:
			return fmt.Errorf("replace %s: %w", path, ErrConflict)
		case errors.Is(lookErr, ErrNotFound):
			return fmt.Errorf("replace %s: %w", path, ErrNotFound)
		}
		if refused(err) {
			return fmt.Errorf("replace %s: outcome unknown, and now refused: %s", path, err.Error())
		}
		sent = true
		if !b.wait(ctx) {
			return fmt.Errorf("replace %s: %w", path, unknown(ctx, err))
		}
	}
}

// unknown is the error of a write that could not be settled. That the last try met a
// file is no answer: it may be ours, of an earlier try. So it must not match as one.
func unknown(ctx context.Context, last error) error {
	if Definite(last) {
		return fmt.Errorf("outcome unknown: %s: %w", last.Error(), ctx.Err())
	}
	return fmt.Errorf("outcome unknown: %w", errors.Join(last, ctx.Err()))
}

// refused tells whether a filer declined a try, which says nothing about the
// tries before it.
func refused(err error) bool { return errors.Is(err, ErrReadOnly) || errors.Is(err, ErrInvalid) }

// Retry repeats an idempotent call until it succeeds, fails definitely, or ctx
// ends.
func Retry(ctx context.Context, call func(context.Context) error) error {
	for b := (backoff{}); ; {
		err := try(ctx, call)
		if err == nil || Definite(err) {
			return err
		}
		if !b.wait(ctx) {
			return errors.Join(err, ctx.Err())
		}
	}
}

// Definite tells whether an error is an answer, as opposed to a failure to get
// one: repeating the call would give the same.
func Definite(err error) bool {
	for _, known := range []error{ErrNotFound, ErrExists, ErrConflict, ErrInvalid, ErrCorrupt, ErrReadOnly} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

func try(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return call(ctx)
}

func entryOf(path string, f File) Entry {
	size := int64(len(f.Content))
	for _, b := range f.Blobs {
		size += b.Size
	}
	return Entry{Path: path, ID: f.ID, Attrs: f.Attrs, Size: size, MTime: f.MTime, Content: f.Content, Blobs: f.Blobs}
}

// backoff waits between tries: 20 ms, doubling to 2 s. It has no jitter: the
// tries of different writers do not collide on anything.
type backoff struct{ next time.Duration }

// wait returns false when ctx ended.
func (b *backoff) wait(ctx context.Context) bool {
	b.next = min(max(b.next*2, firstBackoff), lastBackoff)
	t := time.NewTimer(b.next)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
