package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

var orders = topic.Definition{Name: "orders", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default"}

func testStore(fs *memfs.FS, hook memfs.Hook) *Store {
	s := NewStore(fs.Client("c", hook), "test")
	s.Codec, s.Inline = record.CodecNull, 0
	return s
}

// newTopic makes the topic orders with n segments and opens them.
func newTopic(t *testing.T, fs *memfs.FS, n int) (*Topic, []*Segment) {
	t.Helper()
	top, err := testStore(fs, nil).CreateTopic(t.Context(), orders, n, noon)
	if err != nil {
		t.Fatal(err)
	}
	segs, err := top.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return top, segs
}

// input is messages from..to of a source, one record each, in slot 1.
func input(t *testing.T, source string, from, to uint64) Input {
	t.Helper()
	set := &record.Set{}
	for seq := from; seq <= to; seq++ {
		r := record.Record{Time: noon.Add(time.Duration(seq) * time.Second), Position: topic.Position{Sequence: seq}, Value: fmt.Appendf(nil, "%s%d", source, seq)}
		if err := set.Append(&r, 1); err != nil {
			t.Fatal(err)
		}
	}
	return Input{Source: source, Set: set, Checkpoint: noCheckpoint, Holds: holds}
}

func noCheckpoint(context.Context) (topic.Position, error) { return topic.Position{}, nil }

func holds(context.Context, SourcePosition) error { return nil }

func mustAppend(t *testing.T, s *Segment, in Input) Outcome {
	t.Helper()
	out, err := s.Append(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// values reads everything there is to read now.
func values(t *testing.T, r *Reader) (list []string) {
	t.Helper()
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(item.Value))
	}
	return list
}

// crashing fails all calls after the n-th, and ends ctx then.
func crashing(ctx context.Context, fs *memfs.FS, n int) (context.Context, *Store, *int) {
	ctx, kill := context.WithCancel(ctx)
	calls := new(int)
	var mu sync.Mutex // children are created side by side
	return ctx, testStore(fs, func(memfs.Op) memfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		if *calls++; *calls <= n {
			return memfs.Fault{}
		}
		kill()
		return memfs.Fault{Before: errors.New("crashed")}
	}), calls
}
