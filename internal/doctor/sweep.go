package doctor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// SafeAge is how old everything in a left-over folder must be for [Sweep] to
// delete it. It keeps what somebody may still be looking at or mending; what makes
// the sweep safe is another thing.
const SafeAge = 24 * time.Hour

// Swept is what [Sweep] did.
type Swept struct {
	Deleted []string `json:"deleted"`
	Young   []string `json:"young"` // not old enough
	Used    []string `json:"used"`  // hold records
}

// Sweep deletes the folders that no topic.json names, hold no record, and were
// written to last more than [SafeAge] ago.
//
// Why that loses nothing, whatever the clocks say: [Leftovers] finds only folders
// whose topic is gone for good. Who still works on one, having slept since, finds
// that when it comes to topic.json, or writes into a log without a head, where
// nothing counts (rule 3). Records can be there only if topic.json was lost rather
// than deleted; then there are files of records, and the folder is left alone.
//
// Safe to run twice at once. What it could not delete, the next run does.
func Sweep(ctx context.Context, store *segment.Store, now time.Time) (Swept, error) {
	swept := Swept{Deleted: []string{}, Young: []string{}, Used: []string{}}
	folders, err := Leftovers(ctx, store)
	if err != nil {
		return swept, err
	}
	for _, f := range folders {
		switch {
		case f.Chunks > 0:
			swept.Used = append(swept.Used, f.Dir)
		case now.Sub(f.Newest) < SafeAge:
			swept.Young = append(swept.Young, f.Dir)
		default:
			if err := sweep(ctx, store, f); err != nil {
				return swept, err
			}
			swept.Deleted = append(swept.Deleted, f.Dir)
		}
	}
	return swept, nil
}

// sweep deletes one folder, and the topic's own if nothing else is in it.
func sweep(ctx context.Context, store *segment.Store, f Leftover) error {
	err := filer.Retry(ctx, func(ctx context.Context) error { return store.Filer.DeleteTree(ctx, f.Dir) })
	if err != nil {
		return fmt.Errorf("sweep %s: %w", f.Dir, err)
	}
	err = filer.Retry(ctx, func(ctx context.Context) error { return store.Filer.Delete(ctx, path.Dir(f.Dir), "") })
	if err != nil && !errors.Is(err, filer.ErrInvalid) { // invalid: not empty
		return fmt.Errorf("sweep %s: %w", path.Dir(f.Dir), err)
	}
	return nil
}
