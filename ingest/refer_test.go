package ingest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestAllowedAMomentAgo: a worker that knows an older definition does not refuse
// what has been allowed since.
func TestAllowedAMomentAgo(t *testing.T) {
	endpoint := headFunc(func(context.Context, ref.Name) (object.Info, error) { return object.Info{Size: 1}, nil })
	withClerk(t, endpoint, func(c *clerk) {
		c.submit(record.Ref{URL: "s3://allowed/a", Size: 1}, record.Ref{URL: "s3://later/a", Size: 1})
		c.stored("one")
		if _, _, err := c.store.ChangeTopic(c.t.Context(), "refs", func(d *topic.Definition) error {
			d.Buckets = []string{"later"}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		c.submit(record.Ref{URL: "s3://later/b", Size: 1})
		c.stored("two")
		bubble.Pass(11 * time.Second)
		c.submit(record.Ref{URL: "s3://allowed/b", Size: 1})
		c.stored("three")
		var got []string
		for _, r := range c.read("refs") {
			got = append(got, strings.Fields(outcomeOf(r))[0])
		}
		if fmt.Sprint(got) != "[verified reference: verified reference:]" {
			t.Errorf("%q", got)
		}
	})
}

// TestAllowedWhileTheFlushWaits: nothing is refused by a list that has changed
// before the flush is decided about, however long that waits for more records.
func TestAllowedWhileTheFlushWaits(t *testing.T) {
	endpoint := headFunc(func(context.Context, ref.Name) (object.Info, error) { return object.Info{Size: 1}, nil })
	withClerk(t, endpoint, func(c *clerk) {
		change := func(do func(*topic.Definition)) {
			t.Helper()
			if _, _, err := c.store.ChangeTopic(c.t.Context(), "refs", func(d *topic.Definition) error { do(d); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		change(func(d *topic.Definition) { d.FlushAge = topic.Duration(5 * time.Second) })
		c.submit(record.Ref{URL: "s3://later/a", Size: 1}, record.Ref{URL: "s3://never/a", Size: 1})
		bubble.Pass(2 * time.Second)
		change(func(d *topic.Definition) { d.Buckets = []string{"later"} })
		c.submit(record.Ref{URL: "s3://later/b", Size: 1})
		bubble.Pass(6 * time.Second)
		var got []string
		for _, r := range c.read("refs") {
			got = append(got, strings.Fields(outcomeOf(r))[0])
		}
		if fmt.Sprint(got) != "[pending reference: pending]" {
			t.Errorf("%q", got)
		}
	})
}

// TestLooksAreSharedByEqualReferences: and by no others, however their texts join.
func TestLooksAreSharedByEqualReferences(t *testing.T) {
	sum := make([]byte, 32)
	asked := 0
	endpoint := headFunc(func(context.Context, ref.Name) (object.Info, error) {
		asked++ // one at a time: the bubble runs one goroutine here
		return object.Info{Size: 1, ETag: "e", SHA256: sum}, nil
	})
	withClerk(t, endpoint, func(c *clerk) {
		right := record.Ref{URL: "s3://allowed/k", Size: 1, ETag: "2\x00x", SHA256: sum} // the digest forgives the ETag
		c.submit(right, record.Ref{URL: "s3://allowed/k", Version: "\x001", Size: 2, ETag: "x", SHA256: sum}, right)
		c.stored("one")
		var got []string
		for _, r := range c.read("refs") {
			got = append(got, strings.Fields(outcomeOf(r))[0])
		}
		if fmt.Sprint(got) != "[verified reference: verified]" || asked != 1 {
			t.Errorf("%q after %d looks", got, asked)
		}
	})
}

// TestEveryPendingReferenceIsToldOf: also if one was a moment ago.
func TestEveryPendingReferenceIsToldOf(t *testing.T) {
	endpoint := headFunc(func(context.Context, ref.Name) (object.Info, error) { return object.Info{}, object.ErrForbidden })
	withClerk(t, endpoint, func(c *clerk) {
		for i := range 2 {
			c.submit(record.Ref{URL: fmt.Sprintf("s3://allowed/%d", i), Size: 1})
			bubble.Pass(300 * time.Millisecond)
		}
		if len(c.follow) != 2 {
			t.Errorf("%d calls for two flushes", len(c.follow))
		}
	})
}
