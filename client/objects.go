package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"time"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/topic"
)

// MaxUpload is the largest value that Publish uploads. Upload larger payloads
// by other means, and [Producer.Submit] them.
const MaxUpload int64 = 5 << 30

// Uploaded values: what their keys begin with, and what they are said to be.
const (
	uploads    = "spillway/"
	uploadType = "application/octet-stream"
)

// reusable is how old an uploaded object may be for another record to name it, by
// this machine's clock and the endpoint's. An older one is uploaded again:
// `spillway refs drop` may be about to delete what no record names and what is a
// day old (docs/adr/0018-orphans.md). ahead is how far in the future its time may
// lie; beyond, nobody knows how old it is.
const (
	reusable = 12 * time.Hour
	ahead    = time.Hour
)

// ObjectsConfig says how to reach objects on S3.
type ObjectsConfig struct {
	// Endpoint is a URL, such as http://host:8333. Empty: that of AWS.
	Endpoint string

	// Region, AccessKey and SecretKey: if empty, as the AWS SDK finds them, in the
	// environment, its files, or on the machine's metadata service.
	Region, AccessKey, SecretKey string

	// Bucket takes the values that are too large for a lane. Empty: Publish
	// refuses them.
	Bucket string
}

// Objects are the objects on an S3 endpoint, for [Options]. All methods may be
// called concurrently, and several producers may use one.
type Objects struct {
	store  objectStore
	bucket string
	now    func() time.Time
}

// objectStore is what is needed of an [object.Store]. A program that never calls
// OpenObjects does not link what is behind it.
type objectStore interface {
	Head(ctx context.Context, bucket, key, version string) (object.Info, error)
	Put(ctx context.Context, n object.Name, body io.ReaderAt, size int64, o object.PutOptions) (object.Info, error)
	Close()
}

// OpenObjects prepares access to an S3 endpoint. It fails with [*OptionsError],
// and does not call the endpoint.
func OpenObjects(ctx context.Context, c ObjectsConfig) (*Objects, error) {
	store, err := object.Open(ctx, object.Config{
		Endpoint: c.Endpoint, Region: c.Region, AccessKey: c.AccessKey, SecretKey: c.SecretKey,
	})
	if err != nil {
		return nil, &OptionsError{Problems: []string{err.Error()}}
	}
	if c.Bucket != "" {
		if err := (object.Name{Bucket: c.Bucket, Key: uploads}).Check(); err != nil {
			return nil, &OptionsError{Problems: []string{err.Error()}}
		}
	}
	return &Objects{store: store, bucket: c.Bucket, now: time.Now}, nil
}

// Close gives idle connections back. Close the producers first.
func (o *Objects) Close() { o.store.Close() }

// takes tells whether a value can be uploaded; o may be nil.
func (o *Objects) takes(value []byte) bool {
	return o != nil && o.bucket != "" && int64(len(value)) <= MaxUpload
}

// limit is the size of the largest value; o may be nil.
func (o *Objects) limit() int64 {
	if o == nil || o.bucket == "" {
		return MaxValue
	}
	return MaxUpload
}

// Object is an object that was looked at.
type Object struct {
	Reference
	Modified time.Time
}

// Check looks at the object that r names, and returns r with what it left open
// filled in. It fails with [*ReferenceError] if the object is not there or is not
// as r says, and with [*ObjectsError] if that cannot be told. A digest is compared
// if the object's metadata have one; the object's bytes are not read.
func (o *Objects) Check(ctx context.Context, r Reference) (Object, error) {
	name, err := r.name()
	if err != nil {
		return Object{}, err
	}
	info, err := o.store.Head(ctx, name.Bucket, name.Key, name.Version)
	if err != nil {
		return Object{}, objectsError("look at", r.URL, err)
	}
	if err := ref.Compare(r.internal(), info); err != nil {
		return Object{}, referenceError(r.URL, err)
	}
	return Object{r.filled(ref.From(name, info)), info.Modified}, nil
}

// Upload puts a payload of up to 5 TiB where Publish puts large values, for a topic, and
// returns a reference to it, to be submitted [Unchecked]. It reads body twice, unless
// the object is there already. It fails with [*ObjectsError], also where there is no
// bucket, and with the error of body.
func (o *Objects) Upload(ctx context.Context, topicName string, body io.ReaderAt, size int64) (Reference, error) {
	if o.bucket == "" {
		return Reference{}, &ObjectsError{Op: "upload", Err: errors.New("no bucket is set for it")}
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(body, 0, size)); err != nil {
		return Reference{}, err
	}
	f, err := o.upload(ctx, topicName, payload{body, size, sum.Sum(nil)})
	if err != nil {
		return Reference{}, err
	}
	return Reference{URL: f.URL}.filled(f), nil
}

// payload is what is uploaded.
type payload struct {
	body io.ReaderAt
	size int64
	sum  []byte
}

func payloadOf(value []byte) payload {
	sum := sha256.Sum256(value)
	return payload{bytes.NewReader(value), int64(len(value)), sum[:]}
}

// upload sees to it that there is an object with the payload, named by its digest,
// and returns the reference. An object of that name with that size and digest is
// used as it is, so that an upload that is repeated costs one look, unless it is
// too old for that. The digest may be what whoever put the object has written
// beside it, who is trusted (docs/REFERENCES.md).
func (o *Objects) upload(ctx context.Context, topicName string, p payload) (record.Ref, error) {
	if err := topic.CheckName(topicName); err != nil {
		return record.Ref{}, err
	}
	name := object.Name{Bucket: o.bucket, Key: uploads + topicName + "/" + hex.EncodeToString(p.sum)}
	info, err := o.put(ctx, name, p)
	if err != nil {
		return record.Ref{}, objectsError("upload", name.String(), err)
	}
	r := ref.From(name, info)
	r.Size, r.SHA256 = p.size, p.sum
	return r, nil
}

// racers is how often an upload may lose against another one of the same name,
// which can only be of the same value.
const racers = 3

func (o *Objects) put(ctx context.Context, name object.Name, p payload) (object.Info, error) {
	for try := 1; ; try++ {
		info, err := o.store.Head(ctx, name.Bucket, name.Key, name.Version)
		switch missing := errors.Is(err, object.ErrNotFound); {
		case err == nil && info.Size == p.size && bytes.Equal(info.SHA256, p.sum) && o.fresh(info):
			return info, nil
		case err != nil && !missing:
			return info, err
		default: // what is there under this name is damaged, or old, and is replaced
			info, err = o.store.Put(ctx, name, p.body, p.size, object.PutOptions{
				ContentType: uploadType, SHA256: p.sum, IfNoneMatch: missing, Pins: info.Pins,
			})
		}
		if err == nil || !errors.Is(err, object.ErrChanged) || try == racers {
			return info, err
		}
	}
}

// fresh tells whether an object is young enough to be named by another record.
func (o *Objects) fresh(info object.Info) bool {
	age := o.now().Sub(info.Modified)
	return !info.Modified.IsZero() && age < reusable && age > -ahead
}

// objectsError sorts what a store answers.
func objectsError(op, url string, err error) error {
	if state := ref.StateOf(err); op == "look at" && state != ref.Pending {
		return referenceError(url, err)
	}
	stays := errors.Is(err, object.ErrForbidden) || errors.Is(err, object.ErrNotFound) || errors.Is(err, object.ErrInvalid)
	return &ObjectsError{Op: op, URL: url, Passes: !stays, Err: err}
}

func referenceError(url string, err error) error {
	return &ReferenceError{URL: url, State: string(ref.StateOf(err)), Err: err}
}
