package table

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrNoTable says that the topic has no table in the catalog, or the one that was opened
// has been dropped since. Opening it makes a new one.
var ErrNoTable = errors.New("no such table")

// ForeignError tells that the table under the topic's name belongs to something
// else: another life of the topic, or no topic at all. Nothing is written to it.
// Somebody has to decide.
type ForeignError struct {
	Table       string // "spillway.orders"
	Topic       string // what it belongs to; empty: not made by us
	Incarnation string
	Want        string // the incarnation that asked for it
}

func (e *ForeignError) Error() string {
	if e.Topic == "" {
		return fmt.Sprintf("table %s was not made by Spillway: rename it, or drop it in the catalog", e.Table)
	}
	return fmt.Sprintf("table %s belongs to topic %s in an earlier life (incarnation %s, now %s): rename it to keep it, or drop it in the catalog (no data file is deleted)",
		e.Table, e.Topic, e.Incarnation, e.Want)
}

// SchemaError tells that somebody changed the table so that our files would be
// unreadable in it, or misread. Nothing is written to it until that is undone.
type SchemaError struct {
	Table  string
	Reason string
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("table %s cannot take segments any more: %s", e.Table, e.Reason)
}

// UnavailableError tells that the catalog or the filer gave no answer, or not
// now. What was asked for may have happened. The same call later settles it.
type UnavailableError struct {
	Op  string
	Err error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%s: the catalog is not available: %v", e.Op, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// ConfigError tells that the catalog refuses for as long as nobody changes
// settings: keys, rights, address, warehouse.
type ConfigError struct {
	Op   string
	Hint string // what to do
	Err  error
}

func (e *ConfigError) Error() string { return fmt.Sprintf("%s: %v: %s", e.Op, e.Err, e.Hint) }

func (e *ConfigError) Unwrap() error { return e.Err }

// AdditionError tells that one segment of a commit cannot be added: a file of it is
// missing or is not what the addition says, or its record cannot be read. Nothing was
// added; the others can be, without it.
type AdditionError struct {
	Segment topic.SegmentID
	Err     error
}

func (e *AdditionError) Error() string { return fmt.Sprintf("segment %s: %v", e.Segment, e.Err) }

func (e *AdditionError) Unwrap() error { return e.Err }

// ConflictError tells that others committed to the table every time that we
// tried. Nothing was added. The same call later may succeed.
type ConflictError struct {
	Table string
	Tries int
	Err   error
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("table %s: others were first %d times: %v", e.Table, e.Tries, e.Err)
}

func (e *ConflictError) Unwrap() error { return e.Err }

// classify gives an error of a catalog a type that callers decide by. Those that
// are answers about tables, and the end of the caller's own context, stay as
// they are.
func classify(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", op, errors.Join(context.Cause(ctx), err))
	case isAnswer(err):
		return fmt.Errorf("%s: %w", op, err)
	case errors.Is(err, rest.ErrUnauthorized):
		return &ConfigError{op, "the catalog does not accept the keys; check the access key and the secret key", err}
	case errors.Is(err, rest.ErrForbidden):
		return &ConfigError{op, "the keys lack rights; give them those to create, read and update tables in the warehouse", err}
	default:
		return &UnavailableError{op, err}
	}
}

// isAnswer tells whether an error says something about what was asked for, and
// not about whether the catalog could be asked.
func isAnswer(err error) bool {
	for _, known := range []error{
		catalog.ErrNoSuchTable, catalog.ErrNoSuchNamespace, catalog.ErrTableAlreadyExists,
		catalog.ErrNamespaceAlreadyExists, icetable.ErrCommitFailed, rest.ErrBadRequest,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
