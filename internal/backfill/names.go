package backfill

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// What can be the matter with objects of a list, in a [*NamesError].
var (
	// ErrNoFormat says that a name does not tell how to read the object, or tells of
	// something that cannot be read.
	ErrNoFormat = errors.New("the format is not given, and the name does not tell it (give --format, or leave them out with --exclude)")
	// ErrMissing says that a manifest names what is not there.
	ErrMissing = errors.New("there is no such object")
	// ErrTwice says that an object is named twice, whose rows would be taken in twice.
	ErrTwice = errors.New("it is named more than once")
	// ErrHostile says that what is called so cannot be asked for safely.
	ErrHostile = errors.New("such a name cannot be used (leave them out with --exclude)")
)

// NamesError tells of objects of a list with which something is the matter, which
// is Err.
type NamesError struct {
	Err   error
	Names []string // the first of them
	Count int      // of all
}

func (e *NamesError) Error() string {
	var b strings.Builder
	for i, name := range e.Names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(clip(name)))
	}
	if more := e.Count - len(e.Names); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return fmt.Sprintf("%v: %s", e.Err, b.String())
}

// Unwrap gives what is the matter.
func (e *NamesError) Unwrap() error { return e.Err }

// add notes a name. A nil error becomes one.
func (e *NamesError) add(name string) {
	if e.Count++; len(e.Names) < shownFaults {
		e.Names = append(e.Names, name)
	}
}

// orNil is the error if there is a name in it.
func (e *NamesError) orNil() error {
	if e.Count == 0 {
		return nil
	}
	return e
}

func clip(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
