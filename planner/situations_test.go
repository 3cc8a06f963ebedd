package planner

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/inspect"
)

var update = flag.Bool("update", false, "rewrite the output in situations and golden files, never what is expected")

const (
	expects = "# expect: "
	divider = "---\n"
)

// TestSituations plans for situations that are written down as text, for
// operators to read; testdata/situations/README.md explains them. What a
// situation expects is written by hand, and -update leaves it alone.
func TestSituations(t *testing.T) {
	files, err := filepath.Glob("testdata/situations/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d situations, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, ok := strings.Cut(string(data), divider)
			s, p, err := parseSituation(input)
			if err != nil || !ok && !*update {
				t.Fatalf("divider %v, error %v", ok, err)
			}
			decisions := Plan(s, p)
			for _, complaint := range check(input, s, p, decisions) {
				t.Error(complaint)
			}
			got := describe(s, p, decisions)
			if *update {
				if err := os.WriteFile(file, []byte(input+divider+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

// describe writes decisions down.
func describe(s Situation, p Policy, decisions []Decision) string {
	var b strings.Builder
	for _, d := range decisions {
		fmt.Fprintf(&b, "%s: %s\n", headline(d), d.Reason)
	}
	if AtRest(s, p) {
		b.WriteString("at rest\n")
	}
	return b.String()
}

// headline is a decision without its reason: "split 0-0 into 3 at 10 20".
func headline(d Decision) string {
	words := []string{d.Kind}
	for _, id := range d.Segments {
		words = append(words, inspect.Short(id))
	}
	if d.Kind == Split {
		words = append(words, "into", strconv.Itoa(len(d.Cuts)+1), "at")
		for _, c := range d.Cuts {
			words = append(words, fmt.Sprint(c))
		}
	}
	return strings.Join(words, " ")
}

// check compares decisions with what is expected of them.
func check(input string, s Situation, p Policy, decisions []Decision) (complaints []string) {
	complain := func(format string, a ...any) { complaints = append(complaints, fmt.Sprintf(format, a...)) }
	expected := make([]bool, len(decisions))
	rest, atRest := false, false
	for line := range strings.Lines(input) {
		want, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), expects)
		if !ok {
			continue
		}
		head, phrases, _ := strings.Cut(want, ": ")
		switch head {
		case "nothing else":
			rest = true
			continue
		case "at rest":
			atRest = true
			continue
		}
		i := slices.IndexFunc(decisions, func(d Decision) bool {
			return headline(d) == head || d.Kind == Split && strings.HasPrefix(headline(d), head+" at ")
		})
		if i < 0 {
			complain("expected, but not decided: %s", want)
			continue
		}
		expected[i] = true
		for phrase := range strings.SplitSeq(phrases, "; ") {
			if !strings.Contains(decisions[i].Reason, phrase) {
				complain("expected %q in the reason to %s: %s", phrase, head, decisions[i].Reason)
			}
		}
	}
	for i, d := range decisions {
		if !expected[i] && (!rest || d.Kind != Keep) {
			complain("decided, but not expected: %s: %s", headline(d), d.Reason)
		}
	}
	if got := AtRest(s, p); got != atRest {
		complain("at rest is %v, expected %v", got, atRest)
	}
	return complaints
}

// golden compares text with a file, which -update writes.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", file, diff)
	}
}

// TestCheck says that expectations can fail: the situations rest on it.
func TestCheck(t *testing.T) {
	const situation = "segment 0-0: slots 0 to 30, takes in 12 MiB/s\nsegment 0-1: slots 30 to 65536, idle\n"
	s, p, err := parseSituation(situation)
	if err != nil {
		t.Fatal(err)
	}
	decisions := Plan(s, p)
	const split, keep = expects + "split 0-0 into 3 at 10 20: 1.50 times; 8.0 MiB/s\n", expects + "keep 0-1: idle\n"
	for expectations, want := range map[string]string{
		split + keep: "", keep + expects + "split 0-0 into 3\n": "", split + expects + "nothing else\n": "",
		"":                                    "not expected: split",
		split:                                 "not expected: keep 0-1",
		keep + expects + "nothing else\n":     "not expected: split",
		split + keep + expects + "at rest":    "at rest is false",
		keep + expects + "split 0-0 into 4\n": "not decided: split 0-0 into 4",
		keep + expects + "split 0-0 into 3 at 10\n":     "not decided: split 0-0 into 3 at 10",
		keep + expects + "split 0-0 into 3 at 10 21\n":  "not decided: split 0-0 into 3 at 10 21",
		split + expects + "keep 0-1: idle; cool-down\n": `expected "cool-down"`,
		split + expects + "merge 0-0 0-1\n" + keep:      "not decided: merge",
		split + keep + expects + "roll 0-1\n":           "not decided: roll",
	} {
		got := strings.Join(check(situation+expectations, s, p, decisions), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", expectations, got, want)
		}
	}
	for _, nonsense := range []string{
		"segment 0-0: slots 0 to 30, sleeps\n", "segment x: idle\n", "policy: fast\n", "topic: large\n", "lane a: long\n",
		"segment 0-0: slots 0 to 30, idle\n", "segment 0-0: slots 0 to 65536, takes in much\n", "policy: cap x\nsegment 0-0: slots 0 to 65536, idle\n",
		"policy: cap 0\nsegment 0-0: slots 0 to 65536, idle\n", "segment 0-0: slots 0 to 65536 or so, idle\n",
	} {
		if _, _, err := parseSituation(nonsense); err == nil {
			t.Errorf("%q is understood", nonsense)
		}
	}
}
