package seaweed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

	"github.com/spillway-mq/spillway/internal/filer"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maxReply bounds what is read of a volume server's answer to a write.
const maxReply = 16 << 10

// Upload implements [filer.Store]: AssignVolume at the filer, then one PUT of
// the bare bytes to the volume server, which copies them to the replicas before
// it answers. Collection, replication, TTL and fsync are those of the storage
// rules for path. The server's checksum of what it stored is compared.
func (c *Client) Upload(ctx context.Context, path string, data []byte) (filer.Blob, error) {
	return c.UploadAs(ctx, path, data, filer.Storage{})
}

// UploadAs implements [filer.Store]. The filer takes a replication to assign a
// volume by; fsync it only passes on from its rules, and it is the volume
// server that is asked for it, so it can be asked for here.
func (c *Client) UploadAs(ctx context.Context, path string, data []byte, how filer.Storage) (filer.Blob, error) {
	if err := errors.Join(filer.CheckPath(path), how.Check()); err != nil {
		return filer.Blob{}, fmt.Errorf("upload for %q: %w", path, err)
	}
	if len(data) == 0 || len(data) > filer.MaxBlob {
		return filer.Blob{}, fmt.Errorf("upload for %s: %w: blob of %d bytes", path, filer.ErrInvalid, len(data))
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	to, err := c.assign(ctx, path, len(data), how.Replication)
	if err != nil {
		return filer.Blob{}, fmt.Errorf("upload for %s: %w", path, err)
	}
	to.Fsync = to.Fsync || how.Fsync
	crc, err := c.put(ctx, to, data)
	if err != nil {
		return filer.Blob{}, fmt.Errorf("upload for %s as %s: %w", path, to.FileId, err)
	}
	chunk := &filer_pb.FileChunk{ModifiedTsNs: time.Now().UnixNano(), ETag: etagOf(crc)}
	return filer.Blob{ID: to.FileId, Size: int64(len(data)), Extra: placed{chunk: chunk, path: path, auth: to.Auth}}, nil
}

func (c *Client) assign(ctx context.Context, path string, size int, replication string) (*filer_pb.AssignVolumeResponse, error) {
	resp, err := c.rpc.AssignVolume(ctx, &filer_pb.AssignVolumeRequest{
		Count:            1,
		Path:             path,
		Collection:       c.cfg.Collection,
		Replication:      cmp.Or(replication, c.cfg.Replication),
		ExpectedDataSize: uint64(size),
	})
	if err != nil {
		return nil, fmt.Errorf("assign volume: %w", callError(ctx, err))
	}
	if err := responseError(resp.ErrorCode, resp.Error); err != nil {
		return nil, fmt.Errorf("assign volume: %w", err)
	}
	if resp.FileId == "" || resp.Location == nil {
		return nil, errors.New("assign volume: empty answer")
	}
	return resp, nil
}

func (c *Client) put(ctx context.Context, to *filer_pb.AssignVolumeResponse, data []byte) (uint32, error) {
	var query string
	if to.Fsync {
		query = "fsync=true"
	}
	// A body that is a bytes.Reader is what lets net/http send it again on a
	// fresh connection when an idle one turns out to be dead.
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.blobURL(c.where.host(to.Location), to.FileId, query), bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	// Without this type the server may find that the bytes look like text, and
	// compress them.
	req.Header.Set("Content-Type", octetStream)
	authorize(req, to.Auth)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer closeBody(resp.Body)
	if resp.StatusCode/100 != 2 {
		return 0, statusError(resp)
	}
	crc := crc32.Checksum(data, castagnoli)
	var reply struct {
		Size  int64  `json:"size"`
		ETag  string `json:"eTag"`
		Error string `json:"error"`
	}
	if resp.StatusCode == http.StatusNoContent { // the very same bytes are there
		return crc, nil
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(&reply); err != nil {
		return 0, fmt.Errorf("answer of volume server: %w", err)
	}
	if want := fmt.Sprintf("%08x", crc); reply.Error != "" || reply.Size != int64(len(data)) || reply.ETag != want {
		return 0, fmt.Errorf("volume server stored %d bytes with checksum %q instead of %d with %s: %s", reply.Size, reply.ETag, len(data), want, reply.Error)
	}
	return crc, nil
}

// Discard implements [filer.Store]. A blob that is gone already is no error.
func (c *Client) Discard(ctx context.Context, b filer.Blob) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	hosts, _, err := c.where.find(ctx, b.ID)
	if err != nil {
		return fmt.Errorf("discard %s: %w", b.ID, err)
	}
	var errs []error
	for _, host := range hosts {
		status, err := c.drop(ctx, c.blobURL(host, b.ID, ""), extra(b).auth)
		if status == http.StatusUnauthorized {
			// The upload's credential is out of date. The filer has its own.
			status, err = c.drop(ctx, c.proxyURL(b.ID), "")
		}
		if err == nil || status == http.StatusNotFound {
			return nil // the server tells the other replicas
		}
		errs = append(errs, err)
	}
	c.where.forget(b.ID)
	return fmt.Errorf("discard %s: %w", b.ID, errors.Join(errs...))
}

// drop sends a DELETE. The status is 0 when there was no answer.
func (c *Client) drop(ctx context.Context, url, auth string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, nil)
	if err != nil {
		return 0, err
	}
	authorize(req, auth)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer closeBody(resp.Body)
	if resp.StatusCode/100 != 2 {
		return resp.StatusCode, statusError(resp)
	}
	return resp.StatusCode, nil
}

func (c *Client) scheme() string {
	if c.cfg.HTTPS != nil {
		return "https"
	}
	return "http"
}

func (c *Client) blobURL(host, id, query string) string {
	u := url.URL{Scheme: c.scheme(), Host: host, Path: "/" + id, RawQuery: query}
	return u.String()
}

// proxyURL reaches a blob through the filer, which adds the credentials that
// volume servers want.
func (c *Client) proxyURL(id string) string {
	u := url.URL{Scheme: c.scheme(), Host: c.cfg.Filer, Path: "/", RawQuery: url.Values{"proxyChunkId": {id}}.Encode()}
	return u.String()
}

func authorize(req *http.Request, auth string) {
	if auth != "" {
		req.Header.Set("Authorization", "BEARER "+auth)
	}
}

// statusError describes an answer other than success.
func statusError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	return &httpError{Status: resp.StatusCode, Host: resp.Request.URL.Host, Text: string(bytes.TrimSpace(text))}
}

type httpError struct {
	Status int
	Host   string
	Text   string
}

func (e *httpError) Error() string {
	return fmt.Sprintf("%s answered %d %s: %s", e.Host, e.Status, http.StatusText(e.Status), e.Text)
}

// closeBody leaves the connection fit for another request if little is left to
// read.
func closeBody(body io.ReadCloser) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxReply))
	_ = body.Close()
}
