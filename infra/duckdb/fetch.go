package duckdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
)

// fetching is how many files are copied at a time.
const fetching = 4

// Fetch copies files of a filer, which are named by s3:// URLs as a table names them,
// into a folder, and gives the names of the copies in the same order.
func Fetch(ctx context.Context, store filer.Store, dir string, urls []string) ([]string, error) {
	names := make([]string, len(urls))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetching)
	for i, url := range urls {
		names[i] = filepath.Join(dir, fmt.Sprintf("%06d-%s", i, filepath.Base(url)))
		g.Go(func() error {
			if err := fetch(ctx, store, url, names[i]); err != nil {
				return fmt.Errorf("fetch %s: %w", url, err)
			}
			return nil
		})
	}
	return names, g.Wait()
}

func fetch(ctx context.Context, store filer.Store, url, name string) (err error) {
	key, ok := strings.CutPrefix(url, "s3://")
	if !ok {
		return errors.New("no s3:// URL")
	}
	entry, err := store.Lookup(ctx, "/buckets/"+key)
	if err != nil {
		return err
	}
	from, err := store.Open(ctx, entry, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	n, err := io.Copy(to, from)
	if err == nil && n != entry.Size {
		err = fmt.Errorf("%d bytes came of %d", n, entry.Size)
	}
	return err
}
