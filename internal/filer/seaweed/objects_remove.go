package seaweed

import (
	"context"
	"errors"
	"fmt"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-mq/spillway/internal/filer"
)

var _ filer.Remover = (*Client)(nil)

// Remove implements [filer.Remover], by the transaction with which S3 deletes.
func (c *Client) Remove(ctx context.Context, o filer.Object) error {
	f, ok := o.Extra.(found)
	if !ok {
		return fmt.Errorf("remove %s: %w: it was not looked up", o.Name, filer.ErrInvalid)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	err := c.removable(ctx, o, f)
	if err == nil {
		err = c.removeObject(ctx, o, f)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", o.Name, err)
	}
	return nil
}

// removable refuses what is more than one entry.
func (c *Client) removable(ctx context.Context, o filer.Object, f found) error {
	if f.entry.IsDirectory || f.place.Folder {
		return fmt.Errorf("%w: it is a folder", filer.ErrInvalid)
	}
	versions := o.Path != f.place.Path
	if !versions {
		switch _, err := c.entry(ctx, f.place.Versions); {
		case err == nil:
			versions = true
		case !errors.Is(err, filer.ErrNotFound):
			return err
		}
	}
	if versions {
		return fmt.Errorf("%w: it has versions", filer.ErrInvalid)
	}
	return nil
}

func (c *Client) removeObject(ctx context.Context, o filer.Object, f found) error {
	dir, name := split(o.Path)
	req := patch(o.Path, f, "", "")
	req.Mutations = []*filer_pb.ObjectMutation{{
		Type: filer_pb.ObjectMutation_DELETE, Directory: dir, Name: name, IsDeleteData: true,
	}}
	resp, err := c.rpc.ObjectTransaction(ctx, req)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("%w: the filer is too old for it: %s", filer.ErrInvalid, status.Convert(err).Message())
	case err != nil:
		return callError(ctx, err)
	}
	return responseError(resp.ErrorCode, resp.Error)
}
