package seaweed_test

import (
	"testing"

	"github.com/spillway-mq/spillway/internal/filer/filertest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

func TestRemovals(t *testing.T) {
	c := dial(t, seaweed.Config{})
	filertest.RunRemovals(t, c, c, s3Gateway(t))
}
