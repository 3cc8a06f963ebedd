package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc/status"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
)

// defaultStack is where `spillway dev` keeps its stack, and where the other
// commands look when they are told nothing.
const defaultStack = ".spillway"

// defaultBucket is used where neither a setting nor a stack names one.
const defaultBucket = "spillway"

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
	c.locateCatalog(info)
	fill(&c.S3, info.S3.URL)
	fill(&c.Bucket, info.Bucket)
	if c.S3 == info.S3.URL && c.S3AccessKey == "" && c.S3SecretKey == "" { // its keys are for no other endpoint
		c.S3AccessKey, c.S3SecretKey = info.S3.AccessKey, info.S3.SecretKey
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
	case err == nil:
		return nc, nil
	case errors.Is(err, nats.ErrAuthorization):
		err = fmt.Errorf("it refuses these credentials: %w", err)
	case functions.Unavailable(err), errors.Is(err, nats.ErrMaxConnectionsExceeded), errors.Is(err, io.EOF):
		return nil, &functions.RetryError{Err: fmt.Errorf("NATS server %s: %w", shown(c.NATS), err)}
	}
	return nil, &functions.ConfigError{Err: fmt.Errorf("NATS server %s: %w", shown(c.NATS), err)}
}

// shown is a list of server URLs without the passwords in them.
func shown(urls string) string {
	list := strings.Split(urls, ",")
	for i, text := range list {
		if u, err := url.Parse(strings.TrimSpace(text)); err == nil {
			list[i] = u.Redacted()
		}
	}
	return strings.Join(list, ",")
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
	dial, cancel := context.WithTimeout(ctx, min(c.Timeout, 15*time.Second))
	defer cancel()
	f, err := seaweed.Dial(dial, conf)
	if err != nil {
		err = fmt.Errorf("filer %s: %w", c.Filer, err)
		if _, answered := status.FromError(err); answered || errors.Is(err, context.DeadlineExceeded) {
			return nil, nil, &functions.RetryError{Err: err}
		}
		return nil, nil, &functions.ConfigError{Err: err}
	}
	store := segment.NewStore(f, cmp.Or(c.Bucket, defaultBucket))
	store.Logger = a.log
	return store, func() { f.Close() }, nil //nolint:errcheck // nothing is pending
}

// s3 is what talks to the S3 endpoint of the settings.
func (a *app) s3(ctx context.Context) (*object.Store, error) {
	c := a.cfg
	store, err := object.Open(ctx, object.Config{
		Endpoint: c.S3, Region: c.S3Region, AccessKey: c.S3AccessKey, SecretKey: c.S3SecretKey, Logger: a.log,
	})
	if err != nil {
		return nil, &functions.ConfigError{Err: fmt.Errorf("s3: %w", err)}
	}
	return store, nil
}

// objects is the same for a producer.
func (a *app) objects(ctx context.Context) (*client.Objects, error) {
	c := a.cfg
	objects, err := client.OpenObjects(ctx, client.ObjectsConfig{
		Endpoint: c.S3, Region: c.S3Region, AccessKey: c.S3AccessKey, SecretKey: c.S3SecretKey, Bucket: c.S3Bucket,
	})
	if err != nil {
		return nil, &functions.ConfigError{Err: fmt.Errorf("s3: %w", err)}
	}
	return objects, nil
}

// uploads is where values go that are too large for a lane; nil: nowhere.
func (a *app) uploads(ctx context.Context) (*client.Objects, error) {
	if a.cfg.S3Bucket == "" {
		return nil, nil
	}
	return a.objects(ctx)
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

// connect reaches both servers, for a command that gives up when they go away.
func (a *app) connect(ctx context.Context) (*env, error) {
	store, closeFiler, err := a.filer(ctx)
	if err != nil {
		return nil, err
	}
	return a.join(store, closeFiler)
}

// attach reaches both servers, for a function that waits for them when they go
// away.
func (a *app) attach(ctx context.Context) (*env, error) {
	if err := a.locate(); err != nil {
		return nil, err
	}
	store, closeFiler, err := a.connectFiler(ctx)
	if err != nil {
		return nil, err
	}
	return a.join(store, closeFiler)
}

// join adds NATS to a filer, which it closes when that fails.
func (a *app) join(store *segment.Store, closeFiler func()) (*env, error) {
	nc, err := a.connectNATS()
	if err != nil {
		closeFiler()
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(a.cfg.Timeout))
	if err != nil {
		closeFiler()
		nc.Close()
		return nil, &functions.ConfigError{Err: err}
	}
	return &env{nc, js, store, func() { nc.Close(); closeFiler() }}, nil
}

// filer reaches the filer alone, for a command that gives up when it goes away.
func (a *app) filer(ctx context.Context) (*segment.Store, func(), error) {
	if err := a.locate(); err != nil {
		return nil, nil, err
	}
	store, done, err := a.connectFiler(ctx)
	if err == nil {
		store.Filer = &patientFiler{Store: store.Filer, name: a.cfg.Filer, limit: a.cfg.Timeout, giveUp: a.giveUp}
	}
	return store, done, err
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
