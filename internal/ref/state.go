package ref

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
)

// State is what is known about a reference's object. It is the same word
// everywhere.
//
//	state    the object                                       decided by
//	valid    is there, and is the one that the reference says  Compare, a Reader at its end
//	pending  could not be looked at yet, or not now            rule 24; any other error
//	missing  is not there, nor may there ever have been one    ErrNotFound, ErrNoBucket, ParseError, NameError
//	changed  is there, but is another one                      MismatchError, ErrChanged, ErrCorrupt
//	deleted  was there, and was deleted                        ErrDeleted
//
// A bucket without versions does not remember what was deleted: there, deleted
// objects are missing, except to those who have seen them.
type State string

// The states of a reference.
const (
	Valid   State = "valid"
	Pending State = "pending"
	Missing State = "missing"
	Changed State = "changed"
	Deleted State = "deleted"
)

// StateOf is the state that follows from the error of looking at an object,
// comparing it, or reading it to its end; nil is valid. What does not tell
// anything of the object (no answer, no rights, a refused request, an ended
// context) is pending.
func StateOf(err error) State {
	var noURL *ParseError
	var noName *object.NameError
	switch {
	case err == nil:
		return Valid
	case errors.Is(err, object.ErrChanged), errors.Is(err, object.ErrCorrupt):
		return Changed
	case errors.Is(err, object.ErrDeleted):
		return Deleted
	case errors.Is(err, object.ErrNotFound), errors.As(err, &noURL), errors.As(err, &noName):
		return Missing
	}
	return Pending
}

// MismatchError says in what an object differs from its reference. It matches
// [object.ErrChanged].
type MismatchError struct {
	What      string // "size", "etag", "version", "sha256"
	Want, Got string // Got is empty if only the difference is known
}

func (e *MismatchError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("the object is another one: its %s is not %s", e.What, clip(e.Want))
	}
	return fmt.Sprintf("the object is another one: its %s is %s, not %s", e.What, clip(e.Got), clip(e.Want))
}

// Is makes it match object.ErrChanged.
func (e *MismatchError) Is(target error) bool { return target == object.ErrChanged }

// Compare says whether an object is the one that a reference is about. What the
// reference leaves open fits everything: an empty ETag or version, no digest, a
// size of 0. Another ETag is forgiven if size and digest are known on both sides
// and agree: the same bytes, put there once more, in other parts. Errors are
// *MismatchError.
func Compare(f record.Ref, info object.Info) error {
	if f.Size != 0 && f.Size != info.Size {
		return &MismatchError{"size", strconv.FormatInt(f.Size, 10), strconv.FormatInt(info.Size, 10)}
	}
	digests := f.SHA256 != nil && info.SHA256 != nil
	if digests && !bytes.Equal(f.SHA256, info.SHA256) {
		return &MismatchError{"sha256", fmt.Sprintf("%x", f.SHA256), fmt.Sprintf("%x", info.SHA256)}
	}
	same := digests && f.Size != 0
	if want, got := unquote(f.ETag), unquote(info.ETag); want != "" && want != got && !same {
		return &MismatchError{"etag", want, got}
	}
	if want, got := versionOf(f.Version), versionOf(info.Version); want != "" && want != got {
		return &MismatchError{"version", want, got}
	}
	return nil
}

func unquote(etag string) string {
	return strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
}

func clip(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}
