package followup

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
)

// makers make jobs, as they are told.
type makers struct {
	mu   sync.Mutex
	err  error
	made []string
	w    *world
}

func (m *makers) Expand(_ context.Context, t *segment.Topic, source string, r record.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.w.objects.isPinned(t, r.Ref.URL) {
		return fmt.Errorf("%s is not pinned", r.Ref.URL)
	}
	m.made = append(m.made, fmt.Sprint(source, "@", r.Position, " ", string(r.Key), " ", r.Ref.URL, " ", len(r.Headers)))
	return m.err
}

// TestExpands: a reference whose rows are to become records is resolved when its object
// is there, has its pin, and its job is made; others need no job.
func TestExpands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		m := &makers{w: w}
		w.Expander = m
		w.commit(t, w.first(t), "px.x")
		w.objects.say(nil, w.refs[0].url, w.refs[1].url)
		if r := w.follow(t); r.Resolved != 2 || r.Open != 1 {
			t.Errorf("%+v", r)
		}
		if want := "backfill.x.0@2:0 key 2 s3://bucket/2 2"; len(m.made) != 1 || m.made[0] != want {
			t.Errorf("%q, want %q", m.made, want)
		}
		// What cannot be made for now is tried again.
		w.objects.say(nil, w.refs[2].url)
		m.err = errDown
		bubble.Pass(DefaultRetryAtMost)
		if r := w.follow(t); r.Resolved != 0 || r.Open != 1 {
			t.Errorf("%+v", r)
		}
		m.err = nil
		bubble.Pass(DefaultRetryAtMost)
		if r := w.follow(t); r.Resolved != 1 || r.Open != 0 || len(m.made) != 3 {
			t.Errorf("%+v, made %q", r, m.made)
		}
	})
}

// TestExpandsNever: where there can be no job, or nobody makes any, it is not resolved.
func TestExpandsNever(t *testing.T) {
	w := newWorld(t, 1)
	w.Expander = &makers{w: w, err: &ref.BatchError{Header: ref.HeaderExpand, Reason: "no ETag"}}
	w.commit(t, w.first(t), "x")
	w.objects.say(nil, w.refs[0].url)
	if r := w.follow(t); r.GivenUp != 1 || r.Open != 0 || !strings.Contains(w.state(t).GivenUp[0].Reason, "no ETag") {
		t.Errorf("%+v", r)
	}
	w.Expander = nil
	w.commit(t, w.first(t), "x")
	w.objects.say(nil, w.refs[1].url)
	if r := w.follow(t); r.Resolved != 0 || r.Open != 1 {
		t.Errorf("%+v", r)
	}
}
