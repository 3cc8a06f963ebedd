package filer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Storage says how bytes are to be kept where the storage rules of their path
// would have it otherwise. The zero value leaves everything to the rules.
type Storage struct {
	// Replication is, in SeaweedFS's notation of three digits, how many more
	// copies there are to be: in other data centres, in other racks, on other
	// servers of the same rack ("001"). Empty: as the rules say.
	Replication string
	// Fsync has bytes on disk before their upload is acknowledged. False: as
	// the rules say. It says nothing about entries, which follow the rules.
	Fsync bool
}

// maxReplication is the largest value that SeaweedFS can store.
const maxReplication = 255

// Check tells whether a filer can understand the settings. The error is an
// [ErrInvalid]. Whether it can do what they ask for, [TryStorage] finds out.
func (s Storage) Check() error {
	if s.Replication == "" {
		return nil
	}
	n, err := strconv.ParseUint(s.Replication, 10, 16)
	if err != nil || len(s.Replication) != 3 || n > maxReplication {
		return fmt.Errorf("%w: replication %q: want three digits, up to %d", ErrInvalid, s.Replication, maxReplication)
	}
	return nil
}

// Copies is how many servers hold the bytes, 0 if the rules decide.
func (s Storage) Copies() int {
	if s.Replication == "" {
		return 0
	}
	n := 1
	for _, digit := range s.Replication {
		n += int(digit - '0')
	}
	return n
}

// StorageError says that a filer did not take bytes under the settings that
// were asked for, such as more copies than it has servers for.
type StorageError struct {
	Path    string
	Storage Storage
	Err     error
}

func (e *StorageError) Error() string {
	text := fmt.Sprintf("the filer stores nothing below %s with replication %q and fsync %v", e.Path, e.Storage.Replication, e.Storage.Fsync)
	if n := e.Storage.Copies(); n > 1 {
		text += fmt.Sprintf(" (it takes %d volume servers with room, apart as the digits say)", n)
	}
	return fmt.Sprintf("%s: %v", text, e.Err)
}

// Unwrap gives the refusal.
func (e *StorageError) Unwrap() error { return e.Err }

// TryStorage uploads a few bytes for path under the settings and discards them
// again. A filer that refuses, or cannot do it within some seconds (it has to
// make new volumes), gives a [*StorageError]; what ends ctx does not.
func TryStorage(ctx context.Context, s Store, path string, how Storage) error {
	if err := how.Check(); err != nil {
		return &StorageError{Path: path, Storage: how, Err: err}
	}
	limited, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	var b Blob
	err := Retry(limited, func(ctx context.Context) (err error) {
		b, err = s.UploadAs(ctx, path, []byte("spillway storage check"), how)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("try storage below %s: %w", path, err)
	case err != nil:
		return &StorageError{Path: path, Storage: how, Err: err}
	}
	if err := s.Discard(ctx, b); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("try storage below %s: %w", path, err)
	}
	return nil
}
