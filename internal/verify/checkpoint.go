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
	if s.checkpointErr != nil || !s.from.After(s.checkpoint.Position()) {
		return ""
	}
	return fmt.Sprintf("it is at %s, but the writer of %s had started from %s", shown(s.checkpoint.Position()), s.fromPath, shown(s.from))
}

func (v *verifier) loadCheckpoint(ctx context.Context, source string) (segment.Checkpoint, error) {
	c, _, err := v.store.CheckpointFile(source).Load(ctx)
	return c, err
}

// shown is a checkpoint's position in a message.
func shown(at topic.Position) string {
	if at == (topic.Position{}) {
		return "0"
	}
	return at.String()
}

// fresh is the position of a source's checkpoint now, zero if there is none. A
// filer that does not answer ends the verification.
func (v *verifier) fresh(ctx context.Context, source string) topic.Position {
	c, err := v.loadCheckpoint(ctx, source)
	if err != nil && !definite(err) {
		v.err = err
	}
	return c.Position()
}

// passed tells whether a source's checkpoint has reached a position, and where it
// is. It moves only forwards, so as it was is asked first.
func (v *verifier) passed(ctx context.Context, source string, at topic.Position) (topic.Position, bool) {
	if now := v.before[source]; !at.After(now) {
		return now, true
	}
	now := v.fresh(ctx, source)
	return now, !at.After(now) || v.err != nil
}

// loadCheckpoints reads all checkpoints that there are. One that cannot be read
// counts as nothing here; it is named where its records are found.
func (v *verifier) loadCheckpoints(ctx context.Context) (map[string]topic.Position, error) {
	dir := path.Join(v.store.Root(), "checkpoints")
	found := map[string]topic.Position{}
	v.tallied = map[string]tallied{}
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
				found[source] = c.Position()
				if c.Tally != nil {
					v.tallied[source] = tallied{c.Position(), *c.Tally}
				}
			}
		}
		after = page[len(page)-1].Name()
	}
}
