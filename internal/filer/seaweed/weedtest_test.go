package seaweed_test

import (
	"testing"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// weedFiler is the address of a real filer, which the tests of this package
// share.
func weedFiler(tb testing.TB) string { return devtest.Weed(tb).Info.Filer }

// dial connects to the filer of the configuration, or the real one.
func dial(tb testing.TB, cfg seaweed.Config) *seaweed.Client {
	tb.Helper()
	if cfg.Filer == "" {
		cfg.Filer = weedFiler(tb)
	}
	c, err := seaweed.Dial(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}
