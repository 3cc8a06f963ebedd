package segment

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
)

// deleteJobs deletes the checkpoints of the topic's backfill jobs, which are not in
// the topic's folder. Its segments are sealed by then, so that nobody who works on a
// job can commit anything any more; the jobs' files, which say which checkpoints
// there are, go after this. Checkpoints of a job that was being made, and did not
// come to be, are found with those of others, or stay: nobody reads them.
func (t *Topic) deleteJobs(ctx context.Context) error {
	return t.eachName(ctx, path.Join(t.Dir(), "backfills"), "", func(id string) error {
		of := backfillPrefix + id + "."
		dir := path.Join(t.store.Root(), "checkpoints")
		return t.eachName(ctx, dir, of, func(name string) error {
			return filer.Retry(ctx, func(ctx context.Context) error {
				return t.store.Filer.Delete(ctx, path.Join(dir, name), "")
			})
		})
	})
}

// eachName calls do with the names in a folder that begin with prefix, in their
// order.
func (t *Topic) eachName(ctx context.Context, dir, prefix string, do func(name string) error) error {
	for after := prefix; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = t.store.Filer.List(ctx, dir, after, 0)
			return err
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", dir, err)
		}
		for _, e := range page {
			if after = e.Name(); !strings.HasPrefix(after, prefix) {
				return nil
			}
			if err := do(after); err != nil {
				return err
			}
		}
		if len(page) == 0 {
			return nil
		}
	}
}
