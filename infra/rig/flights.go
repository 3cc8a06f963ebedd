package rig

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// maxLine bounds a line of the sample.
const maxLine = 64 << 10

// Flight is one record of the sample: a line of JSON, and its key.
type Flight struct {
	Key   string // the airport of origin
	Value []byte
}

// FlightsFile is the sample of real records in testdata.
func FlightsFile() (string, error) {
	root, err := moduleRoot()
	return filepath.Join(root, "testdata", "flights.ndjson.gz"), err
}

// Flights reads the sample of real records in testdata, in their order.
func Flights() (_ []Flight, err error) {
	name, err := FlightsFile()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the sample of flights: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	var flights []Flight
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var v struct {
			Origin string `json:"origin"`
		}
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil || v.Origin == "" {
			return nil, fmt.Errorf("read %s, line %d: no flight: %w", f.Name(), len(flights)+1, err)
		}
		flights = append(flights, Flight{v.Origin, append([]byte(nil), lines.Bytes()...)})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return flights, nil
}

// moduleRoot is the nearest folder at or above this one that has a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return "", fmt.Errorf("run this inside the source tree, where testdata is: %w", err)
		}
		dir = parent
	}
}
