package filer

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

const (
	// PartSize is about the size of blobs that volume servers take fastest. At
	// 4 MiB a volume server has to grow the buffer that it receives into, and
	// takes half as many bytes per second.
	PartSize = 2 << 20

	partsAtOnce = 4
)

// UploadParts is [UploadPartsAs] as the storage rules of path say.
func UploadParts(ctx context.Context, s Store, path string, data []byte) ([]Blob, error) {
	return UploadPartsAs(ctx, s, path, data, Storage{})
}

// UploadPartsAs uploads data for a file at path as blobs of at most [PartSize],
// a few at a time, and returns them in order. Like [Store.UploadAs] it does not
// retry. After an error it discards what it has uploaded, as far as it can;
// what was still under way then is lost space, not lost data.
func UploadPartsAs(ctx context.Context, s Store, path string, data []byte, how Storage) ([]Blob, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("upload for %s: %w: no data", path, ErrInvalid)
	}
	n := (len(data) + PartSize - 1) / PartSize
	size := (len(data) + n - 1) / n // all alike, rather than a small last one
	blobs := make([]Blob, n)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(partsAtOnce)
	for i := range blobs {
		g.Go(func() (err error) {
			blobs[i], err = s.UploadAs(gctx, path, data[i*size:min((i+1)*size, len(data))], how)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, discardAll(context.WithoutCancel(ctx), s, blobs))
	}
	return blobs, nil
}

// discardAll tries to discard all blobs, except those never uploaded, which
// have no ID.
func discardAll(ctx context.Context, s Store, blobs []Blob) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	var errs []error
	for _, b := range blobs {
		if b.ID != "" {
			errs = append(errs, s.Discard(ctx, b))
		}
	}
	return errors.Join(errs...)
}
