package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// defaultStack is where `spillway dev` keeps its stack, and where the other
// commands look when they are told nothing.
const defaultStack = ".spillway"

// locate fills in where the servers are from the stack's folder. Explicit
// settings win.
func (a *app) locate() error {
	c := &a.cfg
	dir := c.Stack
	if dir == "" && c.NATS == "" && c.Filer == "" {
		dir = defaultStack
	}
	if dir == "" {
		return nil
	}
	info, err := devstack.Load(dir)
	var none *devstack.NoStackError
	var stale *devstack.NotRunningError
	switch {
	case errors.As(err, &none) && c.Stack == "":
		return &functions.ConfigError{Err: errors.New("which servers? Give --nats and --filer, or --stack with the folder of a running `spillway dev`")}
	case errors.As(err, &stale):
		return &functions.RetryError{Err: err}
	case err != nil:
		return &functions.ConfigError{Err: err}
	}
	fill := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	fill(&c.NATS, info.NATS)
	fill(&c.Filer, info.Filer)
	fill(&c.S3, info.S3.URL)
	if info.Bucket != "" && c.Bucket == "spillway" {
		c.Bucket = info.Bucket
	}
	return nil
}

// connectNATS connects to the NATS server, which must be there now; later it
// may go away and come back.
func (a *app) connectNATS() (*nats.Conn, error) {
	c := a.cfg
	if c.NATS == "" {
		return nil, &functions.ConfigError{Err: errors.New("no NATS server is named: give --nats")}
	}
	opts := []nats.Option{nats.Name("spillway"), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond), nats.Timeout(5 * time.Second)}
	if c.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(c.NATSCreds))
	}
	if c.NATSNKey != "" {
		o, err := nats.NkeyOptionFromSeed(c.NATSNKey)
		if err != nil {
			return nil, &functions.ConfigError{Err: fmt.Errorf("nats-nkey: %w", err)}
		}
		opts = append(opts, o)
	}
	if c.NATSUser != "" {
		opts = append(opts, nats.UserInfo(c.NATSUser, c.NATSPassword))
	}
	if c.NATSCA != "" {
		opts = append(opts, nats.RootCAs(c.NATSCA))
	}
	if c.NATSCert != "" {
		opts = append(opts, nats.ClientCert(c.NATSCert, c.NATSKey))
	}
	nc, err := nats.Connect(c.NATS, opts...)
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return nil, &functions.ConfigError{Err: fmt.Errorf("NATS server %s refuses these credentials: %w", c.NATS, err)}
	case err != nil:
		return nil, &functions.RetryError{Err: fmt.Errorf("NATS server %s: %w", c.NATS, err)}
	}
	return nc, nil
}

// connectFiler connects to the filer and returns the store in its bucket.
func (a *app) connectFiler(ctx context.Context) (*segment.Store, func(), error) {
	c := a.cfg
	if c.Filer == "" {
		return nil, nil, &functions.ConfigError{Err: errors.New("no filer is named: give --filer")}
	}
	conf := seaweed.Config{Filer: c.Filer, GRPC: c.FilerGRPC, Logger: a.log}
	var err error
	if c.FilerCA != "" || c.FilerCert != "" {
		if conf.TLS, err = tlsConfig(c.FilerCA, c.FilerCert, c.FilerKey); err != nil {
			return nil, nil, &functions.ConfigError{Err: err}
		}
	}
	if c.FilerHTTPS {
		if conf.HTTPS, err = tlsConfig(c.FilerCA, c.FilerCert, c.FilerKey); err != nil {
			return nil, nil, &functions.ConfigError{Err: err}
		}
	}
	dial, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	f, err := seaweed.Dial(dial, conf)
	if err != nil {
		return nil, nil, &functions.RetryError{Err: fmt.Errorf("filer %s: %w", c.Filer, err)}
	}
	store := segment.NewStore(f, c.Bucket)
	store.Logger = a.log
	return store, func() { f.Close() }, nil //nolint:errcheck // nothing is pending
}

func tlsConfig(ca, cert, key string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// env is a connected call.
type env struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	store *segment.Store
	close func()
}

// connect reaches both servers.
func (a *app) connect(ctx context.Context) (*env, error) {
	store, closeFiler, err := a.filer(ctx)
	if err != nil {
		return nil, err
	}
	nc, err := a.connectNATS()
	if err != nil {
		closeFiler()
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		closeFiler()
		nc.Close()
		return nil, &functions.ConfigError{Err: err}
	}
	return &env{nc, js, store, func() { nc.Close(); closeFiler() }}, nil
}

// filer reaches the filer alone.
func (a *app) filer(ctx context.Context) (*segment.Store, func(), error) {
	if err := a.locate(); err != nil {
		return nil, nil, err
	}
	return a.connectFiler(ctx)
}

// selfCheck refuses a filer on which two creators of one name can both win:
// nothing here would be safe on it.
func selfCheck(ctx context.Context, s *segment.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := filer.SelfCheck(ctx, s.Filer, path.Join(s.Root(), ".spillway-check"))
	var race *filer.RaceError
	switch {
	case errors.As(err, &race):
		return &functions.ConfigError{Err: err}
	case err != nil:
		return &functions.RetryError{Err: fmt.Errorf("check of the filer: %w", err)}
	}
	return nil
}

// explain gives errors of the store their exit code.
func explain(err error) error {
	var name *topic.NameError
	switch {
	case err == nil, functions.ExitCode(err) != functions.ExitBug:
		return err
	case errors.As(err, &name), errors.Is(err, segment.ErrNoTopic), errors.Is(err, segment.ErrTopicExists), errors.Is(err, segment.ErrForeignPosition):
		return &functions.UsageError{Err: err}
	case errors.Is(err, segment.ErrDeleting):
		return &functions.RetryError{Err: err}
	case errors.Is(err, filer.ErrCorrupt), errors.Is(err, filer.ErrNotFound), filer.Definite(err):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return &functions.RetryError{Err: err}
	}
	return err
}
