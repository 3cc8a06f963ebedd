package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/refcheck"
)

// uploadOnly is the command upload of scripts: a producer that dies before it
// publishes the record.
func uploadOnly(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, 3)
	store := scriptObjects(ts)
	defer store.Close()
	data := ts.ReadFile(args[0])
	sum := sha256.Sum256([]byte(data))
	name := object.Name{Bucket: "spillway", Key: fmt.Sprintf("%s%x", refcheck.Prefix(args[1]), sum)}
	_, err := store.Put(context.Background(), name, strings.NewReader(data), int64(len(data)), object.PutOptions{SHA256: sum[:]})
	ts.Check(err)
	ts.Setenv(args[2], name.String())
}

// TestSince: times, and ages, which are negative.
func TestSince(t *testing.T) {
	if at, err := parseSince(""); err != nil || !at.IsZero() {
		t.Errorf("nothing: %v, %v", at, err)
	}
	if at, err := parseSince("-1h"); err != nil || time.Since(at) < time.Hour || time.Since(at) > 2*time.Hour {
		t.Errorf("an age: %v, %v", at, err)
	}
	if at, err := parseSince("2026-01-02T03:04:05Z"); err != nil || at.Unix() != 1767323045 {
		t.Errorf("a time: %v, %v", at, err)
	}
	for _, text := range []string{"1h", "yesterday", "2026-01-02", "-"} {
		if _, err := parseSince(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestDigestOf: the names of uploads say what is in them.
func TestDigestOf(t *testing.T) {
	sum := sha256.Sum256([]byte("x"))
	for url, want := range map[string]string{
		fmt.Sprintf("s3://b/spillway/t/%x", sum): string(sum[:]),
		fmt.Sprintf("s3://b/%x0", sum):           "",
		fmt.Sprintf("s3://b/%x/", sum):           "",
		"s3://b/abcd":                            "",
		"":                                       "",
	} {
		if got := digestOf(url); string(got) != want {
			t.Errorf("%q: %x", url, got)
		}
	}
}

// TestDropAge: younger than producers name uploads only by force.
func TestDropAge(t *testing.T) {
	for _, c := range []struct {
		dropOptions
		ok bool
	}{
		{dropOptions{olderThan: refcheck.DropAge}, true},
		{dropOptions{olderThan: refcheck.SafeAge}, true},
		{dropOptions{olderThan: refcheck.SafeAge - time.Second}, false},
		{dropOptions{force: true}, true},
		{dropOptions{}, false},
	} {
		if err := c.checkAge(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.dropOptions, err)
		}
	}
}

// TestFindingLine: what people see.
func TestFindingLine(t *testing.T) {
	off, key := uint64(7), refcheck.Key("k\n")
	for want, f := range map[string]refcheck.Finding{
		`missing   s3://b/k  segment 4-1, offset 7, key "k\n", committed unverified: no such object`: {
			Kind: refcheck.Dangling, State: ref.Missing, URL: "s3://b/k", Segment: "0000004-0001-abc", Offset: &off, Key: &key, Unverified: true, Reason: "no such object"},
		`held      s3://b/k  1.0 KiB, of 2026-01-02T03:04:05Z, pinned by a, b`: {
			Kind: refcheck.Held, URL: "s3://b/k", Size: 1024, Modified: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Pins: []string{"a", "b"}},
	} {
		if got := findingLine(f); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
