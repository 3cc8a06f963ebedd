package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// threeChunks makes a topic of one segment with three chunks of two records each.
func threeChunks(t *testing.T, dir, name string) *segment.Segment {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store := connected(t, dir)
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default", Roots: 1}
	top, err := store.CreateTopic(t.Context(), def, 1, time.Now())
	check(err)
	segments, err := top.Segments(t.Context())
	check(err)
	for seq := uint64(1); seq < 7; seq += 2 {
		set := &record.Set{}
		for n := seq; n < seq+2; n++ {
			r := record.Record{Time: time.Now(), Position: topic.Position{Sequence: n}, Value: fmt.Append(nil, n)}
			check(set.Append(&r, 1))
		}
		_, err := segments[0].Append(t.Context(), segment.Input{
			Source: "test", Set: set,
			Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
			Holds:      func(context.Context, segment.SourcePosition) error { return nil },
		})
		check(err)
	}
	return segments[0]
}

// TestReadTrimmed: a reader that slept through a trim is told what it missed and
// where to go on, and goes on by itself only if it is told to.
func TestReadTrimmed(t *testing.T) {
	dir := devtest.Stack(t).Info.Dir
	s := threeChunks(t, dir, "napped")
	read := func(want int, args ...string) (out, errs string) {
		t.Helper()
		out, errs = command(t, dir, want, append([]string{"read", "napped", "--output", "raw"}, args...)...)
		return strings.ReplaceAll(out, "\n", " "), errs
	}
	out, errs := read(0, "--limit", "1")
	position := regexp.MustCompile(`position: (\S+)`).FindStringSubmatch(errs)
	if out != "1 " || position == nil {
		t.Fatalf("%q, %q", out, errs)
	}
	if err := s.Trim(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	out, errs = read(1, "--from", position[1])
	next := regexp.MustCompile(`records 1 to 3 were trimmed.*--from (v1,\S+=4)`).FindStringSubmatch(errs)
	if out != "" || next == nil || !strings.Contains(errs, "position: "+position[1]+"\n") {
		t.Fatalf("%q, %q", out, errs)
	}
	if out, _ := read(0, "--from", next[1]); out != "5 6 " {
		t.Errorf("from there: %q", out)
	}
	if out, errs := read(0, "--from", position[1], "--skip-trimmed"); out != "5 6 " || !strings.Contains(errs, "passed over: ") {
		t.Errorf("with --skip-trimmed: %q, %q", out, errs)
	}
	if out, _ := read(0); out != "5 6 " {
		t.Errorf("from the earliest: %q", out)
	}
}
