package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// jsonCalls has a call of each command that prints something for programs, in the
// order in which they make sense, and its exit code.
var jsonCalls = []struct {
	call string
	code int
}{
	{"version", 0},
	{"topic create talk --flush-age 100ms --allow spillway", 0},
	{"publish talk INPUT --ack stored", 0},
	{"submit talk --prefix s3://spillway/none/", 0},
	{"topic list", 0},
	{"topic describe talk", 0},
	{"read talk", 0},
	{"verify talk", 0},
	{"read talk --expand", 0},
	{"verify talk --expand", 0},
	{"segments talk", 0},
	{"edit roll talk --all", 0},
	{"edit finish talk", 0},
	{"refs check talk", 0},
	{"refs adopt talk", 0},
	{"refs drop talk", 0},
	{"plan talk --explain", 0},
	{"plan talk --expect 1MB/s --for 1m", 0},
	{"plan --show-policy", 0},
	{"run plan --once", 0},
	{"run refs --once", 0},
	{"backfill run talk INPUT --format ndjson", 0},
	{"backfill run talk INPUT --format ndjson --dry-run", 0},
	{"backfill list talk", 0},
	{"backfill list", 0},
	{"backfill schedule create talk yearly s3://spillway/none/ --cron @yearly", 0},
	{"backfill schedule list", 0},
	{"backfill schedule describe talk yearly", 0},
	{"backfill schedule pause talk yearly", 0},
	{"backfill schedule resume talk yearly", 0},
	{"backfill schedule run talk yearly", 0},
	{"run backfill --once", 0},
	{"backfill schedule delete talk yearly", 0},
	{"run s3-events --from spillway/none/ --topic talk --once", 0},
	{"compact talk --dry-run", 0},
	{"compact talk --roll", 0},
	{"run compact --once", 0},
	{"table describe talk", 0},
	{"table files talk", 0},
	{"table snapshots talk", 0},
	{"table orphans talk", 0},
	{"table drop talk --yes", 0},
	{"lanes create talkers --lanes 1", 0},
	{"lanes list", 0},
	{"lanes describe talkers", 0},
	{"lanes delete talkers --yes", 0},
	{"doctor", 0},
	{"run ingest --once --wait 1s", 75}, // the worker has the lease
	{"topic delete talk --yes", 0},
}

// noJSON print nothing on standard output, or a script that is no JSON; the other lines
// have those that need a segment, also a damaged one, a receipt, a broken lane or a job,
// which their own scripts provide.
var noJSON = []string{
	"dev", "help", "completion",
	"edit split", "edit merge", "lanes reset", "lanes accept-gap", "topic set", "trace",
	"backfill describe", "backfill pause", "backfill resume", "backfill cancel", "repair",
}

// TestJSON: with --json every command prints lines of JSON and nothing else.
func TestJSON(t *testing.T) {
	stack := devtest.Stack(t)
	startWorker(t, stack)
	input := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(input, []byte("{\"n\":1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	covered := noJSON
	for _, c := range jsonCalls {
		covered = append(covered, c.call)
		var out, errs bytes.Buffer
		args := strings.Fields(strings.ReplaceAll(c.call, "INPUT", input))
		code := run(t.Context(), append(args, "--json", "--stack", stack.Info.Dir), &out, &errs)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", c.call, code, c.code, errs.String())
		}
		if problem := notJSON(out.String()); problem != "" {
			t.Errorf("%s --json: %s", c.call, problem)
		}
	}
	eachCommand(commandTree(), func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "spillway ")
		if cmd.HasSubCommands() || !cmd.Runnable() {
			return
		}
		for _, call := range covered {
			if strings.HasPrefix(call+" ", name+" ") || strings.HasPrefix(name, call+" ") {
				return
			}
		}
		t.Errorf("spillway %s is missing in this test", name)
	})
}
