// Package verdict decides about references: whether a topic may have them, and
// whether their objects are there and the ones that are meant. It looks, compares
// and pins (protocol rules 23, 24 and 37). Ingest asks it before a record is
// committed, and the follow-up and `refs check` ask it about what was left open.
package verdict

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Objects looks at objects; *object.Store is one.
type Objects interface {
	Head(ctx context.Context, bucket, key, version string) (object.Info, error)
}

// Pins marks objects as referred to; *pin.Pins is one.
type Pins interface {
	Pin(ctx context.Context, n object.Name, info object.Info, h pin.Holder) error
}

// Judge decides about references to objects behind one endpoint. All methods may
// be called concurrently.
type Judge struct {
	// Objects is nil where no endpoint is set: everything is then undecided.
	Objects Objects
	// Endpoint is where Objects looks.
	Endpoint string
	// Pins is nil where nothing can be pinned.
	Pins Pins
}

// ErrNoEndpoint says that there are no settings by which to reach objects.
var ErrNoEndpoint = errors.New("no S3 endpoint is set")

// NotAllowedError says that a topic may not have references to an object.
type NotAllowedError struct {
	Topic string
	Name  ref.Name
	// Owner, if not empty, is another topic, whose uploads the object is among: no
	// list of buckets would allow it.
	Owner string
}

func (e *NotAllowedError) Error() string {
	if e.Owner != "" {
		return fmt.Sprintf("topic %q is allowed no references to %s: it is among the uploads of topic %q, where `spillway refs drop %s` deletes what that topic's records do not name; copy the object", e.Topic, e.Name, e.Owner, e.Owner)
	}
	return fmt.Sprintf("topic %q allows no references to %s; `spillway topic set %s --allow %s` would", e.Topic, e.Name, e.Topic, e.Name.Bucket)
}

// ElsewhereError says that the objects of a topic are at another endpoint than
// the one that can be asked.
type ElsewhereError struct{ Topic, Wants, Has string }

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("the objects of topic %q are at %s, and the endpoint here is %s", e.Topic, e.Wants, e.Has)
}

// Allowed says which object a reference is about, and whether a topic may have
// it: it is in the topic's buckets, and not among the uploads of another topic,
// which alone knows whether they are still wanted. It looks at nothing but its arguments. Errors are wrong ones: see [Wrong].
func Allowed(d topic.Definition, f record.Ref) (ref.Name, error) {
	n, err := ref.NameOf(f)
	if err != nil {
		return n, err
	}
	if !d.Allows(n.Bucket, n.Key) {
		return n, &NotAllowedError{Topic: d.Name, Name: n}
	}
	if owner := owner(n.Key); owner != "" && owner != d.Name {
		return n, &NotAllowedError{Topic: d.Name, Name: n, Owner: owner}
	}
	return n, nil
}

// uploads is what the keys of objects begin with that producers upload, before
// their topic's name.
const uploads = "spillway/"

// owner is the topic whose uploads a key is among; empty: none. Names are taken as
// SeaweedFS takes them, so that no other spelling leads there.
func owner(key string) string {
	rest, ok := strings.CutPrefix(pin.CleanKey(key), uploads)
	name, _, below := strings.Cut(rest, "/")
	if !ok || !below || topic.CheckName(name) != nil {
		return ""
	}
	return name
}

// Judge looks at the object of a reference of a topic, compares it with what the
// reference says, and pins it. Nil: it is the one, and it is pinned, if it is one
// that can be. An error that is [Wrong] will not go away; after any other it is
// not known, and whoever reads the record finds out (rule 24). It tries once.
func (j *Judge) Judge(ctx context.Context, d topic.Definition, f record.Ref) error {
	_, err := j.Look(ctx, d, f)
	return err
}

// Look is Judge, and tells on nil what the object is.
func (j *Judge) Look(ctx context.Context, d topic.Definition, f record.Ref) (object.Info, error) {
	n, err := Allowed(d, f)
	if err != nil {
		return object.Info{}, err
	}
	info, err := j.look(ctx, d, n)
	if err != nil {
		return object.Info{}, err
	}
	if err := ref.Compare(f, info); err != nil {
		return object.Info{}, err
	}
	return info, j.pin(ctx, d, n, info)
}

func (j *Judge) look(ctx context.Context, d topic.Definition, n ref.Name) (object.Info, error) {
	switch {
	case j.Objects == nil:
		return object.Info{}, ErrNoEndpoint
	case !d.ServedBy(j.Endpoint):
		return object.Info{}, &ElsewhereError{d.Name, d.Endpoint, j.Endpoint}
	}
	return j.Objects.Head(ctx, n.Bucket, n.Key, n.Version)
}

// pin marks the object that was looked at. One that the filer does not have,
// though the endpoint does, lies elsewhere and cannot be pinned.
func (j *Judge) pin(ctx context.Context, d topic.Definition, n ref.Name, info object.Info) error {
	if j.Pins == nil {
		return nil
	}
	h := pin.Holder{Topic: d.Name, Incarnation: d.Incarnation}
	err := j.Pins.Pin(ctx, n, info, h)
	if absent(err) {
		again, err := j.look(ctx, d, n)
		if err != nil {
			return err
		}
		if again.ETag != info.ETag || again.Size != info.Size || again.Version != info.Version || !again.Modified.Equal(info.Modified) {
			return fmt.Errorf("%s: %w", n, errMoved)
		}
		// Times have whole seconds, so it may also have been deleted and put again.
		if err = j.Pins.Pin(ctx, n, again, h); absent(err) {
			return nil
		}
		return elsewhere(err)
	}
	return elsewhere(err)
}

// absent tells that the filer does not have the object that was looked at.
func absent(err error) bool {
	return errors.Is(err, object.ErrChanged) || errors.Is(err, object.ErrNotFound)
}

// elsewhere forgives that an object cannot be pinned for it is not on the filer.
func elsewhere(err error) error {
	if errors.Is(err, pin.ErrElsewhere) {
		return nil
	}
	return err
}

// errMoved: what was compared is not there any more, and what is there was not
// compared. It is neither right nor wrong yet.
var errMoved = errors.New("the object was replaced while it was looked at")

// Wrong tells a reference that is refused from one that is not decided yet: it
// names no object, or one that its topic may not have, or the object that is
// there is another one.
func Wrong(err error) bool {
	var mismatch *ref.MismatchError
	var text *ref.ParseError
	var name *object.NameError
	var not *NotAllowedError
	return errors.As(err, &mismatch) || errors.As(err, &text) || errors.As(err, &name) || errors.As(err, &not)
}

// Absent tells an object that is not there, and may come, from one that could
// not be looked at.
func Absent(err error) bool { return errors.Is(err, object.ErrNotFound) || errors.Is(err, errMoved) }

// Silent tells an endpoint that gave no usable answer from one that did.
func Silent(err error) bool {
	var down *object.UnavailableError
	return errors.As(err, &down) || errors.Is(err, context.DeadlineExceeded)
}
