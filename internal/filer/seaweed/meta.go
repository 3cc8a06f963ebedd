package seaweed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

	"github.com/spillway-mq/spillway/internal/filer"
)

// What the filer does (weed/server/filer_grpc_server.go), as far as it matters:
//   - An exclusive create is forwarded to the one filer that owns the path and
//     decided there under a lock. When it is refused nothing is deleted: the
//     blobs it names stay, and can be named by another file.
//   - The entry is written before its parents are made. A create that fails at
//     the parents leaves its entry behind, so such an error is an unknown
//     outcome, and paths are checked before they are sent.
//   - An update or delete with ExpectedExtended is decided likewise. An update
//     deletes the blobs that the new entry no longer names, in the background.
//   - A file below a file turns the latter into a directory.
//   - Storage rules that make a path read-only stop creates and uploads, but
//     neither updates nor deletes.

// Create implements [filer.Store].
func (c *Client) Create(ctx context.Context, path string, f filer.File) error {
	if err := filer.CheckWrite(path, f); err != nil {
		return fmt.Errorf("create %q: %w", path, err)
	}
	dir, name := split(path)
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.rpc.CreateEntry(ctx, &filer_pb.CreateEntryRequest{Directory: dir, Entry: toPb(name, f), OExcl: true})
	if err != nil {
		err = callError(ctx, err)
	} else {
		err = responseError(resp.ErrorCode, resp.Error)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

// Update implements [filer.Store].
func (c *Client) Update(ctx context.Context, path, expect string, f filer.File) error {
	if err := filer.CheckWrite(path, f); err != nil {
		return fmt.Errorf("update %q: %w", path, err)
	}
	if expect == "" {
		return fmt.Errorf("update %s: %w: no ID to compare with", path, filer.ErrInvalid)
	}
	dir, name := split(path)
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	_, err := c.rpc.UpdateEntry(ctx, &filer_pb.UpdateEntryRequest{
		Directory:        dir,
		Entry:            toPb(name, f),
		ExpectedExtended: map[string][]byte{idKey: []byte(expect)},
	})
	if err != nil {
		return fmt.Errorf("update %s: %w", path, callError(ctx, err))
	}
	return nil
}

// Lookup implements [filer.Store].
func (c *Client) Lookup(ctx context.Context, path string) (filer.Entry, error) {
	if err := filer.CheckPath(path); err != nil {
		return filer.Entry{}, fmt.Errorf("look up %q: %w", path, err)
	}
	dir, name := split(path)
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.rpc.LookupDirectoryEntry(ctx, &filer_pb.LookupDirectoryEntryRequest{Directory: dir, Name: name})
	switch {
	case err != nil:
		return filer.Entry{}, fmt.Errorf("look up %s: %w", path, callError(ctx, err))
	case resp.Entry == nil:
		return filer.Entry{}, fmt.Errorf("look up %s: %w", path, filer.ErrNotFound)
	}
	return fromPb(path, resp.Entry), nil
}

const defaultLimit = 1000

// List implements [filer.Store].
func (c *Client) List(ctx context.Context, dir, after string, limit int) ([]filer.Entry, error) {
	if err := filer.CheckPath(dir); err != nil {
		return nil, fmt.Errorf("list %q: %w", dir, err)
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	stream, err := c.rpc.ListEntries(ctx, &filer_pb.ListEntriesRequest{
		Directory:         dir,
		StartFromFileName: after,
		Limit:             uint32(limit),
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, callError(ctx, err))
	}
	var entries []filer.Entry
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return entries, nil
		case err != nil:
			err = callError(ctx, err)
			if errors.Is(err, filer.ErrNotFound) {
				return nil, nil
			}
			return nil, fmt.Errorf("list %s: %w", dir, err)
		}
		entries = append(entries, fromPb(dir+"/"+resp.Entry.Name, resp.Entry))
	}
}

// Delete implements [filer.Store].
func (c *Client) Delete(ctx context.Context, path, expect string) error {
	if err := filer.CheckPath(path); err != nil {
		return fmt.Errorf("delete %q: %w", path, err)
	}
	req := &filer_pb.DeleteEntryRequest{IsDeleteData: true}
	if expect != "" {
		req.ExpectedExtended = map[string][]byte{idKey: []byte(expect)}
	}
	err := c.remove(ctx, path, req)
	if errors.Is(err, filer.ErrConflict) {
		err = c.conflict(ctx, path, expect, err)
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	return nil
}

// conflict tells a file that is not there from one with another ID. The filer
// answers both with the same code.
func (c *Client) conflict(ctx context.Context, path, expect string, refusal error) error {
	e, err := c.Lookup(ctx, path)
	switch {
	case errors.Is(err, filer.ErrNotFound):
		return nil
	case err != nil:
		return err
	case e.ID == expect:
		return errors.New("refused as if the file had another ID, which it has not")
	}
	return refusal
}

// DeleteTree implements [filer.Store].
func (c *Client) DeleteTree(ctx context.Context, dir string) error {
	if err := filer.CheckPath(dir); err != nil {
		return fmt.Errorf("delete tree %q: %w", dir, err)
	}
	if err := c.remove(ctx, dir, &filer_pb.DeleteEntryRequest{IsDeleteData: true, IsRecursive: true}); err != nil {
		return fmt.Errorf("delete tree %s: %w", dir, err)
	}
	return nil
}

// nonEmpty starts the text by which the filer refuses to delete a directory
// that is not empty.
const nonEmpty = "fail to delete non-empty folder"

func (c *Client) remove(ctx context.Context, path string, req *filer_pb.DeleteEntryRequest) error {
	req.Directory, req.Name = split(path)
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.rpc.DeleteEntry(ctx, req)
	switch {
	case err != nil:
		err = callError(ctx, err)
		if errors.Is(err, filer.ErrNotFound) {
			return nil
		}
		return err
	case strings.HasPrefix(resp.Error, nonEmpty):
		return fmt.Errorf("%w: a directory with entries", filer.ErrInvalid)
	}
	return responseError(filer_pb.FilerError_OK, resp.Error)
}

func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i == 0 {
		return "/", path[1:]
	}
	return path[:i], path[i+1:]
}
