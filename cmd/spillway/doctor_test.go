package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// TestDoctor runs doctor on a stack of its own, with a worker: what is fit there,
// what there is to know, and a rule of a path that would delete a topic's files,
// which also keeps the topic from being made.
func TestDoctor(t *testing.T) {
	stack, err := devstack.Start(t.Context(), devstack.Config{Dir: t.TempDir(), NATSChild: devtest.NATSChild()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(stack.KillWeed(), stack.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	startWorker(t, stack)
	call := func(want int, args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), append(args, "--stack", stack.Info.Dir), &out, &errs); code != want {
			t.Errorf("%v ended with %d, want %d:\n%s%s", args, code, want, &out, &errs)
		}
		return out.String() + errs.String()
	}
	record := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(record, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	call(functions.ExitDone, "topic", "create", "durable", "--fsync", "--replication", "000")
	call(functions.ExitDone, "publish", "durable", record, "--ack", "stored")
	text := call(functions.ExitDone, "doctor")
	for _, line := range []string{
		`ok +nats +version .*JetStream is on, it syncs every 2m0s`, `ok +filer +version .*4\.`, `ok +filers +one`,
		`ok +writes +/buckets/.*/topics and /buckets/.*/checkpoints`, `ok +exclusive create`, `ok +expiry`, `ok +leftovers`,
		`warn +stored +topics: 1 copy`, `warn +stored +topic durable: .*bytes are synced and their entries are not`,
		` +→ in weed shell: fs.configure -locationPrefix=/buckets/.*/topics/durable/ -fsync`, `warn +buffered +lane default.0: 1 replica`,
		`ok +lane +lane default.0: 0 messages above the checkpoint.*witness is in place`, `ok +clock +the filer's`, `ok +clock +NATS's`, `ok +compaction +0 of 0 sealed`, `11 ok, 3 to know, 0 failed`,
	} {
		if !regexp.MustCompile("(?m)^" + line).MatchString(text) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
	if text := call(functions.ExitDone, "doctor", "--json", "--sweep"); !strings.HasPrefix(text, `{"ok":true,"findings":[{"check":"nats","status":"ok",`) ||
		!strings.Contains(text, `"swept":{"deleted":[],"young":[],"used":[]}`) {
		t.Errorf("as JSON: %s", text)
	}
	c, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: stack.Info.Filer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	findsTTL(t, c, "/buckets/"+stack.Info.Bucket, call)
}

// findsTTL sets rules of paths, as fs.configure does.
func findsTTL(t *testing.T, c *seaweed.Client, root string, call func(int, ...string) string) {
	rule := func(prefix string) (remove func()) {
		t.Helper()
		const conf = "/etc/seaweedfs/filer.conf"
		text := fmt.Sprintf(`{"version":2,"locations":[{"locationPrefix":%q,"ttl":"5d"}]}`, prefix)
		if err := c.Create(t.Context(), conf, filer.File{ID: filer.NewID(), Content: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := c.Delete(t.Context(), conf, ""); err != nil {
				t.Error(err)
			}
		}
	}
	remove := rule(root + "/topics/doomed/")
	want := "rule for " + root + "/topics/doomed/ in /etc/seaweedfs/filer.conf: ttl 5d"
	if text := call(functions.ExitConfig, "topic", "create", "doomed"); !strings.Contains(text, want) {
		t.Errorf("creation says %q, want %q", text, want)
	}
	if text := call(functions.ExitConfig, "doctor"); !strings.Contains(text, want) {
		t.Errorf("doctor says %q, want %q", text, want)
	}
	call(functions.ExitDone, "topic", "create", "spared")
	remove()
	remove = rule(root + "/payloads/")
	call(functions.ExitDone, "topic", "create", "doomed")
	call(functions.ExitDone, "doctor")
	remove()
}
