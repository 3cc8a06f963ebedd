package main

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// connected is the store of a stack as commands see it.
func connected(t *testing.T, dir string) *segment.Store {
	t.Helper()
	a := &app{cfg: config{Stack: dir, Timeout: 30 * time.Second}, log: slog.New(slog.DiscardHandler), giveUp: func(error) {}}
	store, done, err := a.filer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return store
}

// command runs a command against a stack.
func command(t *testing.T, dir string, want int, args ...string) (out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	if code := run(t.Context(), append(args, "--stack", dir), &o, &e); code != want {
		t.Fatalf("%v: exit code %d, want %d: %s", args, code, want, e.String())
	}
	return o.String(), e.String()
}

// unsealable is a filer on which no seal can be made.
type unsealable struct{ filer.Store }

func (u unsealable) Create(ctx context.Context, path string, f filer.File) error {
	if f.Attrs["Sealed"] != "" {
		return filer.ErrInvalid
	}
	return u.Store.Create(ctx, path, f)
}

// TestEditFinish: an edit that somebody left half done shows as such, and is
// finished by the command for it, or by the next edit.
func TestEditFinish(t *testing.T) {
	dir := devtest.Stack(t).Info.Dir
	command(t, dir, 0, "topic", "create", "halfway")
	store := connected(t, dir)
	broken := *store
	broken.Filer = unsealable{store.Filer}
	top, err := broken.Topic(t.Context(), "halfway")
	if err != nil {
		t.Fatal(err)
	}
	begin := func() {
		t.Helper()
		plan := func(l topic.Layout) (topic.Edit, error) { return l.SplitWays(l.Live[0].ID, 2) }
		if l, err := top.Edit(t.Context(), time.Now(), plan); err == nil {
			t.Fatalf("the edit was finished: %+v", l)
		}
	}
	begin()
	for _, c := range []struct {
		want string
		args []string
	}{
		{" sealing ", []string{"segments", "halfway"}},
		{"a split of 0-0 is under way since ", []string{"segments", "halfway"}},
		{`"pending":{"kind":"split"`, []string{"segments", "halfway", "--json"}},
		{"split 0-0 at 32768, under way", []string{"segments", "halfway", "--tree"}},
		{"a split of 0-0 is under way", []string{"topic", "describe", "halfway"}},
		{"would give epoch 4", []string{"edit", "split", "halfway", "slot:0", "--dry-run"}},
		{"would roll 2 segments of topic halfway, from epoch 2 to 6", []string{"edit", "roll", "halfway", "--all", "--dry-run"}},
		{"split of topic halfway done: epoch 2, 2 live segments", []string{"edit", "finish", "halfway"}},
		{"no edit of topic halfway is under way: epoch 2", []string{"edit", "finish", "halfway"}},
	} {
		if out, _ := command(t, dir, 0, c.args...); !strings.Contains(out, c.want) {
			t.Errorf("%v: %q, want %q", c.args, out, c.want)
		}
	}
	begin()
	if out, _ := command(t, dir, 0, "edit", "merge", "halfway", "slot:0", "slot:20000"); !strings.Contains(out, "merge of topic halfway done: epoch 6, 2 live") {
		t.Errorf("an edit after one that was left half done: %q", out)
	}
	command(t, dir, 0, "verify", "halfway")
}
