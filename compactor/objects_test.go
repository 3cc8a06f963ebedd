package compactor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/topic"
)

// fakeObjects has an object of three rows, the second of which cannot be taken, under
// every name, but for those with an "m" or that it is told of.
type fakeObjects struct {
	mu    sync.Mutex
	says  map[string]error    // by URL
	rows  map[string][]string // by URL; nil: the three
	down  error               // of everything
	opens int
}

func newFakeObjects() *fakeObjects {
	return &fakeObjects{says: map[string]error{}, rows: map[string][]string{}}
}

func (o *fakeObjects) Open(_ context.Context, _ topic.Definition, f record.Ref, _ ref.Batch) (Rows, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.opens++
	switch {
	case o.down != nil:
		return nil, o.down
	case o.says[f.URL] != nil:
		return nil, o.says[f.URL]
	case strings.HasPrefix(f.URL, "s3://bucket/m/"), strings.HasPrefix(f.URL, "s3://bucket/p/") && o.rows[f.URL] == nil:
		return nil, fmt.Errorf("head %s: %w", f.URL, object.ErrNotFound)
	}
	list, ok := o.rows[f.URL]
	if !ok {
		list = []string{f.URL + " 0", "!" + f.URL + " 1", ""}
	}
	return &fakeRows{list: list}, nil
}

func (o *fakeObjects) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = err
}

type fakeRows struct {
	list []string
	n    uint64
}

func (r *fakeRows) Next() (rows.Row, error) {
	if r.n == uint64(len(r.list)) {
		return rows.Row{}, io.EOF
	}
	row := rows.Row{N: r.n, Value: []byte(r.list[r.n])}
	if v, bad := strings.CutPrefix(r.list[r.n], "!"); bad {
		row.Value, row.Rejected = []byte(v), "it is no JSON"
	}
	r.n++
	return row, nil
}

func (r *fakeRows) Close() error { return nil }
