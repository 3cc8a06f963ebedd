package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// maxRecordLine bounds a line of what `spillway read` prints.
const maxRecordLine = 8 << 20

// ReadBack reads a whole topic in another process, `spillway read`, and hands
// each record to add.
func (e *Env) ReadBack(ctx context.Context, topic string, add func(Read)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the process where a line cannot be read
	var diag bytes.Buffer
	cmd := e.command(ctx, "read", topic, "--from", "earliest", "--output", "ndjson", "--all")
	cmd.Stderr = &diag
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start spillway read: %w", err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxRecordLine)
	for lines.Scan() {
		r, err := parseRead(lines.Bytes())
		if err != nil {
			cancel()
			return errors.Join(fmt.Errorf("spillway read printed %.200q: %w", lines.Bytes(), err), cmd.Wait())
		}
		add(r)
	}
	if err := lines.Err(); err != nil {
		cancel()
		return errors.Join(err, cmd.Wait())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("spillway read: %w: %s", err, bytes.TrimSpace(diag.Bytes()))
	}
	return nil
}

// parseRead reads one line: a record as JSON (docs/FORMAT.md).
func parseRead(line []byte) (Read, error) {
	var v struct {
		Sequence uint64          `json:"sequence"`
		Row      uint32          `json:"row"`
		Rejected string          `json:"rejected"`
		Key      string          `json:"key"`
		Value    json.RawMessage `json:"value"`
		Headers  []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"headers"`
	}
	if err := json.Unmarshal(line, &v); err != nil {
		return Read{}, err
	}
	r := Read{Number: -1, Key: v.Key, Value: v.Value, Place: Place{v.Sequence, v.Row}, Rejected: v.Rejected}
	if len(v.Value) > 0 && v.Value[0] == '"' { // a string; an object was embedded as it is
		var s string
		if err := json.Unmarshal(v.Value, &s); err != nil {
			return Read{}, err
		}
		r.Value = []byte(s)
	}
	for _, h := range v.Headers {
		if n, err := strconv.Atoi(h.Value); h.Name == NumberHeader && err == nil {
			r.Number = n
		}
	}
	return r, nil
}
