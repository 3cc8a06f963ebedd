package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/topic"
)

// MaxLanes bounds the lanes of a group. What a message may have to wait for
// names each of them in a header ([After]), which must stay within the room that
// a message keeps for its headers.
const MaxLanes = 32

// IncompleteError tells that lanes of a group are missing: its making was
// interrupted, or somebody deleted them. Making the group again completes it.
type IncompleteError struct {
	Group   string
	Lanes   int // that it should have
	Missing []int
}

func (e *IncompleteError) Error() string {
	return fmt.Sprintf("lane group %s of %d lanes lacks lanes %v", e.Group, e.Lanes, e.Missing)
}

// SizeError tells that a group cannot have so many lanes: the number is out of
// bounds, or the group exists with another one, which never changes.
type SizeError struct {
	Group     string
	Want, Has int // Has 0: the group does not exist
}

func (e *SizeError) Error() string {
	switch {
	case e.Has != 0:
		return fmt.Sprintf("lane group %s exists with %d lanes and cannot get %d: the number is fixed when a group is made", e.Group, e.Has, e.Want)
	case e.Group == Default:
		return fmt.Sprintf("lane group %s has one lane, not %d", e.Group, e.Want)
	}
	return fmt.Sprintf("lane group %s: %d lanes; want 1 to %d", e.Group, e.Want, MaxLanes)
}

// CheckSize tells whether a new group may have n lanes: a [*topic.NameError] or
// a [*SizeError].
func CheckSize(group string, n int) error {
	if err := topic.CheckGroup(group); err != nil {
		return err
	}
	if n < 1 || n > MaxLanes || group == Default && n != 1 {
		return &SizeError{Group: group, Want: n}
	}
	return nil
}

// sizeOf reads a group's size from one of its streams; 0 if it does not say.
func sizeOf(c jetstream.StreamConfig, id ID) int {
	text, ok := c.Metadata[MetadataLanes]
	if !ok && id.Group == Default {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// OpenGroup looks all lanes of a group up. [ErrNoLane]: there is no such group.
// [*IncompleteError] and [*MismatchError] tell what is wrong with one.
func OpenGroup(ctx context.Context, js jetstream.JetStream, group string) ([]Info, error) {
	if err := topic.CheckGroup(group); err != nil {
		return nil, err
	}
	first, err := Open(ctx, js, ID{group, 0})
	if err != nil {
		return nil, err
	}
	lanes, missing := []Info{first}, []int{}
	for n := 1; n < first.Lanes; n++ {
		info, err := Open(ctx, js, ID{group, n})
		switch {
		case errors.Is(err, ErrNoLane):
			missing = append(missing, n)
		case err != nil:
			return nil, err
		case info.Lanes != first.Lanes:
			return nil, &MismatchError{info.Stream, []string{fmt.Sprintf("it says that its group has %d lanes, lane 0 says %d", info.Lanes, first.Lanes)}}
		}
		lanes = append(lanes, info)
	}
	if len(missing) > 0 {
		return nil, &IncompleteError{group, first.Lanes, missing}
	}
	return lanes, nil
}

// Groups lists the names of the groups of which the server has a lane, sorted.
func Groups(ctx context.Context, js jetstream.JetStream) ([]string, error) {
	ids, err := List(ctx, js, "")
	groups := make([]string, len(ids))
	for i, id := range ids {
		groups[i] = id.Group
	}
	return slices.Compact(groups), err
}

// List gives the lanes of a group, or of all groups if it is empty, of which
// there is a stream, fit or not, by group and number.
func List(ctx context.Context, js jetstream.JetStream, group string) ([]ID, error) {
	var ids []ID
	names := js.StreamNames(ctx)
	for name := range names.Name() {
		if id, ok := parseStream(name); ok && (group == "" || id.Group == group) {
			ids = append(ids, id)
		}
	}
	if err := names.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	slices.SortFunc(ids, func(a, b ID) int { return cmp.Or(strings.Compare(a.Group, b.Group), a.N-b.N) })
	return ids, nil
}

// Look looks a lane up as Open does, but does not mind whether it is fit.
func Look(ctx context.Context, js jetstream.JetStream, id ID) (Info, error) {
	s, err := js.Stream(ctx, id.Stream())
	if err != nil {
		return Info{}, lookError(id, err)
	}
	return infoOf(s.CachedInfo(), id), nil
}

// parseStream reads what [ID.Stream] writes.
func parseStream(name string) (ID, bool) {
	rest, ok := strings.CutPrefix(name, "spillway-lane-")
	i := strings.LastIndexByte(rest, '-')
	if !ok || i < 0 {
		return ID{}, false
	}
	id, err := ParseID(rest[:i] + "." + rest[i+1:])
	return id, err == nil
}

// Choose is the lane, of n, to which a partition key belongs: contiguous parts of
// the key space, so that a lane's records touch few segments.
func Choose(key []byte, n int) int { return int(uint64(topic.SlotOf(key)) * uint64(n) / topic.Slots) }

// Close takes a lane's subjects away, so that nothing more can be published to
// it, and returns its last sequence, read after that. A closed lane cannot be
// opened; [Reopen] gives the subjects back. Close is idempotent; [ErrNoLane]:
// the lane is gone.
func Close(ctx context.Context, js jetstream.JetStream, id ID) (Info, error) {
	return resubject(ctx, js, id, []string{"spillway.closed." + id.String()})
}

// Reopen makes a closed lane take messages again.
func Reopen(ctx context.Context, js jetstream.JetStream, id ID) (Info, error) {
	return resubject(ctx, js, id, id.Subjects())
}

// TakeEvents adds the subject of S3 event notifications to a default lane that was
// made without ([Info.NoEvents]). It is idempotent. The server refuses it if
// another stream has such a subject.
func TakeEvents(ctx context.Context, js jetstream.JetStream, id ID) (Info, error) {
	return change(ctx, js, id, func(c *jetstream.StreamConfig) {
		if lacksEvents(*c, id) {
			c.Subjects = id.Subjects()
		}
	})
}

func resubject(ctx context.Context, js jetstream.JetStream, id ID, subjects []string) (Info, error) {
	return change(ctx, js, id, func(c *jetstream.StreamConfig) { c.Subjects = subjects })
}

// Renew gives a lane another incarnation. Its messages and their numbers stay.
// Whoever does this has made the checkpoint of the new incarnation before.
func Renew(ctx context.Context, js jetstream.JetStream, id ID, incarnation string) (Info, error) {
	return change(ctx, js, id, func(c *jetstream.StreamConfig) { c.Metadata[MetadataIncarnation] = incarnation })
}

// change updates a lane's stream and returns what it is afterwards.
func change(ctx context.Context, js jetstream.JetStream, id ID, edit func(*jetstream.StreamConfig)) (Info, error) {
	s, err := js.Stream(ctx, id.Stream())
	if err == nil {
		c := s.CachedInfo().Config
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		edit(&c)
		s, err = js.UpdateStream(ctx, c)
	}
	if err != nil {
		return Info{}, lookError(id, err)
	}
	return infoOf(s.CachedInfo(), id), nil
}

// Remove deletes a lane with what is in it. A lane that is gone is no error.
func Remove(ctx context.Context, js jetstream.JetStream, id ID) error {
	err := js.DeleteStream(ctx, id.Stream())
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete lane %s: %w", id, err)
	}
	return nil
}
