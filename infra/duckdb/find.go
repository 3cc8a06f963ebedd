package duckdb

import (
	_ "embed" // for what is embedded below
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed package.json
var packageJSON []byte

const module = "@duckdb/node-api"

// MissingError tells what is missing for DuckDB to be run, and what to do.
type MissingError struct {
	What string
	Err  error // the cause, if there is one
}

func (e *MissingError) Error() string { return "DuckDB cannot be run: " + e.What }

// Unwrap gives the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// Engine is where DuckDB is.
type Engine struct {
	Node    string // the program
	Dir     string // the folder that has the module
	Version string // of the module, which begins with that of DuckDB
}

// Find finds the DuckDB that was installed by install.sh (`make duckdb`). It installs
// nothing. Its error is a [*MissingError].
func Find() (Engine, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return Engine{}, &MissingError{"there is no node on PATH (Node.js 18 or newer)", err}
	}
	version, err := pinned(packageJSON)
	if err != nil {
		return Engine{}, &MissingError{"infra/duckdb/package.json names no version", err}
	}
	cache, err := cacheDir()
	if err != nil {
		return Engine{}, &MissingError{"there is no cache folder: set SPILLWAY_CACHE", err}
	}
	e := Engine{Node: node, Dir: filepath.Join(cache, "duckdb-"+version), Version: version}
	if _, err := os.Stat(filepath.Join(e.Dir, "node_modules", module, "package.json")); err != nil {
		return Engine{}, &MissingError{fmt.Sprintf("version %s is not in %s: run `make duckdb`", version, e.Dir), err}
	}
	return e, nil
}

// pinned is the version that a package.json asks for.
func pinned(data []byte) (string, error) {
	var p struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return "", err
	}
	if p.Dependencies[module] == "" {
		return "", errors.New("no version of " + module)
	}
	return p.Dependencies[module], nil
}

// cacheDir is where install.sh and its like keep what they build.
func cacheDir() (string, error) {
	if dir := os.Getenv("SPILLWAY_CACHE"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "spillway"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".cache", "spillway"), err
}
