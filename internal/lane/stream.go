package lane

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DefaultMaxBytes is how much a lane buffers unless [Settings] say otherwise.
// The server sets this much storage aside for the lane.
const DefaultMaxBytes = 1 << 30

// defaultDuplicates is how long a lane's server recognises a resent message. It
// spares the workers duplicates; exactly once does not rest on it.
const defaultDuplicates = 2 * time.Minute

// ErrNoLane tells that the lane's stream does not exist. Lanes are made by
// [Ensure] and by nothing else.
var ErrNoLane = errors.New("the lane does not exist")

// MismatchError tells that a stream of a lane's name exists and cannot serve as
// that lane. Nothing but an operator can put this right.
type MismatchError struct {
	Stream  string
	Reasons []string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("stream %s is not fit to be a lane: %s", e.Stream, strings.Join(e.Reasons, "; "))
}

// Settings are what may differ between lanes. A zero field means the default.
type Settings struct {
	MaxBytes   int64         // what the lane buffers before it pushes back; DefaultMaxBytes
	Replicas   int           // 1
	Duplicates time.Duration // window in which JetStream drops resent messages; 2 min
	// Lanes is how many lanes the new lane's group has, itself included; 1. It is
	// recorded in each of them, and never changes.
	Lanes int
	// Incarnation is the new lane's id, a random one by default. A worker
	// chooses it, since it makes the checkpoint of that name first.
	Incarnation string
}

func (s Settings) withDefaults() Settings {
	if s.MaxBytes == 0 {
		s.MaxBytes = DefaultMaxBytes
	}
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	if s.Duplicates == 0 {
		s.Duplicates = defaultDuplicates
	}
	if s.Lanes == 0 {
		s.Lanes = 1
	}
	if s.Incarnation == "" {
		s.Incarnation = Token()
	}
	return s
}

// Info is what a lane looked like when it was asked for.
type Info struct {
	ID          ID
	Stream      string
	Incarnation string
	Lanes       int    // in the group
	First, Last uint64 // sequences; an empty lane has First = Last + 1
	Bytes       int64
	MaxBytes    int64
	// NoEvents: the lane should take S3 event notifications, and was made before
	// lanes did. [TakeEvents] mends it; records are taken in all the same.
	NoEvents bool
}

// Token returns a new random id of 8 lower-case base32 characters (40 bits).
func Token() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// Ensure makes the lane if it is missing and returns what is there. It never
// changes a lane that exists, its settings and incarnation included, so any
// number of callers may race: all see the incarnation of the one that won. A
// stream that cannot serve as this lane gives a [*MismatchError].
//
// Callers retry; an error other than MismatchError leaves it unknown whether the
// lane was made.
func Ensure(ctx context.Context, js jetstream.JetStream, id ID, cfg Settings) (Info, error) {
	info, err := Open(ctx, js, id)
	if !errors.Is(err, ErrNoLane) {
		return info, err
	}
	cfg = cfg.withDefaults()
	if err := CheckSize(id.Group, cfg.Lanes); err != nil {
		return Info{}, err
	}
	if id.N >= cfg.Lanes {
		return Info{}, fmt.Errorf("lane %s: its group has %d lanes", id, cfg.Lanes)
	}
	_, err = js.CreateStream(ctx, streamConfig(id, cfg))
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return Info{}, fmt.Errorf("make lane %s: %w", id, err)
	}
	return Open(ctx, js, id)
}

// streamConfig is a new lane. It discards new messages rather than old ones, has
// no maximum age and denies single deletes: what it acknowledged leaves it only
// when the trimmer purges it. Purging therefore stays possible; that nobody else
// does it is a convention.
func streamConfig(id ID, s Settings) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        id.Stream(),
		Description: "Spillway lane " + id.String(),
		Subjects:    id.Subjects(),
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		DenyDelete:  true,
		AllowDirect: true,
		MaxMsgSize:  MaxMessage,
		MaxBytes:    s.MaxBytes,
		Replicas:    s.Replicas,
		Duplicates:  s.Duplicates,
		Metadata: map[string]string{
			MetadataIncarnation: s.Incarnation,
			MetadataLanes:       strconv.Itoa(s.Lanes),
		},
	}
}

// Open looks a lane up without making it. A missing one gives [ErrNoLane], a
// stream that cannot serve as this lane a [*MismatchError].
func Open(ctx context.Context, js jetstream.JetStream, id ID) (Info, error) {
	s, err := js.Stream(ctx, id.Stream())
	if err != nil {
		return Info{}, lookError(id, err)
	}
	i := s.CachedInfo() // fetched by js.Stream just now
	if reasons := unfit(i.Config, id); len(reasons) > 0 {
		return Info{}, &MismatchError{Stream: i.Config.Name, Reasons: reasons}
	}
	return infoOf(i, id), nil
}

func lookError(id ID, err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("lane %s: %w (stream %s)", id, ErrNoLane, id.Stream())
	}
	return fmt.Errorf("lane %s: %w", id, err)
}

func infoOf(i *jetstream.StreamInfo, id ID) Info {
	return Info{
		ID:          id,
		Stream:      i.Config.Name,
		Incarnation: i.Config.Metadata[MetadataIncarnation],
		Lanes:       sizeOf(i.Config, id),
		First:       i.State.FirstSeq,
		Last:        i.State.LastSeq,
		Bytes:       int64(i.State.Bytes),
		MaxBytes:    i.Config.MaxBytes,
		NoEvents:    lacksEvents(i.Config, id),
	}
}

// lacksEvents tells whether a lane takes records, and not the S3 events that it
// should take.
func lacksEvents(c jetstream.StreamConfig, id ID) bool {
	return len(id.Subjects()) > 1 && slices.Equal(c.Subjects, id.Subjects()[:1])
}

// sameSubjects: their order means nothing.
func sameSubjects(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// unfit lists why a stream cannot be the lane. Everything here would lose or
// alter messages that were acknowledged, or hide that the lane was replaced;
// sizes, replicas and windows are the operator's choice.
func unfit(c jetstream.StreamConfig, id ID) []string {
	var r []string
	bad := func(is bool, why string) {
		if is {
			r = append(r, why)
		}
	}
	bad(!sameSubjects(c.Subjects, id.Subjects()) && !lacksEvents(c, id), fmt.Sprintf("its subjects are %q, want %q", c.Subjects, id.Subjects()))
	bad(c.Retention != jetstream.LimitsPolicy, "its retention is not by limits, so consumers would delete messages")
	bad(c.Discard != jetstream.DiscardNew, "it discards old messages when full")
	bad(c.MaxAge != 0, "it has a maximum age")
	bad(c.MaxMsgsPerSubject > 0, "it limits messages per subject, so old ones would be dropped")
	bad(c.Storage != jetstream.FileStorage, "it is not stored in files")
	bad(c.AllowMsgTTL, "it lets messages expire")
	bad(c.AllowRollup, "it lets a message replace older ones")
	bad(c.NoAck, "it does not acknowledge")
	bad(c.Sealed, "it is sealed")
	bad(c.Mirror != nil || len(c.Sources) > 0, "it copies another stream")
	bad(c.SubjectTransform != nil, "it transforms subjects")
	bad(c.Metadata[MetadataIncarnation] == "", "its metadata has no "+MetadataIncarnation)
	n := sizeOf(c, id)
	bad(n < 1 || n > MaxLanes || id.N >= n, fmt.Sprintf("its metadata has %s %q", MetadataLanes, c.Metadata[MetadataLanes]))
	return r
}
