// Package cursor keeps small durable states on the filer: one JSON file each,
// created once, then moved by compare-and-swap, with bytes that are the same
// whenever the state is.
package cursor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spillway-mq/spillway/internal/filer"
)

// Version is what a state was loaded or saved as; saving checks it.
type Version string

// File is a state of type T at a path. It holds no state itself and may be used
// concurrently. T must encode to JSON deterministically: structs, sorted
// slices, maps (encoding/json sorts their keys), no floats.
type File[T any] struct {
	store filer.Store
	path  string
}

// At names the state at a path. It does no I/O.
func At[T any](store filer.Store, path string) File[T] { return File[T]{store, path} }

// Path is where the state is.
func (f File[T]) Path() string { return f.path }

// Load reads the state. filer.ErrNotFound: there is none. filer.ErrCorrupt: it
// is not what Save writes; the version is that of the damaged file, which may be
// replaced by it.
func (f File[T]) Load(ctx context.Context) (T, Version, error) {
	var v T
	var e filer.Entry
	var data []byte
	err := filer.Retry(ctx, func(ctx context.Context) (err error) {
		if e, err = f.store.Lookup(ctx, f.path); err != nil {
			return err
		}
		data, err = content(ctx, f.store, e)
		return err
	})
	if err != nil {
		return v, "", fmt.Errorf("load %s: %w", f.path, err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		var zero T
		return zero, Version(e.ID), fmt.Errorf("load %s: %w: %w", f.path, filer.ErrCorrupt, err)
	}
	return v, Version(e.ID), nil
}

// Create makes the state's file. filer.ErrExists: somebody else made it. It is
// as durable as the filer's settings make it when Create returns.
func (f File[T]) Create(ctx context.Context, v T) (Version, error) {
	file, err := f.file(ctx, v)
	if err != nil {
		return "", err
	}
	if _, err := filer.Create(ctx, f.store, f.path, file); err != nil {
		if errors.Is(err, filer.ErrExists) && !errors.Is(err, filer.ErrStray) {
			f.discard(ctx, file)
		}
		return "", err
	}
	return Version(file.ID), nil
}

// Save replaces the state in one atomic change if it is still the one that was
// loaded. filer.ErrConflict: somebody else saved since; load again.
func (f File[T]) Save(ctx context.Context, v T, loaded Version) (Version, error) {
	file, err := f.file(ctx, v)
	if err != nil {
		return "", err
	}
	if err := filer.Replace(ctx, f.store, f.path, string(loaded), file); err != nil {
		// IDs do not come back: what has met another one can have no effect any more.
		if errors.Is(err, filer.ErrConflict) {
			f.discard(ctx, file)
		}
		return "", err
	}
	return Version(file.ID), nil
}

// discard deletes the bytes of a file that did not come to be. One that stays is
// garbage on a volume server, and nothing else.
func (f File[T]) discard(ctx context.Context, file filer.File) {
	for _, b := range file.Blobs {
		_ = f.store.Discard(ctx, b)
	}
}

// Delete removes the file if it is still the one that was loaded.
func (f File[T]) Delete(ctx context.Context, loaded Version) error {
	return filer.Retry(ctx, func(ctx context.Context) error { return f.store.Delete(ctx, f.path, string(loaded)) })
}

// Encode gives the bytes that Save writes for a state.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	err := enc.Encode(v)
	return b.Bytes(), err
}

func (f File[T]) file(ctx context.Context, v T) (filer.File, error) {
	data, err := Encode(v)
	if err != nil {
		return filer.File{}, fmt.Errorf("encode %s: %w", f.path, err)
	}
	file := filer.File{ID: filer.NewID(), Attrs: filer.Attrs{}, Content: data}
	if len(data) <= filer.InlineLimit {
		return file, nil
	}
	var blob filer.Blob
	err = filer.Retry(ctx, func(ctx context.Context) error { blob, err = f.store.Upload(ctx, f.path, data); return err })
	file.Content, file.Blobs = nil, []filer.Blob{blob}
	return file, err
}

func content(ctx context.Context, s filer.Store, e filer.Entry) ([]byte, error) {
	if e.Blobs == nil {
		return e.Content, nil
	}
	r, err := s.Open(ctx, e, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // read-only
	return io.ReadAll(r)
}
