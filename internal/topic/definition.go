package topic

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits and defaults of a topic's settings.
const (
	DefaultFlushAge = time.Second
	MinFlushAge     = 10 * time.Millisecond
	MaxFlushAge     = 10 * time.Minute
)

// TargetBytes and TargetRecords are what one segment is to take in per second,
// unless a policy says otherwise. One flush of such a segment is one full chunk a
// second, and one consumer can follow it.
const (
	TargetBytes   = 8 << 20
	TargetRecords = 50_000
)

// State of a topic.
type State string

// A topic is being created until its first layout is there; whoever meets it
// finishes that. Then it is live until its deletion starts.
const (
	StateCreating State = "creating"
	StateLive     State = "live"
	StateDeleting State = "deleting"
)

// Definition is what a topic is: its topic.json.
type Definition struct {
	Name        string    `json:"name"`
	Incarnation string    `json:"incarnation"` // random; its folder's name
	State       State     `json:"state"`
	Key         Key       `json:"key"`
	FlushAge    Duration  `json:"flush_age"` // how long a record may wait for its flush
	Lanes       string    `json:"lanes"`     // lane group
	Roots       int       `json:"roots"`     // segments of its first layout
	Created     time.Time `json:"created"`

	// Replication is how many copies of its chunks there are, as in
	// CheckReplication; empty: as the filer's rules for the folder say.
	Replication string `json:"replication,omitempty"`
	// Fsync has chunks on disk before they are committed; false: as the rules say.
	Fsync bool `json:"fsync,omitempty"`

	// Buckets are where the objects may be that its records refer to: each entry
	// is a bucket, or bucket/prefix for the keys that begin so. None: nowhere.
	Buckets []string `json:"buckets,omitempty"`
	// Endpoint is the S3 endpoint that has the buckets; empty: the one that the
	// settings of workers and readers name.
	Endpoint string `json:"endpoint,omitempty"`
	// RecordRemovals has S3 events that tell of removed objects become records.
	RecordRemovals bool `json:"record_removals,omitempty"`
}

// Validate reports everything that is wrong with the definition.
func (d Definition) Validate() error {
	errs := []error{CheckName(d.Name), CheckGroup(d.Lanes), CheckReplication(d.Replication), CheckBuckets(d.Buckets)}
	if endpoint, err := ParseEndpoint(d.Endpoint); err != nil {
		errs = append(errs, err)
	} else if endpoint != d.Endpoint {
		errs = append(errs, &EndpointError{fmt.Sprintf("it is kept as %q", endpoint)})
	}
	if _, err := ParseKey(string(d.Key)); err != nil {
		errs = append(errs, err)
	}
	if d.Roots < 1 || d.Roots > MaxLive {
		errs = append(errs, fmt.Errorf("%d segments: want 1 to %d", d.Roots, MaxLive))
	}
	if age := time.Duration(d.FlushAge); age < MinFlushAge || age > MaxFlushAge {
		errs = append(errs, fmt.Errorf("flush age %s: want %s to %s", age, MinFlushAge, MaxFlushAge))
	}
	return errors.Join(errs...)
}

// ReplicationError tells that a replication setting is none.
type ReplicationError struct{ Value string }

func (e *ReplicationError) Error() string {
	return fmt.Sprintf("replication %.20q: want three digits, up to 255: how many more copies in other data centres, in other racks, on other servers of the rack, as in 001", e.Value)
}

// CheckReplication accepts SeaweedFS's notation of copies, and nothing at all,
// which leaves it to the filer. The error is a [*ReplicationError].
func CheckReplication(s string) error {
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return &ReplicationError{s}
		}
		n = n*10 + int(c-'0')
		if n > 255 {
			return &ReplicationError{s}
		}
	}
	if s != "" && len(s) != 3 {
		return &ReplicationError{s}
	}
	return nil
}

// Duration is a time.Duration that is a string in JSON ("1s").
type Duration time.Duration

// MarshalText gives "1s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Key says what of a record is its partition key: "header" (the key that it was
// published with), "none" (records are spread evenly), or "json:" and a JSON
// pointer (RFC 6901) into the value.
type Key string

// The kinds of Key that are not pointers.
const (
	KeyHeader Key = "header"
	KeyNone   Key = "none"
	keyJSON       = "json:"
)

// ParseKey checks a key setting.
func ParseKey(s string) (Key, error) {
	if s == string(KeyHeader) || s == string(KeyNone) {
		return Key(s), nil
	}
	pointer, ok := strings.CutPrefix(s, keyJSON)
	if !ok {
		return "", fmt.Errorf("partition key %q: want header, none or json:/pointer", s)
	}
	if !strings.HasPrefix(pointer, "/") {
		return "", fmt.Errorf("partition key %q: a JSON pointer starts with /", s)
	}
	for i, c := range pointer {
		if c == '~' && (i+1 == len(pointer) || pointer[i+1] != '0' && pointer[i+1] != '1') {
			return "", fmt.Errorf("partition key %q: in a JSON pointer ~ is written ~0 and / is written ~1", s)
		}
	}
	return Key(s), nil
}

// Pointer returns the reference tokens of a JSON pointer key, unescaped, or nil
// for the other kinds.
func (k Key) Pointer() []string {
	pointer, ok := strings.CutPrefix(string(k), keyJSON)
	if !ok {
		return nil
	}
	tokens := strings.Split(pointer, "/")[1:]
	for i, t := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens
}
