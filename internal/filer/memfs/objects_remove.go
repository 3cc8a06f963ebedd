package memfs

import (
	"context"
	"fmt"

	"github.com/spillway-mq/spillway/internal/filer"
)

var _ filer.Remover = (*Client)(nil)

// Remove implements [filer.Remover].
func (c *Client) Remove(ctx context.Context, o filer.Object) error {
	commit, ok := o.Extra.(uint64)
	if !ok {
		return fmt.Errorf("remove %s: %w: it was not looked up", o.Name, filer.ErrInvalid)
	}
	place, err := o.Name.Place()
	if err != nil {
		return fmt.Errorf("remove %.300s: %w", o.Name, err)
	}
	return c.call(ctx, "Remove", o.Path, func() error { return c.fs.removeObject(o.Path, place, commit) })
}

func (fs *FS) removeObject(path string, place filer.Place, commit uint64) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.find(path)
	switch {
	case path != place.Path || fs.find(place.Versions) != nil:
		return fmt.Errorf("remove %s: %w: it has versions", path, filer.ErrInvalid)
	case n == nil || n.object == nil || n.object.commit != commit:
		return fmt.Errorf("remove %s: %w", path, filer.ErrConflict)
	case place.Folder || n.isDir():
		return fmt.Errorf("remove %s: %w: it is a folder", path, filer.ErrInvalid)
	}
	dir, name := split(path)
	delete(fs.find(dir).children, name)
	return nil
}
