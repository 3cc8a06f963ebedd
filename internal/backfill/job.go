package backfill

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
)

// Job is a backfill as it was made: what its file holds. It never changes.
type Job struct {
	ID          string    `json:"id"`
	Topic       string    `json:"topic"`
	Incarnation string    `json:"incarnation"` // of the topic
	Created     time.Time `json:"created"`
	// By and Origin are for people: who made the job ("cli", "schedule nightly at
	// 2026-12-01T02:00:00Z", "expand lane.x@12:0"), and where its objects were found
	// ("s3://bucket/prefix", "manifest s3://bucket/key", "files").
	By     string `json:"by"`
	Origin string `json:"origin"`
	// Schedule is the id of the schedule that made the job; empty: none did.
	Schedule string `json:"schedule,omitempty"`
	// Reference is the one whose object the job expands; nil: it is no such job. Until
	// the reference is known to be a record of the topic, nobody may work on it.
	Reference *Reference `json:"reference,omitempty"`
	// Host is set if the objects are files of one machine: only there can they be
	// read, under the paths that they have.
	Host string `json:"host,omitempty"`
	// Endpoint is the S3 endpoint that has the objects, as in topic.Definition;
	// empty: the one of each worker's settings.
	Endpoint string `json:"endpoint,omitempty"`
	Read     Read   `json:"read"`
	// Limits are those that the job begins with. The state has those in force.
	Limits  Limits   `json:"limits"`
	Sources []Source `json:"sources"`
}

// Read says how the objects of a job are read, and what of a row is what. Places in
// rows are as in rows.Pick.
type Read struct {
	Format      rows.Format       `json:"format,omitempty"`
	Compression rows.Compression  `json:"compression,omitempty"`
	CSV         CSV               `json:"csv,omitzero"`
	MaxRow      int               `json:"max_row,omitempty"`  // bytes; 0: rows.DefaultMaxRow
	Key         string            `json:"key,omitempty"`      // place; never of a topic whose key is a place itself
	FixedKey    []byte            `json:"fixed_key,omitzero"` // of every row, instead of a place; nil: none
	Time        string            `json:"time,omitempty"`     // place
	TimeLayout  string            `json:"time_layout,omitempty"`
	Zone        string            `json:"zone,omitempty"` // name of IANA's database; empty: UTC
	Headers     map[string]string `json:"headers,omitempty"`
	// From and Until, if set, leave out rows whose event time is not in [From,
	// Until), and rows without one.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// CSV is how CSV and TSV are read: rows.CSVOptions, in JSON.
type CSV struct {
	Comma    string   `json:"comma,omitempty"` // one byte; empty: the format's own
	Names    []string `json:"names,omitempty"`
	NoHeader bool     `json:"no_header,omitempty"`
}

// Source is one source of a job: objects that are read one after the other.
type Source struct {
	Name    string   `json:"name"`
	Objects []Object `json:"objects"`
}

// Object is a file of records: an S3 object, or a file of the job's host.
type Object struct {
	Bucket  string `json:"bucket,omitempty"`
	Key     string `json:"key,omitempty"`
	Version string `json:"version,omitempty"` // empty: the bucket has none, or it is not known
	Path    string `json:"path,omitempty"`    // of a file of the host, absolute; else empty
	ETag    string `json:"etag"`              // of a file: FileETag
	Size    int64  `json:"size"`
	// Format and Compression are set, both together, where they are not the job's.
	Format      rows.Format      `json:"format,omitempty"`
	Compression rows.Compression `json:"compression,omitempty"`
}

// Name is what S3 calls the object. Files of the host have none.
func (o Object) Name() object.Name {
	return object.Name{Bucket: o.Bucket, Key: o.Key, Version: o.Version}
}

// String names the object for people and in headers of records: "s3://bucket/key",
// or a path.
func (o Object) String() string {
	if o.Path != "" {
		return o.Path
	}
	return o.Name().String()
}

// Options say how rows reads an object of the job, from its first row on.
func (r Read) Options(o Object) rows.Options {
	opts := rows.Options{
		Format: r.Format, Compression: r.Compression, MaxRow: r.MaxRow,
		CSV: rows.CSVOptions{Names: r.CSV.Names, NoHeader: r.CSV.NoHeader},
	}
	if r.CSV.Comma != "" {
		opts.CSV.Comma = r.CSV.Comma[0]
	}
	if o.Format != "" {
		opts.Format, opts.Compression = o.Format, o.Compression
	}
	return opts
}

// Picker picks from rows what the job says.
func (r Read) Picker() (*rows.Picker, error) {
	zone, err := r.zone()
	if err != nil {
		return nil, err
	}
	return rows.Pick{Key: r.Key, Time: r.Time, TimeLayout: r.TimeLayout, Zone: zone, Headers: r.Headers}.Picker()
}

func (r Read) zone() (*time.Location, error) {
	if strings.EqualFold(r.Zone, "local") {
		return nil, fmt.Errorf("time zone %q: it is another one on other machines", r.Zone)
	}
	zone, err := time.LoadLocation(r.Zone)
	if err != nil {
		return nil, fmt.Errorf("time zone %.60q is not known", r.Zone)
	}
	return zone, nil
}

// Within tells whether a row with an event time (zero: it has none) is one that
// the job wants.
func (r Read) Within(event time.Time) bool {
	if r.From.IsZero() && r.Until.IsZero() {
		return true
	}
	return !event.IsZero() && !event.Before(r.From) && (r.Until.IsZero() || event.Before(r.Until))
}

const (
	// MaxSources is how many sources a job has at most.
	MaxSources = 64
	// MaxFile is how many bytes a job's file has at most: some 400,000 objects.
	MaxFile = 64 << 20

	maxID    = 32
	randomID = 12
)

// NewID returns a random id for a job.
func NewID() string { return filer.Token(randomID) }

// CheckID tells whether a job can have an id: 1 to 32 of a-z and 0-9. The error is
// an [*IDError].
func CheckID(id string) error {
	if id == "" || len(id) > maxID || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return &IDError{id}
	}
	return nil
}

// IDError tells that something is no id of a job.
type IDError struct{ ID string }

func (e *IDError) Error() string {
	return fmt.Sprintf("job id %.60q: want 1 to %d of a-z and 0-9", e.ID, maxID)
}

// SourceName names source n, from 0, of a job. Names of sources are never used
// again, since ids are not.
func SourceName(id string, n int) string { return segment.BackfillSource(id, n) }

// Objects counts the objects of the job, and their bytes.
func (j Job) Objects() (n uint64, bytes uint64) {
	for _, s := range j.Sources {
		n += uint64(len(s.Objects))
		for _, o := range s.Objects {
			bytes += uint64(o.Size)
		}
	}
	return n, bytes
}
