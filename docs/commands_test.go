package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// code is what a document shows as code: blocks, and what is in backticks.
func code(text string) []string {
	var lines []string
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(m[1], "\n")...)
	}
	for _, m := range inTicks.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		lines = append(lines, m[1])
	}
	return lines
}

// TestMakeTargets: what documents tell people to make can be made.
func TestMakeTargets(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):.*## `).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	used := 0
	for _, doc := range documents(t) {
		for _, line := range code(read(t, doc)) {
			line, _, _ = strings.Cut(line, "#")
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "make" {
				continue
			}
			for _, target := range words[1:] {
				if !strings.Contains(target, "=") && !targets[target] {
					t.Errorf("%s: make %s: no such target", doc, target)
				}
				used++
			}
		}
	}
	if used == 0 {
		t.Error("no document mentions a make target: the test looks at the wrong thing")
	}
}

// later are commands that documents mention as not there yet.
var later = []string{}

// TestCommands: commands and flags that documents show exist.
func TestCommands(t *testing.T) {
	uses, flags := commandLine(t)
	var shown int
	for _, doc := range documents(t) {
		for _, line := range code(read(t, doc)) {
			for _, part := range strings.Split(line, "|") {
				part, _, _ = strings.Cut(part, " #")
				words := strings.Fields(part)
				if len(words) < 2 || words[0] != "spillway" && words[0] != "bin/spillway" {
					continue
				}
				shown++
				if problem := checkCommand(words[1:], uses, flags); problem != "" {
					t.Errorf("%s: %q: %s", doc, part, problem)
				}
			}
		}
	}
	if shown < 10 {
		t.Errorf("documents show %d commands: the test looks at the wrong thing", shown)
	}
}

// commandLine reads the names of commands and flags from the command's source.
func commandLine(t *testing.T) (uses, flags map[string]bool) {
	t.Helper()
	uses, flags = map[string]bool{"help": true, "completion": true}, map[string]bool{"help": true}
	paths, err := filepath.Glob(filepath.Join(root, "cmd", "spillway", "*.go"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no source of the command: %v", err)
	}
	use := regexp.MustCompile(`Use:\s*"([a-z0-9-]+)`)
	flag := regexp.MustCompile(`"([a-z][a-z0-9-]*)"`)
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range use.FindAllStringSubmatch(string(data), -1) {
			uses[m[1]] = true
		}
		for _, m := range flag.FindAllStringSubmatch(string(data), -1) {
			flags[m[1]] = true
		}
	}
	return uses, flags
}

// checkCommand tells what is wrong with the words after "spillway".
func checkCommand(words []string, uses, flags map[string]bool) string {
	groups := []string{"topic", "run", "edit", "lanes", "backfill", "table"} // commands whose next word is a command too
	if words[0] == "help" && len(words) > 1 {
		words = words[1:]
	}
	if slices.Contains(later, words[0]) {
		return ""
	}
	if !uses[words[0]] {
		return "no such command"
	}
	if slices.Contains(groups, words[0]) && len(words) > 1 && !uses[words[1]] {
		return "no such command"
	}
	for _, w := range words {
		name, isFlag := strings.CutPrefix(w, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && !flags[name] {
			return "no flag --" + name
		}
	}
	return ""
}

// TestMetrics: OPERATIONS lists the metrics that there are.
func TestMetrics(t *testing.T) {
	text := read(t, "docs/OPERATIONS.md")
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(spillway_\\w+)`").FindAllStringSubmatch(text, -1) {
		documented[m[1]] = true
	}
	for file, role := range map[string]string{
		"ingest/metrics.go": "ingest", "planner/metrics.go": "planner", "internal/followup/metrics.go": "refs",
		"functions/s3events_metrics.go": "s3_events", "ingest/backfill_metrics.go": "backfill",
		"compactor/metrics.go": "compactor",
	} {
		made := regexp.MustCompile(`(?:counters?|gauge|histogram)\("(\w+)"`).FindAllStringSubmatch(read(t, file), -1)
		if len(made) == 0 {
			t.Fatalf("found no metrics in %s", file)
		}
		for _, m := range made {
			name := "spillway_" + role + "_" + m[1]
			if !documented[name] {
				t.Errorf("OPERATIONS.md does not list %s", name)
			}
			delete(documented, name)
		}
	}
	for name := range documented {
		t.Errorf("OPERATIONS.md lists %s, which does not exist", name)
	}
}

// TestErrors: the errors that OPERATIONS explains exist.
func TestErrors(t *testing.T) {
	var source strings.Builder
	for _, dir := range []string{"ingest", "client", "internal/filer", "internal/filer/commitlog", "internal/segment", "internal/lane"} {
		paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			data, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			source.Write(data)
		}
	}
	name := regexp.MustCompile("`(Err[A-Z]\\w+|[A-Z]\\w+Error)`")
	for _, m := range name.FindAllStringSubmatch(read(t, "docs/OPERATIONS.md"), -1) {
		declared := regexp.MustCompile(fmt.Sprintf(`(?m)^(type %[1]s |var %[1]s |\s+%[1]s +=)`, m[1]))
		if !declared.MatchString(source.String()) {
			t.Errorf("OPERATIONS.md explains %s, which does not exist", m[1])
		}
	}
}

// TestRules: PROTOCOL has every rule that is cited, in order and once.
func TestRules(t *testing.T) {
	rules := regexp.MustCompile(`(?m)^\*\*(\d+)\.(?: ●)?\*\* `).FindAllStringSubmatch(read(t, "docs/PROTOCOL.md"), -1)
	for i, m := range rules {
		if m[1] != strconv.Itoa(i+1) {
			t.Fatalf("rule %d of PROTOCOL.md has the number %s", i+1, m[1])
		}
	}
	if len(rules) != 39 {
		t.Fatalf("PROTOCOL.md has %d rules, want 39", len(rules))
	}
}
