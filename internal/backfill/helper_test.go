package backfill

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

var dawn = time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)

// desk is a topic on a filer in memory, and its jobs.
type desk struct {
	testing.TB
	fs    *memfs.FS
	topic *segment.Topic
	*Jobs
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	d := &desk{TB: t, fs: memfs.New()}
	var err error
	d.topic, err = d.storeOf(nil).CreateTopic(t.Context(), topic.Definition{
		Name: "orders", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default",
	}, 1, dawn)
	d.ok(err)
	d.Jobs = d.jobs(nil)
	return d
}

// storeOf is the store of a client of its own.
func (d *desk) storeOf(hook memfs.Hook) *segment.Store {
	s := segment.NewStore(d.fs.Client("c", hook), "test")
	s.Now = func() time.Time { return dawn }
	return s
}

func (d *desk) jobs(hook memfs.Hook) *Jobs { return Of(d.storeOf(hook), d.topic) }

func (d *desk) ok(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

// move sets the checkpoint of a source.
func (d *desk) move(source string, change func(*segment.Checkpoint)) {
	d.Helper()
	file := d.store.CheckpointFile(source)
	c, v, err := file.Load(d.Context())
	d.ok(err)
	change(&c)
	_, err = file.Save(d.Context(), c, v)
	d.ok(err)
}

// some are n objects, of 1 to 5 bytes.
func some(n int) []Object {
	list := make([]Object, n)
	for i := range list {
		list[i] = Object{Bucket: "box", Key: fmt.Sprintf("in/%04d.ndjson", i), ETag: fmt.Sprintf("e%d", i), Size: int64(i%5 + 1)}
	}
	return list
}

// draft is a job that can be made.
func draft(n, parallel int) Job {
	return Job{By: "cli", Origin: "s3://box/in/", Read: Read{Format: rows.NDJSON}, Sources: Divide(some(n), "", parallel)}
}

var errCrashed = errors.New("crashed")

// crash kills a client at call n, from 1: before its effect, or after it.
type crash struct {
	mu    sync.Mutex
	n     int
	lost  bool
	calls int
	dead  bool
	kill  func()
}

func (c *crash) hook(memfs.Op) memfs.Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.calls++; {
	case c.dead, c.calls == c.n && !c.lost:
		c.dead = true
		c.kill()
		return memfs.Fault{Before: errCrashed}
	case c.calls == c.n:
		c.dead = true
		c.kill()
		return memfs.Fault{After: errCrashed}
	}
	return memfs.Fault{}
}

func wantText(t testing.TB, err error, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if err == nil || !strings.Contains(err.Error(), p) {
			t.Errorf("error %v does not say %q", err, p)
		}
	}
}
