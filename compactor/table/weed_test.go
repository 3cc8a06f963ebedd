package table_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// TestCrashesOnSeaweedFS lets a process crash at each of its calls of a real
// catalog, before and after the call's effect, while it makes a table and commits.
// Two others come after it, at once.
func TestCrashesOnSeaweedFS(t *testing.T) {
	cat, store := connect(t), dial(t)
	for _, after := range []bool{false, true} {
		for n := 1; crashOnSeaweedFS(t, cat, store, tabletest.Op{N: n}, after); n++ {
		}
	}
}

func crashOnSeaweedFS(t *testing.T, cat table.Catalog, store *seaweed.Client, at tabletest.Op, after bool) bool {
	t.Helper()
	tp := table.Topic{Name: "crash-" + filer.Token(8), Incarnation: "life"}
	bucket := devtest.Weed(t).Info.Bucket
	add, err := tabletest.Place{Store: store, Bucket: bucket, Topic: tp}.Write(t.Context(), tabletest.SegmentID(1), 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, c table.Catalog) (*table.Table, error) {
		tb, err := table.New(table.Options{Catalog: c, Store: store, Bucket: bucket, Namespace: "crashes"}).Open(ctx, tp)
		if err != nil {
			return nil, err
		}
		_, err = tb.Commit(ctx, []table.Addition{add}, never)
		return tb, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	crashed := false
	_, err = run(ctx, tabletest.NewProxy(cat, func(op tabletest.Op) (f tabletest.Fault) {
		switch {
		case op.N == at.N && after:
			crashed = true
			f.After, f.Then = errCrash, cancel
		case op.N == at.N:
			crashed = true
			f.Before = errCrash
			cancel()
		}
		return f
	}))
	if (err != nil) != crashed {
		t.Fatalf("call %d: crashed %t, %v", at.N, crashed, err)
	}
	what := fmt.Sprintf("call %d, after its effect %t", at.N, after)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			tb, err := run(t.Context(), cat)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			if err := tabletest.Check(t.Context(), tb, 0, add); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	all.Wait()
	return crashed
}
