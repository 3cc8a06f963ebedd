// Package pin marks objects that records refer to, so that nobody of ours deletes
// them while a record does (rule 37 of docs/PROTOCOL.md). A mark is an attribute
// of the object's entry on the filer, one per topic that refers to it, and only
// objects that live on our own filer can have one.
//
// A mark is written anew, with another random value, by every flush that refers
// to the object, before the flush commits; and it is taken away by comparison
// with the value that was read. So whoever finds that nothing refers to an object
// any more cannot take away the mark of somebody who begins to just then.
package pin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	// MaxHolders is how many holders an object can have: their marks come with
	// every HEAD of it.
	MaxHolders = 64

	// tries is how often others may change an object while we do. Of eight that pin
	// one object without a pause, while a ninth puts it again and again, one in
	// twelve needs more than eight tries.
	tries     = 32
	attrStart = "Pin-"
	// maxIncarnation bounds what becomes a part of an attribute's name.
	maxIncarnation = 32
)

// Errors that callers decide by. Those of filer and object that the methods name
// are the others; what is none of them says that the filer did not answer.
var (
	// ErrElsewhere: the filer has no such bucket, so the object is another
	// endpoint's, where pins are impossible.
	ErrElsewhere = errors.New("the object is not on the filer")
	// ErrTooMany: the object has [MaxHolders] holders already.
	ErrTooMany = fmt.Errorf("the object has %d holders already", MaxHolders)
)

// Holder is who refers to an object: a topic in one of its lives.
type Holder struct{ Topic, Incarnation string }

// Mark is that a holder refers to an object.
type Mark struct {
	// Holder and At are what the mark says. Its topic is empty and the time zero
	// if it was not written by us, but came with the object.
	Holder Holder
	At     time.Time
	value  string
}

// Pins marks the objects of one filer. It may be used concurrently.
type Pins struct {
	Filer filer.Objects
	Now   func() time.Time
}

// Pin puts a fresh mark of h on the object that info was about: the version that
// n or info names, otherwise the one without a version id. The mark is as durable
// on return as the filer's settings make it.
//
// It retries while the filer does not answer, until ctx ends; the object may or
// may not have the mark then. Marks of others in between do not disturb it, up to
// a few at once: then it is [filer.ErrConflict], and the caller may try again.
// [object.ErrNotFound] and [object.ErrChanged]: since info was obtained, the
// object was deleted, or became another one. Whoever asks the endpoint again, and
// hears that it is as before, has an object of another endpoint, in a bucket that
// the filer happens to have too. [filer.ErrInvalid]: nothing of that name can be
// pinned, which holds for Spillway's own files too. It is never an
// *[object.NameError], since a part of the name may be what an endpoint said.
func (p *Pins) Pin(ctx context.Context, n object.Name, info object.Info, h Holder) error {
	attr, err := attrOf(h)
	if err != nil {
		return fmt.Errorf("pin %s: %w", n, err)
	}
	value := valueOf(h, p.Now())
	// An endpoint that names no version of an object has a bucket without any.
	n.Version = cmp.Or(n.Version, info.Version, filer.NullVersion)
	err = p.change(ctx, n, func(o filer.Object) (string, string, error) {
		if !same(o, info) {
			return "", "", fmt.Errorf("%w: it has %d bytes and ETag %.80q, and had %d and %.80q", object.ErrChanged, o.Size, o.ETag, info.Size, info.ETag)
		}
		if _, has := o.Attrs[attr]; !has && holders(o) >= MaxHolders {
			return "", "", ErrTooMany
		}
		return attr, value, nil
	})
	if err != nil {
		return fmt.Errorf("pin %s for %s: %w", n, h.Topic, err)
	}
	return nil
}

// Held returns the marks of an object, sorted by incarnation. Its errors are
// those of [Pins.Pin].
func (p *Pins) Held(ctx context.Context, n object.Name) ([]Mark, error) {
	o, err := p.look(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("pins of %s: %w", n, err)
	}
	var marks []Mark
	for attr, value := range o.Attrs {
		if id, ok := incarnationOf(attr); ok {
			marks = append(marks, parse(id, value))
		}
	}
	slices.SortFunc(marks, func(a, b Mark) int { return strings.Compare(a.Holder.Incarnation, b.Holder.Incarnation) })
	return marks, nil
}

// Unpin takes a mark away, as [Pins.Held] returned it. [filer.ErrConflict]: it was
// renewed since, and stays. If the mark, or the object, is gone already, there is
// nothing to do. It retries as Pin does.
func (p *Pins) Unpin(ctx context.Context, n object.Name, m Mark) error {
	attr, err := attrName(m.Holder.Incarnation)
	if err != nil {
		return fmt.Errorf("unpin %s: %w", n, err)
	}
	err = p.change(ctx, n, func(o filer.Object) (string, string, error) {
		switch value, has := o.Attrs[attr]; {
		case !has:
			return "", "", errNothing
		case value != m.value:
			return "", "", fmt.Errorf("%w: the mark was renewed", filer.ErrConflict)
		}
		return attr, "", nil
	})
	if err != nil && !errors.Is(err, object.ErrNotFound) && !errors.Is(err, ErrElsewhere) {
		return fmt.Errorf("unpin %s of %s: %w", n, m.Holder.Topic, err)
	}
	return nil
}

// CleanKey spells a key as the filer does: keys that differ only in spelling name
// one object there, with one set of marks.
func CleanKey(key string) string { return filer.CleanKey(key) }

// errNothing ends a change that is not needed.
var errNothing = errors.New("nothing to change")

// change looks at an object and changes one of its attributes as decide says,
// again and again while others change it meanwhile.
func (p *Pins) change(ctx context.Context, n object.Name, decide func(filer.Object) (attr, value string, err error)) error {
	for try := 1; ; try++ {
		o, err := p.look(ctx, n)
		if err != nil {
			return err
		}
		attr, value, err := decide(o)
		if errors.Is(err, errNothing) {
			return nil
		}
		if err != nil {
			return err
		}
		err = filer.Amend(ctx, p.Filer, o, attr, value)
		switch {
		case errors.Is(err, filer.ErrConflict) && try < tries:
			if err := pause(ctx, try); err != nil {
				return err
			}
		case errors.Is(err, filer.ErrNotFound):
			return fmt.Errorf("%w: %w", object.ErrNotFound, err)
		default:
			return err
		}
	}
}

// pause keeps those apart who change one object at the same time.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(rand.N(time.Duration(try) * 2 * time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (p *Pins) look(ctx context.Context, n object.Name) (o filer.Object, err error) {
	// The filer checks the name: what it has no bucket for is another's to judge.
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		o, err = p.Filer.Look(ctx, filer.ObjectName{Bucket: n.Bucket, Key: n.Key, Version: n.Version})
		return err
	})
	switch {
	case errors.Is(err, filer.ErrNoBucket):
		return o, fmt.Errorf("%w: %w", ErrElsewhere, err)
	case errors.Is(err, filer.ErrNotFound):
		return o, fmt.Errorf("%w: %w", object.ErrNotFound, err)
	}
	return o, err
}

// same tells whether an object is the one that an endpoint described. The same
// bytes, put again, are the same object.
func same(o filer.Object, info object.Info) bool {
	return o.Size == info.Size && (info.ETag == "" || o.ETag == info.ETag)
}

func holders(o filer.Object) (n int) {
	for attr := range o.Attrs {
		if _, ok := incarnationOf(attr); ok {
			n++
		}
	}
	return n
}

// valueOf is "<topic> <time> <random>", the same in no two calls.
func valueOf(h Holder, now time.Time) string {
	return h.Topic + " " + now.UTC().Format(time.RFC3339) + " " + filer.NewID()
}

// parse reads a mark. What is not of our form has no topic.
func parse(incarnation, value string) Mark {
	m := Mark{Holder: Holder{Incarnation: incarnation}, value: value}
	fields := strings.Split(value, " ")
	if len(fields) != 3 || topic.CheckName(fields[0]) != nil {
		return m
	}
	if at, err := time.Parse(time.RFC3339, fields[1]); err == nil {
		m.Holder.Topic, m.At = fields[0], at.UTC()
	}
	return m
}

func attrOf(h Holder) (string, error) {
	if err := topic.CheckName(h.Topic); err != nil {
		return "", fmt.Errorf("%w: %w", filer.ErrInvalid, err)
	}
	return attrName(h.Incarnation)
}

// attrName is the attribute of an incarnation, from which its lower-case letters
// and digits can be read again.
func attrName(incarnation string) (string, error) {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }
	if incarnation == "" || len(incarnation) > maxIncarnation || strings.ContainsFunc(incarnation, other) {
		return "", fmt.Errorf("%w: incarnation %.80q", filer.ErrInvalid, incarnation)
	}
	return attrStart + strings.ToUpper(incarnation[:1]) + incarnation[1:], nil
}

// incarnationOf reads an attribute's name, if it is one that attrName gives.
func incarnationOf(attr string) (string, bool) {
	id, ok := strings.CutPrefix(attr, attrStart)
	if !ok {
		return "", false
	}
	id = strings.ToLower(id)
	name, err := attrName(id)
	return id, err == nil && name == attr
}
