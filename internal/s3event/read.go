package s3event

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// maxText bounds ETags and media types, which in S3 have at most 1,024 bytes.
const maxText = 1024

// read takes what an event says of its object.
func (e *Event) read(r gjson.Result) (err error) {
	o := r.Get("s3.object")
	if e.Object.Bucket, err = text(r.Get("s3.bucket.name")); err != nil {
		return fmt.Errorf("s3.bucket.name: %w", err)
	}
	key, err := text(o.Get("key"))
	if err != nil {
		return fmt.Errorf("s3.object.key: %w", err)
	}
	if e.Object.Key, err = url.QueryUnescape(key); err != nil {
		return fmt.Errorf("s3.object.key: it is not URL-encoded: %w", err)
	}
	if e.Object.Version, err = text(o.Get("versionId")); err != nil {
		return fmt.Errorf("s3.object.versionId: %w", err)
	}
	if err := e.Object.Check(); err != nil {
		return err
	}
	if e.Size, err = size(o.Get("size")); err != nil {
		return err
	}
	if e.ETag, err = short(o.Get("eTag")); err != nil {
		return fmt.Errorf("s3.object.eTag: %w", err)
	}
	e.ETag = strings.Trim(e.ETag, `"`)
	if e.ContentType, err = short(o.Get("contentType")); err != nil {
		return fmt.Errorf("s3.object.contentType: %w", err)
	}
	if e.Sequencer, err = text(o.Get("sequencer")); err != nil {
		return fmt.Errorf("s3.object.sequencer: %w", err)
	}
	return e.readTime(r.Get("eventTime"))
}

// text is a string, or empty for what is absent or null.
func text(v gjson.Result) (string, error) {
	switch v.Type {
	case gjson.Null:
		return "", nil
	case gjson.String:
		return v.Str, nil
	}
	return "", errors.New("it is not a string")
}

func short(v gjson.Result) (string, error) {
	s, err := text(v)
	if len(s) > maxText {
		return "", fmt.Errorf("it has %d bytes, and S3's have at most %d", len(s), maxText)
	}
	return s, err
}

// size is 0, unknown, if it is absent, as in MinIO's events of objects of no bytes.
func size(v gjson.Result) (int64, error) {
	if v.Type == gjson.Null {
		return 0, nil
	}
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	if v.Type != gjson.Number || err != nil || n < 0 {
		return 0, fmt.Errorf("s3.object.size: %.40s is not a number of bytes", v.Raw)
	}
	return n, nil
}

func (e *Event) readTime(v gjson.Result) error {
	s, err := text(v)
	if err != nil {
		return fmt.Errorf("eventTime: %w", err)
	}
	if s == "" {
		return nil
	}
	if e.Time, err = time.Parse(time.RFC3339Nano, s); err != nil {
		return fmt.Errorf("eventTime: %.60q is not a time as in 2006-01-02T15:04:05Z", s)
	}
	return nil
}
