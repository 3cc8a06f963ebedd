package main

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachCommand visits all commands that help shows.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	if cmd.Hidden {
		return
	}
	visit(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, visit)
	}
}

func commandTree() *cobra.Command { return (&app{out: io.Discard, errs: io.Discard}).root() }

// TestHelp: every command says what it does at length, shows an example that
// calls it, and describes each of its flags.
func TestHelp(t *testing.T) {
	seen := 0
	eachCommand(commandTree(), func(cmd *cobra.Command) {
		seen++
		path := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") {
			t.Errorf("%s: the short help %q is empty or ends with a full stop", path, cmd.Short)
		}
		if len(cmd.Long) <= len(cmd.Short) {
			t.Errorf("%s: there is no long help", path)
		}
		if !strings.Contains(cmd.Example, path) {
			t.Errorf("%s: its examples %q do not call it", path, cmd.Example)
		}
		for _, line := range strings.Split(cmd.Long+"\n"+cmd.Example, "\n") {
			if !strings.Contains(path, "completion") && len(line) > 140 {
				t.Errorf("%s: a line of its help has %d characters: %s", path, len(line), line)
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s: --%s is described as %q", path, f.Name, f.Usage)
			}
		})
	})
	if seen < 15 {
		t.Errorf("only %d commands: the test looks at the wrong thing", seen)
	}
}

var exampleFlag = regexp.MustCompile(`(?:^|\s)--([a-z0-9-]+)`)

// TestExamples: commands and flags that examples use exist.
func TestExamples(t *testing.T) {
	eachCommand(commandTree(), func(cmd *cobra.Command) {
		for _, line := range strings.Split(cmd.Example, "\n") {
			line, _, _ = strings.Cut(line, " | jq")
			_, call, ok := strings.Cut(line, "spillway ")
			if !ok {
				t.Errorf("%s: the example %q calls nothing", cmd.CommandPath(), line)
				continue
			}
			used, _, err := cmd.Root().Find(strings.Fields(call))
			if err != nil {
				t.Errorf("%s: the example %q: %v", cmd.CommandPath(), line, err)
				continue
			}
			for _, m := range exampleFlag.FindAllStringSubmatch(call, -1) {
				if used.Flags().Lookup(m[1]) == nil && used.InheritedFlags().Lookup(m[1]) == nil {
					t.Errorf("%s: the example %q: no flag --%s", cmd.CommandPath(), line, m[1])
				}
			}
		}
	})
}

// TestHelpNeedsNothing: --help of every command ends with 0 and shows its flags.
func TestHelpNeedsNothing(t *testing.T) {
	var paths []string
	eachCommand(commandTree(), func(cmd *cobra.Command) { paths = append(paths, cmd.CommandPath()) })
	for _, path := range paths {
		var out bytes.Buffer
		args := strings.Fields(path + " --help")[1:]
		if code := run(context.Background(), args, &out, io.Discard); code != 0 || !strings.Contains(out.String(), "Flags:") {
			t.Errorf("%s --help: exit code %d, %.100q", path, code, out.String())
		}
	}
}
