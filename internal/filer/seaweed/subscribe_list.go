package seaweed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

	"github.com/spillway-mq/spillway/internal/filer"
)

// Written tells of the objects of a scope as they are, all versions and delete
// markers, as if they had just been written or put. An error of tell ends it. What
// changes meanwhile may be told or not. It keeps one page of a folder's subfolders
// for each level.
func (c *Client) Written(ctx context.Context, s Scope, tell func(ObjectEvent) error) error {
	err := s.Check()
	if err == nil {
		dir, begin := path.Split(s.path())
		err = c.written(ctx, s, folder{strings.TrimSuffix(dir, "/"), begin}, tell)
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", s, err)
	}
	return nil
}

// folder is a folder, of which the entries matter whose names begin so.
type folder struct{ dir, begin string }

func (c *Client) written(ctx context.Context, s Scope, f folder, tell func(ObjectEvent) error) error {
	for after := ""; ; {
		p, err := c.page(ctx, s, f, after, tell)
		if err != nil {
			return err
		}
		for _, name := range p.folders {
			if err := c.written(ctx, s, folder{dir: f.dir + "/" + name}, tell); err != nil {
				return err
			}
		}
		if p.entries < defaultLimit {
			return nil
		}
		after = p.last
	}
}

// page is what there was on a page of a folder.
type page struct {
	folders []string
	entries int
	last    string
}

func (c *Client) page(ctx context.Context, s Scope, f folder, after string, tell func(ObjectEvent) error) (p page, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.ListEntries(ctx, &filer_pb.ListEntriesRequest{
		Directory: f.dir, Prefix: f.begin, StartFromFileName: after, Limit: defaultLimit,
	})
	if err != nil {
		return p, callError(ctx, err)
	}
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return p, nil
		case err != nil:
			if err = callError(ctx, err); errors.Is(err, filer.ErrNotFound) {
				err = nil
			}
			return p, err
		}
		e := resp.Entry
		p.entries++
		p.last = e.Name
		if e.IsDirectory && (f.dir != s.dir() || e.Name != uploadsDir) {
			p.folders = append(p.folders, e.Name)
		}
		if o, ok := objectOf(s, f.dir, e, mtimeOf(e).UnixNano()); ok {
			if err := tell(o); err != nil {
				return p, err
			}
		}
	}
}
