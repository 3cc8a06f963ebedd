package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestAllowance: what a call names is checked as a whole before it begins. What is
// no name is told elsewhere, and without a topic nothing is known.
func TestAllowance(t *testing.T) {
	some := allowance{&topic.Definition{Name: "t", Buckets: []string{"films", "photos/2025/", "photos/2026/"}}}
	for name, c := range map[string]struct {
		give allowance
		o    submitOptions
		says string // empty: allowed
	}{
		"unknown":          {allowance{}, submitOptions{urls: []string{"s3://any/k"}}, ""},
		"unknown below":    {allowance{}, submitOptions{prefix: "s3://any/k"}, ""},
		"no list":          {allowance{&topic.Definition{Name: "t"}}, submitOptions{urls: []string{"s3://films/k"}}, "topic set t --allow films"},
		"allowed":          {some, submitOptions{urls: []string{"s3://films/k", "s3://photos/2026/k"}}, ""},
		"the second":       {some, submitOptions{urls: []string{"s3://films/k", "s3://photos/2024/k"}}, "s3://photos/2024/k"},
		"no name":          {some, submitOptions{urls: []string{"s3://films/../k", "https://h/k", ""}}, ""},
		"a bucket":         {some, submitOptions{prefix: "s3://films"}, ""},
		"all below":        {some, submitOptions{prefix: "s3://photos/2026/a"}, ""},
		"some below":       {some, submitOptions{prefix: "s3://photos/202"}, "only what is below s3://photos/2025/, s3://photos/2026/"},
		"some of a bucket": {some, submitOptions{prefix: "s3://photos"}, "only what is below s3://photos/2025/"},
		"none below":       {some, submitOptions{prefix: "s3://photos/2024/"}, "topic set t --allow photos"},
		"no prefix":        {some, submitOptions{prefix: "photos/2024/"}, ""},
		"a file":           {some, submitOptions{urls: []string{"a.csv"}, bucket: "films", topic: "t"}, ""},
		"a file elsewhere": {some, submitOptions{urls: []string{"s3://films/k", "a.csv"}, bucket: "photos", topic: "t"}, "topic set t --allow photos"},
		"a manifest":       {some, submitOptions{manifest: "-"}, ""},
	} {
		err := c.give.check(c.o)
		if (err == nil) != (c.says == "") || err != nil && (functions.ExitCode(err) != functions.ExitUsage || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestRefuses: a topic is asked for once, and only when a value would be uploaded.
func TestRefuses(t *testing.T) {
	asked, no := 0, errors.New("no")
	o := publishOptions{rejected: func() error { asked++; return no }}
	small, large := make([]byte, 512<<10), make([]byte, 512<<10+1)
	if err := o.refuses(small); err != nil || asked != 0 {
		t.Errorf("error %v, asked %d times", err, asked)
	}
	if err := o.refuses(large); !errors.Is(err, no) || asked != 1 {
		t.Errorf("error %v, asked %d times", err, asked)
	}
	if err := (&publishOptions{}).refuses(large); err != nil { // it is the client that refuses it
		t.Errorf("without a bucket: %v", err)
	}
}

// TestFilerAway: a producer does without a filer that does not answer, and says so.
func TestFilerAway(t *testing.T) {
	var said bytes.Buffer
	a := &app{errs: &said, cfg: config{Filer: "127.0.0.1:1", FilerGRPC: "127.0.0.1:1", Timeout: 1e9}}
	if al := a.allowance(t.Context(), "t"); al.topic != nil || !strings.Contains(said.String(), "for the worker to find out") {
		t.Errorf("%v: %q", al.topic, said.String())
	}
	said.Reset()
	a.cfg.Filer = ""
	if al := a.allowance(t.Context(), "t"); al.topic != nil || said.Len() > 0 {
		t.Errorf("%v: %q", al.topic, said.String())
	}
}
