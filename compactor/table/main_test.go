package table_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// settings are those of the real catalog.
func settings(t testing.TB) table.Settings {
	t.Helper()
	info := devtest.Weed(t).Info
	return table.Settings{
		URL: info.Catalog.URL, Warehouse: info.Catalog.Warehouse,
		AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey,
	}
}

// connect gives the real catalog, once its table bucket is there: weed makes it
// after its servers answer.
func connect(t testing.TB) *table.REST {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		c, err := table.Connect(ctx, settings(t))
		var missing *table.ConfigError
		switch {
		case err == nil:
			t.Cleanup(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
			return c
		case !errors.As(err, &missing) || ctx.Err() != nil:
			t.Fatal(err)
		}
		<-tick.C
	}
}

// dial gives the real filer.
func dial(t testing.TB) *seaweed.Client {
	t.Helper()
	c, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: devtest.Weed(t).Info.Filer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}
