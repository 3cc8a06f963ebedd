// Package object reaches objects behind one S3 endpoint: it looks at them, reads
// them from any byte on, lists them, and puts them there, whole or not at all. It
// knows nothing of references and records; internal/ref does.
//
// Endpoints are not trusted. An answer is bounded in size and in time, no
// redirect is followed, and what an endpoint says is never more than a typed
// error. Credentials are in no error and in no log line.
package object

import "time"

// Info is what an endpoint says about an object.
type Info struct {
	Size        int64
	ETag        string    // without its quotes
	Version     string    // empty: the bucket has no versions
	ContentType string    // empty: unknown
	SHA256      []byte    // 32 bytes, or nil: unknown
	Modified    time.Time // zero: unknown
	// Pins are the pins on it, as [PutOptions] takes them; only Head tells them. They
	// are part of the metadata, and are so lost when the object is put again.
	Pins map[string]string
}

// Object is one line of a listing. Its Info has no Version, ContentType and
// SHA256: listings do not tell them.
type Object struct {
	Key string
	Info
}

// PutOptions say more about an object that is put.
type PutOptions struct {
	ContentType string
	// SHA256, if the caller knows it, is compared with the bytes before the object
	// comes into being, and kept with it for [Info].
	SHA256 []byte
	// IfNoneMatch: put it only if there is no object of this name.
	IfNoneMatch bool
	// Pins, if not empty, are those of the object that this one replaces.
	Pins map[string]string
}

// sha256Meta names the digest in an object's user metadata: x-amz-meta-….
const sha256Meta = "spillway-sha256"

// pinMeta begins the names of pins there (package pin).
const pinMeta = "spillway-pin-"

const (
	// PartSize is the size of the parts of large objects, and of the largest
	// object that is put in one piece.
	PartSize = 16 << 20
	// MaxSize is the size of the largest object that S3 takes.
	MaxSize = 5 << 40
)
