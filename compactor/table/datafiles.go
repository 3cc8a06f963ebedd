package table

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// footersAtOnce is how many data files are looked into at a time.
const footersAtOnce = 4

// dataFiles are what a table says of the files of some segments, made from their
// footers once for all tries of a commit.
type dataFiles struct {
	schema int // made for
	known  map[topic.SegmentID][]iceberg.DataFile
}

// of gives the files of segments. They go in under the spec without partitions:
// a file holds what its segment holds, whatever a table is partitioned by.
func (d *dataFiles) of(ctx context.Context, meta icetable.Metadata, files *fileIO, adds []Addition) ([]iceberg.DataFile, error) {
	if d.known == nil || d.schema != meta.CurrentSchema().ID {
		d.schema, d.known = meta.CurrentSchema().ID, map[topic.SegmentID][]iceberg.DataFile{}
	}
	var all []iceberg.DataFile
	for _, a := range adds {
		if _, ok := d.known[a.Segment]; !ok {
			made, err := describeFiles(ctx, meta, files, a)
			if errors.Is(err, filer.ErrNotFound) || errors.Is(err, filer.ErrCorrupt) {
				err = &AdditionError{a.Segment, err}
			}
			if err != nil {
				return nil, err
			}
			d.known[a.Segment] = made
		}
		all = append(all, d.known[a.Segment]...)
	}
	return all, nil
}

func describeFiles(ctx context.Context, meta icetable.Metadata, files *fileIO, a Addition) ([]iceberg.DataFile, error) {
	spec, order := unpartitioned(meta), sortOrderID(meta)
	made := make([]iceberg.DataFile, len(a.Files))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(footersAtOnce)
	for i, url := range a.Files {
		g.Go(func() error {
			var err error
			made[i], err = icetable.FileToDataFile(gctx, files, url, meta.CurrentSchema(), *spec, order, meta.Properties())
			return footerError(url, err)
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var rows uint64
	for _, f := range made {
		rows += uint64(f.Count())
	}
	if rows != a.Rows {
		return nil, fmt.Errorf("%w: its files hold %d rows, and should hold %d", filer.ErrCorrupt, rows, a.Rows)
	}
	return made, nil
}

// footerError says what an error of looking into a data file means.
func footerError(url string, err error) error {
	var file *FileError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &file) && !filer.Definite(file.Err):
		return &UnavailableError{"look into " + url, err}
	case errors.As(err, &file):
		return file
	default: // iceberg-go's and arrow-go's: what they read is no such file
		return &FileError{"look into", url, fmt.Errorf("%w: %w", filer.ErrCorrupt, err)}
	}
}

// sortOrderID is the id of our sort order in a table, 0 (no claim) if it has none.
func sortOrderID(meta icetable.Metadata) int {
	want := sortOrder()
	for _, have := range meta.SortOrders() {
		if have.Len() != want.Len() {
			continue
		}
		same := true
		for i, f := range want.Fields() {
			same = same && have.Field(i).Equals(f)
		}
		if same {
			return have.OrderID()
		}
	}
	return 0
}

// dataFilesOf gives the data files that a snapshot names.
func dataFilesOf(s *icetable.Snapshot, files *fileIO) iter.Seq2[iceberg.DataFile, error] {
	return func(yield func(iceberg.DataFile, error) bool) {
		if s == nil {
			return
		}
		manifests, err := s.Manifests(files)
		if err != nil {
			yield(nil, metadataError("read the manifest list", err))
			return
		}
		for _, m := range manifests {
			if m.ManifestContent() != iceberg.ManifestContentData {
				continue
			}
			for e, err := range m.Entries(files, true) {
				if err != nil {
					yield(nil, metadataError("read manifest "+m.FilePath(), err))
					return
				}
				if !yield(e.DataFile(), nil) {
					return
				}
			}
		}
	}
}

// metadataError says what an error of reading a table's metadata means.
func metadataError(op string, err error) error {
	var file *FileError
	if errors.As(err, &file) && !filer.Definite(file.Err) {
		return &UnavailableError{op, err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
