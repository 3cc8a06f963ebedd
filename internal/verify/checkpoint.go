package verify

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// checkCheckpoint: every source has a checkpoint, made with it (rule 15).
func checkCheckpoint(s *source) string {
	switch {
	case s.checkpointErr != nil:
		return fmt.Sprintf("%s holds records of source %s, but its checkpoint cannot be read: %v", s.path, s.name, s.checkpointErr)
	case s.checkpoint.Source != s.name:
		return fmt.Sprintf("it is the checkpoint of source %q", s.checkpoint.Source)
	}
	return ""
}

// checkCheckpointBack: a checkpoint moves only forwards, so none is below one
// that a writer has started from.
func checkCheckpointBack(s *source) string {
	if s.checkpointErr != nil || s.from <= s.checkpoint.Sequence {
		return ""
	}
	return fmt.Sprintf("it is at %d, but the writer of %s had started from %d", s.checkpoint.Sequence, s.fromPath, s.from)
}

func (v *verifier) loadCheckpoint(ctx context.Context, source string) (segment.Checkpoint, error) {
	c, _, err := v.store.CheckpointFile(source).Load(ctx)
	return c, err
}

// fresh is the sequence of a source's checkpoint now, 0 if there is none. A
// filer that does not answer ends the verification.
func (v *verifier) fresh(ctx context.Context, source string) uint64 {
	c, err := v.loadCheckpoint(ctx, source)
	if err != nil && !definite(err) {
		v.err = err
	}
	return c.Sequence
}

// passed tells whether a source's checkpoint has reached a position, and where it
// is. It moves only forwards, so as it was is asked first.
func (v *verifier) passed(ctx context.Context, source string, at topic.Position) (uint64, bool) {
	if now := v.before[source]; !at.After(topic.Whole(now)) {
		return now, true
	}
	now := v.fresh(ctx, source)
	return now, !at.After(topic.Whole(now)) || v.err != nil
}

// loadCheckpoints reads all checkpoints that there are. One that cannot be read
// counts as nothing here; it is named where its records are found.
func (v *verifier) loadCheckpoints(ctx context.Context) (map[string]uint64, error) {
	dir := path.Join(v.store.Root(), "checkpoints")
	found := map[string]uint64{}
	for after := ""; ; {
		page, err := v.list(ctx, dir, after)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			return found, nil
		}
		for _, e := range page {
			source, ok := strings.CutSuffix(e.Name(), ".json")
			if !ok {
				continue
			}
			c, err := v.loadCheckpoint(ctx, source)
			if err != nil && !errors.Is(err, filer.ErrNotFound) && !errors.Is(err, filer.ErrCorrupt) {
				return nil, err
			}
			if err == nil {
				found[source] = c.Sequence
			}
		}
		after = page[len(page)-1].Name()
	}
}
