// Package refcheck holds a topic's references against the objects that are there,
// in both directions: whether the objects of its records are there, as the records
// say, and pinned; and whether a record names each object that producers uploaded
// for the topic. It can pin and adopt what is left alone, and delete what nobody
// wants. docs/adr/0018-orphans.md says why none of this takes away what a record
// names, or is about to name.
package refcheck

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"iter"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Objects are what an S3 endpoint has; *object.Store is one.
type Objects interface {
	Head(ctx context.Context, bucket, key, version string) (object.Info, error)
	List(ctx context.Context, bucket, prefix, after string) iter.Seq2[object.Object, error]
}

// Pins are the marks of objects on a filer; *pin.Pins is one.
type Pins interface {
	Held(ctx context.Context, n object.Name) ([]pin.Mark, error)
	Pin(ctx context.Context, n object.Name, info object.Info, h pin.Holder) error
}

// Checker checks the references of one topic, one check at a time.
type Checker struct {
	Topic   *segment.Topic
	Objects Objects
	// Endpoint is where Objects looks.
	Endpoint string
	// Pins and Filer, on which they are, are nil where nothing can be pinned.
	Pins  Pins
	Filer filer.Objects
	// Bucket, if not empty, may have uploads beside the topic's own buckets.
	Bucket string
	// OlderThan is how old an upload must be to count as one that nobody names:
	// the record of a younger one may be on its way.
	OlderThan time.Duration
	// Since, if not zero: only records appended since then. Limit, if not zero:
	// only so many. Which uploads nobody names cannot be told then.
	Since time.Time
	Limit uint64
	// Rejected: chunks are read too that have no accepted record with a reference.
	// All rejected ones are found then, and uploads that only they name.
	Rejected bool
	// Found is told of each finding: those of records in their order, then those
	// of uploads in the order of their names. Its error ends the check.
	Found func(Finding) error
	// Progress, if not nil, is told how many references were looked at.
	Progress func(references uint64)
	Now      func() time.Time

	// thorough: before an upload is called an orphan, the chunks are read that were
	// not, so that none is that a rejected record names.
	thorough bool
	silent   atomic.Int64 // looks in a row that had no answer
}

// Kind is what is the matter with a reference or an upload.
type Kind string

// All kinds. Of references, and of uploads.
const (
	Dangling Kind = "dangling" // its object is missing, deleted or changed: see State
	Pending  Kind = "pending"  // its object could not be looked at
	Unpinned Kind = "unpinned" // its object is valid, on our filer, and the topic has no pin on it

	Orphaned Kind = "orphaned" // no record names it
	Held     Kind = "held"     // no record names it, but it has a pin: of a record that was trimmed, or of another life of the topic
	Refused  Kind = "refused"  // only rejected records name it
)

// Finding is something that is not as it is meant to be.
type Finding struct {
	Kind  Kind      `json:"kind"`
	State ref.State `json:"state,omitempty"` // of a reference

	// Where the reference's record is.
	Segment topic.SegmentID `json:"segment,omitempty"`
	Offset  *uint64         `json:"offset,omitempty"`
	Key     *Key            `json:"key,omitempty"` // nil: none
	// Unverified: the record was committed as pending.
	Unverified bool `json:"unverified,omitempty"`

	URL      string    `json:"url"`
	Version  string    `json:"version,omitempty"`
	Size     int64     `json:"size"` // of the object, if it was seen, else as its record says
	Modified time.Time `json:"modified,omitzero"`
	Pins     []string  `json:"pins,omitempty"` // topics that have a pin on it
	Reason   string    `json:"reason,omitempty"`

	// Err is the error behind Reason.
	Err error `json:"-"`

	name object.Name
	info object.Info
}

// Key is a record's key. In JSON it is as in records: a string, or an object with
// the member base64.
type Key []byte

// MarshalJSON implements [json.Marshaler].
func (k Key) MarshalJSON() ([]byte, error) {
	if utf8.Valid(k) {
		return json.Marshal(string(k))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(k)})
}

// Report sums a check up.
type Report struct {
	OK    bool   `json:"ok"` // nothing dangles, is pending, not pinned, or an orphan
	Topic string `json:"topic"`
	// Limited: it ended before the last record.
	Limited    bool                 `json:"limited,omitempty"`
	Chunks     uint64               `json:"chunks"`     // that were read
	References uint64               `json:"references"` // accepted records with one
	Objects    uint64               `json:"objects"`    // that were looked at
	States     map[ref.State]uint64 `json:"states"`     // of the references
	Unverified uint64               `json:"unverified"` // of the references, those committed as pending
	Unpinned   uint64               `json:"unpinned"`   // objects
	Elsewhere  uint64               `json:"elsewhere"`  // valid objects that are not on our filer
	Rejected   Rejected             `json:"rejected"`
	Uploads    Uploads              `json:"uploads"`
}

// Rejected are the rejected records with a reference.
type Rejected struct {
	Records uint64 `json:"records"`
	// Complete: all chunks were read for them, and not only those that have
	// accepted references too.
	Complete bool              `json:"complete"`
	Kinds    map[string]uint64 `json:"kinds"`
}

// Uploads are the objects below spillway/<topic>/.
type Uploads struct {
	// Judged is false where not all records were read, or were too many.
	Judged   bool     `json:"judged"`
	Why      string   `json:"why,omitempty"` // not
	Places   []string `json:"places"`        // where there may be some
	Found    uint64   `json:"found"`
	Named    uint64   `json:"named"` // by accepted records
	Young    uint64   `json:"young"` // by no record that is committed, and younger than OlderThan
	Refused  uint64   `json:"refused"`
	Held     uint64   `json:"held"`
	Orphaned uint64   `json:"orphaned"`
	Bytes    int64    `json:"orphaned_bytes"`
	// LeftOut are so many of which it is not known what they are, because there
	// are too many orphans: deal with those first.
	LeftOut uint64 `json:"left_out,omitempty"`
}

func newReport(name string) Report {
	return Report{
		Topic: name, States: map[ref.State]uint64{ref.Valid: 0, ref.Pending: 0, ref.Missing: 0, ref.Changed: 0, ref.Deleted: 0},
		Rejected: Rejected{Kinds: map[string]uint64{}}, Uploads: Uploads{Places: []string{}},
	}
}

// Dangling is how many references' objects are not there, or are others.
func (r Report) Dangling() uint64 {
	return r.States[ref.Missing] + r.States[ref.Changed] + r.States[ref.Deleted]
}

// judged fails if it was not found out which uploads no record names.
func (r Report) judged() error {
	if r.Uploads.Judged {
		return nil
	}
	return fmt.Errorf("topic %q: which uploads no record names cannot be told: %s", r.Topic, r.Uploads.Why)
}
