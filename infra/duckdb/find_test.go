package duckdb

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMissing: what is missing is told, with what to do.
func TestMissing(t *testing.T) {
	node := t.TempDir()
	if err := os.WriteFile(filepath.Join(node, "node"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, want string }{
		"no node":   {t.TempDir(), "no node on PATH"},
		"no module": {node, "make duckdb"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			t.Setenv("SPILLWAY_CACHE", t.TempDir())
			_, err := Query(t.Context(), "select 1")
			var missing *MissingError
			if !errors.As(err, &missing) || !strings.Contains(err.Error(), c.want) || errors.Unwrap(err) == nil {
				t.Errorf("got %v, want a MissingError with %q", err, c.want)
			}
		})
	}
}

// TestPinned: both files of npm pin the same version, and name no registry, so that
// whichever is configured is asked.
func TestPinned(t *testing.T) {
	want, err := pinned(packageJSON)
	if err != nil || !regexp.MustCompile(`^\d+\.\d+\.\d+`).MatchString(want) {
		t.Fatalf("%q, %v", want, err)
	}
	data, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ Version, Integrity, Resolved string }
	}
	if err := json.Unmarshal(data, &lock); err != nil {
		t.Fatal(err)
	}
	if got := lock.Packages["node_modules/"+module].Version; got != want {
		t.Errorf("package-lock.json pins %s, package.json %s", got, want)
	}
	for name, p := range lock.Packages {
		if p.Resolved != "" || name != "" && p.Integrity == "" {
			t.Errorf("%s: resolved %q, integrity %q", name, p.Resolved, p.Integrity)
		}
	}
	for _, bad := range []string{"", "{", `{"dependencies":{}}`, `{"dependencies":[]}`} {
		if v, err := pinned([]byte(bad)); err == nil {
			t.Errorf("%q gives version %q", bad, v)
		}
	}
}
