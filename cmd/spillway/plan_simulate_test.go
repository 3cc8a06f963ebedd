package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/planner"
	"github.com/spillway-mq/spillway/planner/sim"
)

const recorded = "../../planner/sim/testdata/"

// simulate runs `spillway plan --simulate` with a file.
func simulate(t *testing.T, file string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = run(t.Context(), append([]string{"plan", "--simulate", file}, args...), &o, &e)
	return o.String(), e.String(), code
}

func TestPlanSimulate(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "flood.svg")
	out, errs, code := simulate(t, recorded+"flood.csv", "--verbose", "--svg", svg)
	if code != functions.ExitDone || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"split 0-0: ", "over target ", "stability    no merge undid a split", "all records are in sealed segments", svg} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	picture, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(picture, new(struct{ XMLName xml.Name })); err != nil {
		t.Error(err)
	}
	out, _, code = simulate(t, recorded+"flood.csv", "--svg", "-")
	if code != functions.ExitDone || out != string(picture) {
		t.Errorf("exit %d, %d bytes of a picture, want those of the file", code, len(out))
	}
}

func TestPlanSimulateJSON(t *testing.T) {
	out, errs, code := simulate(t, recorded+"flood.csv", "--json", "--roots", "3")
	if code != functions.ExitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var r sim.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.First != 3 || r.Last != 3 || r.Splits == 0 || len(r.Edits) != r.Splits+r.Merges+r.Rolls || len(r.Load) == 0 || len(r.Final) == 0 {
		t.Errorf("%+v", r.Summary)
	}
	if r.Edits[0].Kind != planner.Split || r.Edits[0].Reason == "" {
		t.Errorf("%+v", r.Edits[0])
	}
}

// TestPlanSimulateRefuses: what is wrong with a trace or an option is said, with the
// exit code of a wrong call.
func TestPlanSimulateRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("seconds,bytes,records\n0,1,1\n5,-1,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		file string
		args []string
		says string
	}{
		{bad, nil, `bad.csv: the trace makes no sense in line 3: bytes is "-1"`},
		{"no-such.csv", nil, "no-such.csv"},
		{t.TempDir(), nil, "is a directory"},
		{recorded + "flood.csv", []string{"--period", "0.5ms"}, "period 500µs"},
		{recorded + "flood.csv", []string{"--roots", "5000"}, "5000 segments at first"},
		{recorded + "flood.csv", []string{"--svg", "-", "--json"}, "--svg -"},
		{recorded + "flood.csv", []string{"--svg", "/no/such/folder/x.svg"}, "write the picture"},
		{recorded + "flood.csv", []string{"orders"}, "takes no topic"},
	} {
		out, errs, code := simulate(t, c.file, c.args...)
		if code != functions.ExitUsage || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("%s %v: exit %d, %q, want %q; printed %q", c.file, c.args, code, errs, c.says, out)
		}
	}
}
