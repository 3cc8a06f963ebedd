package table_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/compactor/table"
)

// TestConnectErrors tells apart what somebody has to correct and what passes.
func TestConnectErrors(t *testing.T) {
	connect(t) // the warehouse is there
	good := settings(t)
	page := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>a web server</html>"))
	})
	nothing := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	broken := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	busy := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	for name, c := range map[string]struct {
		change func(*table.Settings)
		want   func(error) bool
	}{
		"secret":         {func(s *table.Settings) { s.SecretKey = "wrong" }, is[*table.ConfigError]},
		"key":            {func(s *table.Settings) { s.AccessKey = "nobody" }, is[*table.ConfigError]},
		"half a key":     {func(s *table.Settings) { s.SecretKey = "" }, is[*table.ConfigError]},
		"no keys":        {func(s *table.Settings) { s.AccessKey, s.SecretKey = "", "" }, is[*table.ConfigError]},
		"warehouse":      {func(s *table.Settings) { s.Warehouse = "no-such-bucket" }, is[*table.ConfigError]},
		"warehouse name": {func(s *table.Settings) { s.Warehouse = "s3://x" }, is[*table.ConfigError]},
		"no warehouse":   {func(s *table.Settings) { s.Warehouse = "" }, is[*table.ConfigError]},
		"no URL":         {func(s *table.Settings) { s.URL = "" }, is[*table.ConfigError]},
		"scheme":         {func(s *table.Settings) { s.URL = "ftp://127.0.0.1" }, is[*table.ConfigError]},
		"web page":       {func(s *table.Settings) { s.URL = page }, is[*table.ConfigError]},
		"not found":      {func(s *table.Settings) { s.URL = nothing }, is[*table.ConfigError]},
		"502":            {func(s *table.Settings) { s.URL = broken }, is[*table.UnavailableError]},
		"503":            {func(s *table.Settings) { s.URL = busy }, is[*table.UnavailableError]},
		"nobody there":   {func(s *table.Settings) { s.URL = freeAddress(t) }, is[*table.UnavailableError]},
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			c.change(&s)
			_, err := table.Connect(t.Context(), s)
			if err == nil || !c.want(err) {
				t.Fatalf("got %T %v", err, err)
			}
			t.Log(err)
			if strings.Contains(err.Error(), good.SecretKey) {
				t.Error("the error has the secret key in it")
			}
		})
	}
}

func serve(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

// freeAddress is a URL where nobody listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String()
}
