package compactor

import (
	"context"
	"fmt"

	"github.com/spillway-mq/spillway/internal/expand"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Expander reads the objects of batch references. It is called concurrently.
type Expander interface {
	// Open begins to read the rows of a batch reference of a topic. Errors, here and
	// from the rows, are those of package expand, and *ElsewhereError.
	Open(ctx context.Context, d topic.Definition, f record.Ref, b ref.Batch) (Rows, error)
}

// Rows are the rows of one object; *expand.Rows are some.
type Rows interface {
	Next() (rows.Row, error)
	Close() error
}

// ElsewhereError says that the objects of a topic are at another endpoint than the one
// that is set here.
type ElsewhereError struct{ Topic, Wants, Has string }

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("the objects of topic %q are at %s, and the endpoint here is %s", e.Topic, e.Wants, e.Has)
}

// objects is an [Expander] of the objects behind one endpoint.
type objects struct {
	store    *object.Store
	endpoint string
}

// NewExpander reads objects behind an endpoint; without a store it is nil. It does not
// retry beyond what the store does.
func NewExpander(store *object.Store, endpoint string) Expander {
	if store == nil {
		return nil
	}
	return objects{store, endpoint}
}

// Open implements [Expander].
func (o objects) Open(ctx context.Context, d topic.Definition, f record.Ref, b ref.Batch) (Rows, error) {
	if !d.ServedBy(o.endpoint) {
		return nil, &ElsewhereError{d.Name, d.Endpoint, o.endpoint}
	}
	r, err := expand.Open(ctx, o.store, f, b)
	if err != nil {
		return nil, err
	}
	return r, nil
}
