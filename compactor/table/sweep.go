package table

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/internal/filer"
)

// orphanAge is how old a file has to be before it counts as an orphan. A commit
// takes seconds.
const orphanAge = 72 * time.Hour

// Orphan is a file of metadata that the table does not name: of a commit that
// lost, or of a snapshot that was removed.
type Orphan struct {
	URL  string
	Size int64
	At   time.Time

	path string
}

// Orphans lists them. Only metadata is looked at, data files never are. A file
// counts if it is older than 72 hours and older than the table's head: a commit
// that was under way when it was written builds on an earlier head than the
// present one, and cannot succeed any more.
func (t *Table) Orphans(ctx context.Context) ([]Orphan, error) {
	ice, files, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	meta := ice.Metadata()
	before := t.ts.now().Add(-orphanAge)
	if head := meta.CurrentSnapshot(); head == nil {
		before = minTime(before, time.UnixMilli(meta.LastUpdatedMillis()))
	} else {
		before = minTime(before, time.UnixMilli(head.TimestampMs))
	}
	named, err := namedFiles(meta, ice.MetadataLocation(), files)
	if err != nil {
		return nil, err
	}
	url := meta.Location() + "/metadata"
	_, dir, err := files.locate(url)
	if err != nil {
		return nil, &FileError{"list", url, err}
	}
	return t.ts.orphansIn(ctx, dir, before, named)
}

// orphansIn lists the files of metadata in a folder that are old and not named.
func (ts *Tables) orphansIn(ctx context.Context, dir string, before time.Time, named map[string]bool) ([]Orphan, error) {
	var orphans []Orphan
	for after := ""; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = ts.store.List(ctx, dir, after, 0)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", dir, err)
		}
		if len(page) == 0 {
			return orphans, nil
		}
		for _, e := range page {
			after = e.Name()
			at := path.Join(dir, after)
			if e.IsDir || !isMetadata(at) || named[at] || !e.MTime.Before(before) {
				continue
			}
			orphans = append(orphans, Orphan{"s3://" + strings.TrimPrefix(at, bucketsDir), e.Size, e.MTime, at})
		}
	}
}

// namedFiles are the paths of the files of metadata that the table needs: its
// present and its last metadata files, and of each snapshot the manifest list and
// the manifests. Others may spell URLs in another way, so paths are what counts.
func namedFiles(meta icetable.Metadata, location string, files *fileIO) (map[string]bool, error) {
	named := map[string]bool{}
	add := func(url string) {
		if _, at, err := files.locate(url); err == nil { // what lies elsewhere is not swept
			named[at] = true
		}
	}
	add(location)
	for e := range meta.PreviousFiles() {
		add(e.MetadataFile)
	}
	for _, s := range meta.Snapshots() {
		add(s.ManifestList)
		manifests, err := s.Manifests(files)
		if err != nil {
			return nil, metadataError(fmt.Sprintf("read the manifest list of snapshot %d", s.SnapshotID), err)
		}
		for _, m := range manifests {
			add(m.FilePath())
		}
	}
	return named, nil
}

// Sweep deletes the orphans and returns how many. It stops at the first error.
func (t *Table) Sweep(ctx context.Context) (int, error) {
	orphans, err := t.Orphans(ctx)
	if err != nil {
		return 0, err
	}
	for i, o := range orphans {
		err := filer.Retry(ctx, func(ctx context.Context) error { return t.ts.store.Delete(ctx, o.path, "") })
		if err != nil && !errors.Is(err, filer.ErrNotFound) {
			return i, fmt.Errorf("sweep table %s: %w", t.Name(), err)
		}
	}
	return len(orphans), nil
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
