package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// runner starts and stops the shared stack around the tests. Where a script
// calls spillway, this binary runs again and never gets here.
type runner struct{ m *testing.M }

func (r runner) Run() int {
	devtest.Main(r.m)
	return 0
}

func TestMain(m *testing.M) {
	testscript.Main(runner{m}, map[string]func(){"spillway": main})
}
