package seaweed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
)

// Open implements [filer.Store]. It reads the entry as it was found, whatever
// is at its path now. Blobs that are read from their start are checked against
// their checksums; the volume server checks the parts of others.
func (c *Client) Open(ctx context.Context, e filer.Entry, off int64) (io.ReadCloser, error) {
	switch {
	case off < 0 || e.IsDir:
		return nil, fmt.Errorf("open %q at %d: %w", e.Path, off, filer.ErrInvalid)
	case off >= e.Size:
		return io.NopCloser(strings.NewReader("")), nil
	case e.Content != nil:
		if off > int64(len(e.Content)) {
			return nil, fmt.Errorf("open %s at %d: %w: content of %d bytes for a size of %d", e.Path, off, filer.ErrCorrupt, len(e.Content), e.Size)
		}
		return io.NopCloser(bytes.NewReader(e.Content[off:])), nil
	case len(e.Blobs) == 0 || extra(e.Blobs[0]).odd:
		return c.openByPath(ctx, e, off)
	}
	r := &reader{ctx: ctx, c: c, path: e.Path, blobs: e.Blobs}
	for len(r.blobs) > 0 && off >= r.blobs[0].Size {
		off -= r.blobs[0].Size
		r.blobs = r.blobs[1:]
	}
	if len(r.blobs) == 0 {
		return nil, fmt.Errorf("open %s: %w: its blobs have less than its %d bytes", e.Path, filer.ErrCorrupt, e.Size)
	}
	if err := r.next(off); err != nil {
		return nil, err
	}
	return r, nil
}

// reader reads blobs one after the other. It is at the beginning of a blob or
// within one.
type reader struct {
	ctx   context.Context // of the Open; reading is part of that call
	c     *Client
	path  string
	blobs []filer.Blob // still to be opened
	blob  filer.Blob   // the one being read
	body  io.ReadCloser
	left  int64 // of the one being read
	crc   uint32
	check bool
	err   error
}

// next opens the next blob at off.
func (r *reader) next(off int64) error {
	r.blob, r.blobs = r.blobs[0], r.blobs[1:]
	body, err := r.c.openBlob(r.ctx, r.blob, off)
	if err != nil {
		return fmt.Errorf("read %s: %w", r.path, err)
	}
	_, known := crcOf(extra(r.blob).chunk)
	r.body, r.left, r.crc, r.check = body, r.blob.Size-off, 0, known && off == 0
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	for r.err == nil && r.left == 0 {
		r.err = r.advance()
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.body.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	if r.check {
		r.crc = crc32.Update(r.crc, castagnoli, p[:n])
	}
	switch {
	case r.left == 0:
		// The end is the next call's business, whatever the body says.
	case errors.Is(err, io.EOF):
		r.err = fmt.Errorf("read %s: blob %s: %w", r.path, r.blob.ID, io.ErrUnexpectedEOF)
	case err != nil:
		r.err = fmt.Errorf("read %s: blob %s: %w", r.path, r.blob.ID, err)
	}
	return n, r.err
}

// advance ends the blob that was read and opens the next one, or gives io.EOF.
func (r *reader) advance() error {
	closeBody(r.body)
	r.body = nil
	if want, _ := crcOf(extra(r.blob).chunk); r.check && r.crc != want {
		return fmt.Errorf("read %s: blob %s: %w: checksum %08x instead of %08x", r.path, r.blob.ID, filer.ErrCorrupt, r.crc, want)
	}
	if len(r.blobs) == 0 {
		return io.EOF
	}
	return r.next(0)
}

func (r *reader) Close() error {
	if r.body != nil {
		// Not read to the end: the connection is of no more use.
		_ = r.body.Close()
		r.body = nil
	}
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	return nil
}

// openBlob tries all servers that hold a blob. When those known from memory
// fail, it asks where the blob is now, once.
func (c *Client) openBlob(ctx context.Context, b filer.Blob, off int64) (io.ReadCloser, error) {
	for {
		hosts, fresh, err := c.where.find(ctx, b.ID)
		if err != nil {
			return nil, err
		}
		body, err := c.openAt(ctx, hosts, b, off)
		if err == nil || ctx.Err() != nil {
			return body, err
		}
		c.where.forget(b.ID)
		if fresh {
			return nil, err
		}
	}
}

func (c *Client) openAt(ctx context.Context, hosts []string, b filer.Blob, off int64) (io.ReadCloser, error) {
	var errs []error
	for _, host := range hosts {
		body, err := c.get(ctx, c.blobURL(host, b.ID, ""), off, b.Size)
		if statusOf(err) == http.StatusUnauthorized {
			body, err = c.get(ctx, c.proxyURL(b.ID), off, b.Size)
		}
		if err == nil {
			return body, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("blob %s: %w", b.ID, verdict(errs))
}

// verdict sums up the failures of all replicas. The blob is gone if each of
// them says so, and corrupt if one says so and no other failed to answer.
func verdict(errs []error) error {
	gone, corrupt := 0, 0
	for _, err := range errs {
		var answer *httpError
		switch {
		case statusOf(err) == http.StatusNotFound:
			gone++
		case errors.Is(err, filer.ErrCorrupt),
			errors.As(err, &answer) && strings.Contains(answer.Text, "data on disk corrupted"):
			corrupt++
		}
	}
	err := errors.Join(errs...)
	switch {
	case gone == len(errs):
		return fmt.Errorf("%w: %w", filer.ErrNotFound, err)
	case corrupt > 0 && gone+corrupt == len(errs):
		return fmt.Errorf("%w: %w", filer.ErrCorrupt, err)
	}
	return err
}

func statusOf(err error) int {
	var answer *httpError
	if errors.As(err, &answer) {
		return answer.Status
	}
	return 0
}

// get opens a URL at off. Size is what the whole should have.
func (c *Client) get(ctx context.Context, url string, off, size int64) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	want := http.StatusOK
	if off > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", off))
		want = http.StatusPartialContent
	}
	resp, err := c.http.Do(req)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != want:
		defer closeBody(resp.Body)
		return nil, statusError(resp)
	case resp.ContentLength >= 0 && resp.ContentLength != size-off:
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%w: %s has %d bytes from %d instead of %d", filer.ErrCorrupt, url, resp.ContentLength, off, size-off)
	}
	return resp.Body, nil
}

// openByPath reads through the filer, for files that others wrote in ways that
// only it can put together. It reads what is at the path now, which is the
// entry's file only if its size is still the same.
func (c *Client) openByPath(ctx context.Context, e filer.Entry, off int64) (io.ReadCloser, error) {
	u := url.URL{Scheme: c.scheme(), Host: c.cfg.Filer, Path: e.Path}
	body, err := c.get(ctx, u.String(), off, e.Size)
	if statusOf(err) == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", filer.ErrNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", e.Path, err)
	}
	return body, nil
}
