package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-mq/spillway/functions"
)

// wellbeing is nil as long as a function gets on.
type wellbeing interface{ Err() error }

// serveMetrics serves /metrics and /healthz at addr, if there is one, until stop
// is called. The address in use is logged: port 0 chooses one.
func (a *app) serveMetrics(addr string, reg *prometheus.Registry, health wellbeing) (stop func(), err error) {
	if addr == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, &functions.ConfigError{Err: fmt.Errorf("--metrics %s: %w", addr, err)}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.Handle("/healthz", healthz(health))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	a.log.Info("serving metrics", "url", "http://"+l.Addr().String()+"/metrics")
	go srv.Serve(l)                        //nolint:errcheck // ends with Close
	return func() { _ = srv.Close() }, nil // the process ends
}

// healthz answers 200, or 503 with one line that says what is wrong.
func healthz(health wellbeing) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := health.Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
}
