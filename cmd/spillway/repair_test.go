package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spillway-mq/spillway/compactor/repair"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/segment"
)

// Scripts about repairs can also
//
//	damage TOPIC N  flips a bit in chunk N of the topic's first segment; SEGMENT, FIRST
//	                and LAST in the environment tell which records are in it
func init() { commands["damage"] = damage }

func damage(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, 2)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	info, err := devstack.Load(ts.Getenv("STACK"))
	ts.Check(err)
	client, err := seaweed.Dial(ctx, seaweed.Config{Filer: info.Filer})
	ts.Check(err)
	defer client.Close() //nolint:errcheck // nothing is pending
	topic, err := segment.NewStore(client, info.Bucket).Topic(ctx, args[0])
	ts.Check(err)
	segments, err := topic.Segments(ctx)
	ts.Check(err)
	n, err := strconv.ParseUint(args[1], 10, 64)
	ts.Check(err)
	c, err := segments[0].ChunkAt(ctx, n)
	ts.Check(err)
	ts.Check(flip(ctx, client, c.Entry.Entry))
	ts.Setenv("SEGMENT", string(segments[0].ID))
	ts.Setenv("FIRST", fmt.Sprint(c.Base))
	ts.Setenv("LAST", fmt.Sprint(c.End()-1))
}

// flip changes a file's bytes and nothing else of it.
func flip(ctx context.Context, s filer.Store, e filer.Entry) error {
	r, err := s.Open(ctx, e, 0)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // read-only
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	data[len(data)/2] ^= 1
	return s.Update(ctx, e.Path, e.ID, filer.File{ID: e.ID, Attrs: e.Attrs, Content: data, MTime: e.MTime})
}

func TestRepairOptions(t *testing.T) {
	for name, c := range map[string]struct {
		o    repairOptions
		want [2]uint64
		ok   bool
	}{
		"from the lane":       {repairOptions{fromLane: true}, [2]uint64{}, true},
		"a range":             {repairOptions{drop: "7-9", reason: "x"}, [2]uint64{7, 9}, true},
		"neither":             {repairOptions{}, [2]uint64{}, false},
		"both":                {repairOptions{fromLane: true, drop: "7-9", reason: "x"}, [2]uint64{}, false},
		"no reason":           {repairOptions{drop: "7-9", reason: " "}, [2]uint64{}, false},
		"a reason too many":   {repairOptions{fromLane: true, reason: "x"}, [2]uint64{}, false},
		"one number":          {repairOptions{drop: "7", reason: "x"}, [2]uint64{}, false},
		"upside down":         {repairOptions{drop: "9-7", reason: "x"}, [2]uint64{}, false},
		"negative":            {repairOptions{drop: "-7-9", reason: "x"}, [2]uint64{}, false},
		"more than can be":    {repairOptions{drop: "7-99999999999999999999", reason: "x"}, [2]uint64{}, false},
		"no numbers":          {repairOptions{drop: "a-b", reason: "x"}, [2]uint64{}, false},
		"with something else": {repairOptions{drop: "7-9-11", reason: "x"}, [2]uint64{}, false},
	} {
		first, last, err := c.o.check()
		if (err == nil) != c.ok || err == nil && [2]uint64{first, last} != c.want {
			t.Errorf("%s: %d-%d, %v", name, first, last, err)
		}
	}
}

// TestUnlessLost: what a lane does not have any more is no fault.
func TestUnlessLost(t *testing.T) {
	var lost *repair.LostError
	if err := unlessLost(nil); err != nil {
		t.Error(err)
	}
	if err := unlessLost(errors.New("connection refused")); errors.As(err, &lost) {
		t.Error(err)
	}
}
