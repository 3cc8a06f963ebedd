package repair

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// tries is how often a file is replaced until it is known that it was.
const tries = 8

// replace puts data in the place of a chunk's bytes. Its entry stays what it is, with
// its ID, which the next one names, its attributes and its time; so who replaces it
// cannot be told from the entry. Two at once put the same bytes there. What counts is
// what is there afterwards: look says what is wrong with it, "" for nothing.
//
// Each try uploads the bytes anew. A request whose answer was lost may take effect later
// and delete what another one has put there; what it names itself is there then, since
// no other request ever named it.
func (r *Repairer) replace(ctx context.Context, n newBytes, look func(context.Context) (string, error)) error {
	var last error
	for range tries {
		f, err := r.file(ctx, n)
		if err != nil {
			return err
		}
		err = r.Store.Filer.Update(ctx, n.chunk.Entry.Path, n.chunk.Entry.ID, f)
		if err != nil && filer.Definite(err) {
			for _, b := range f.Blobs {
				_ = r.Store.Filer.Discard(ctx, b) // garbage at worst
			}
			return fmt.Errorf("replace: %w", err)
		}
		wrong, lookErr := look(ctx)
		switch {
		case lookErr != nil:
			return lookErr
		case wrong == "":
			return nil
		case err == nil:
			err = fmt.Errorf("what was put there cannot be read: %s", wrong)
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("replace: %w", errors.Join(last, ctx.Err()))
}

// newBytes are to be put in the place of a chunk's.
type newBytes struct {
	chunk   segment.Chunk
	data    []byte
	storage filer.Storage
}

// file is the chunk's file with the new bytes.
func (r *Repairer) file(ctx context.Context, n newBytes) (f filer.File, err error) {
	e := n.chunk.Entry
	f = filer.File{ID: e.ID, Attrs: e.Attrs, MTime: e.MTime}
	if len(n.data) <= r.Store.Inline {
		f.Content = n.data
		return f, nil
	}
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		f.Blobs, err = filer.UploadPartsAs(ctx, r.Store.Filer, e.Path, n.data, n.storage)
		return err
	})
	if err != nil {
		return f, fmt.Errorf("upload: %w", err)
	}
	return f, nil
}
