package object_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/object"
)

// failing is a body that breaks.
type failing struct{ at int64 }

var errDisk = errors.New("the disk is gone")

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.at {
		return 0, errDisk
	}
	return len(p), nil
}

// TestPutFails: what is not whole, or is not what it should be, never becomes an
// object, and leaves nothing behind.
func TestPutFails(t *testing.T) {
	w := onWeed(t)
	big := int64(3 * object.PartSize)
	wrong := sha256.Sum256(nil)
	canceled, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		ctx  context.Context
		body io.ReaderAt
		size int64
		sum  []byte
		want error
	}{
		"small, another digest": {body: strings.NewReader("x"), size: 1, sum: wrong[:], want: object.ErrCorrupt},
		"big, another digest":   {body: bytes.NewReader(make([]byte, big)), size: big, sum: wrong[:], want: object.ErrCorrupt},
		"small, too short":      {body: strings.NewReader("x"), size: 2, want: io.ErrUnexpectedEOF},
		"big, too short":        {body: bytes.NewReader(make([]byte, big-1)), size: big, want: io.ErrUnexpectedEOF},
		"small, unreadable":     {body: failing{}, size: 1, want: errDisk},
		"big, unreadable":       {body: failing{object.PartSize * 2}, size: big, want: errDisk},
		"big, canceled":         {ctx: canceled, body: &cancelAt{cancel: cancel, at: object.PartSize * 2}, size: big, want: context.Canceled},
		"negative":              {body: strings.NewReader("x"), size: -1, want: object.ErrInvalid},
		"over 5 TiB":            {body: strings.NewReader("x"), size: object.MaxSize + 1, want: object.ErrInvalid},
		"half a digest":         {body: strings.NewReader("x"), size: 1, sum: []byte("short"), want: object.ErrInvalid},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		_, err := w.Put(ctx, w.name("k"), c.body, c.size, object.PutOptions{SHA256: c.sum})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), w.name("k").String()) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := w.Head(t.Context(), w.bucket, "k", ""); !errors.Is(err, object.ErrNotFound) {
			t.Errorf("%s: an object came into being: %v", name, err)
		}
	}
	w.noUploads(t)
}

// cancelAt ends the upload's context in the middle.
type cancelAt struct {
	cancel func()
	at     int64
}

func (c *cancelAt) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > c.at {
		c.cancel()
	}
	return len(p), nil
}
