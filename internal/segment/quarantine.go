package segment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
)

// Quarantine says why a segment is not compacted until somebody has looked at it.
// It stops nobody else: readers come to the damage by themselves.
type Quarantine struct {
	Chunk  uint64    `json:"chunk"` // number of the entry that is damaged
	Path   string    `json:"path"`  // its file
	First  uint64    `json:"first"` // offsets of the records that cannot be read
	Last   uint64    `json:"last"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// Drop is ranges that an operator gives up: compaction goes on without them.
	Drop []DroppedRange `json:"drop,omitempty"`
}

func (s *Segment) quarantine() cursor.File[Quarantine] {
	return cursor.At[Quarantine](s.topic.store.Filer, path.Join(s.log.Dir(), "quarantine.json"))
}

// Quarantine reads why the segment is in quarantine. filer.ErrNotFound: it is not.
// filer.ErrCorrupt: it is, and the file that says why is damaged.
func (s *Segment) Quarantine(ctx context.Context) (Quarantine, error) {
	q, _, err := s.quarantine().Load(ctx)
	return q, err
}

// SetQuarantine puts the segment into quarantine, or says something else about why
// it is. What an operator wants dropped stays, unless q says what. Any number may
// race; the last one counts.
func (s *Segment) SetQuarantine(ctx context.Context, q Quarantine) error {
	q.At = q.At.UTC()
	file := s.quarantine()
	for {
		_, err := file.Create(ctx, q)
		if errors.Is(err, filer.ErrExists) {
			err = replaceQuarantine(ctx, file, q)
		}
		if !errors.Is(err, filer.ErrConflict) && !errors.Is(err, filer.ErrNotFound) {
			return err
		}
	}
}

// replaceQuarantine gives filer.ErrConflict or filer.ErrNotFound if it has to be tried
// again.
func replaceQuarantine(ctx context.Context, file cursor.File[Quarantine], q Quarantine) error {
	old, version, err := file.Load(ctx)
	if errors.Is(err, filer.ErrCorrupt) { // nobody can use it
		return cmp.Or(file.Delete(ctx, ""), filer.ErrNotFound)
	}
	if err == nil {
		if q.Drop == nil {
			q.Drop = old.Drop
		}
		_, err = file.Save(ctx, q, version)
	}
	return err
}

// LiftQuarantine ends a quarantine that is still as it was read. filer.ErrConflict:
// somebody says something else about it since. That there is none is no error.
func (s *Segment) LiftQuarantine(ctx context.Context, q Quarantine) error {
	now, version, err := s.quarantine().Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	q.At = q.At.UTC()
	got, err := cursor.Encode(now)
	if err != nil {
		return err
	}
	want, err := cursor.Encode(q)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("quarantine of segment %s: %w", s.ID, filer.ErrConflict)
	}
	if err != nil {
		return err
	}
	return s.quarantine().Delete(ctx, version)
}
