// Package seaweed is the real filer: a [filer.Store] on SeaweedFS. Metadata goes
// to the filer over gRPC; bytes go straight to and from volume servers over
// HTTP, which is about three times as fast as through the filer.
//
// Of SeaweedFS it imports the protocol buffers of the filer and the master only,
// and uses their bare gRPC stubs: the helpers beside them log through a global
// logger that writes files into the temporary folder.
package seaweed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/spillway-mq/spillway/internal/filer"
)

// Config says where a filer is and how to talk to it.
type Config struct {
	// Filer is host:port of the filer's HTTP port.
	Filer string
	// GRPC is host:port of its gRPC port. Empty: the HTTP port plus 10000.
	GRPC string
	// TLS is used for gRPC, nil for plain text.
	TLS *tls.Config
	// HTTPS is used to talk HTTP to volume servers and the filer, nil for
	// plain text. SeaweedFS secures the two separately.
	HTTPS *tls.Config
	// Timeout bounds a metadata call, an upload, and the wait for the first
	// byte of a read. Zero: 30 s.
	Timeout time.Duration
	// Collection and Replication override what the filer's storage rules say
	// for uploads. Empty: the rules decide.
	Collection  string
	Replication string
	// PublicURL reaches volume servers by their public addresses, for clients
	// outside of the cluster's network.
	PublicURL bool
	// Logger is nil for none.
	Logger *slog.Logger
}

const (
	defaultTimeout = 30 * time.Second
	// maxMessage bounds a gRPC message. An entry and the event that echoes it
	// are below it, whatever they hold.
	maxMessage = 64 << 20
	// The filer refuses pings that come more often than every 20 s.
	pingInterval = 30 * time.Second
	pingTimeout  = 10 * time.Second
	// maxReconnect bounds the pause between attempts to connect, so that a
	// filer that restarts is found again soon.
	maxReconnect = 2 * time.Second
	grpcOffset   = 10000
	idleConns    = 64
)

// Client is a connection to a filer and its volume servers. It may be used
// concurrently and reconnects by itself.
type Client struct {
	cfg   Config
	conn  *grpc.ClientConn
	rpc   filer_pb.SeaweedFilerClient
	http  *http.Client
	where *locations
	log   *slog.Logger
}

var _ filer.Store = (*Client)(nil)

// Dial connects to a filer and checks that it answers. A filer that encrypts
// what it stores is refused, since bytes that go straight to volume servers
// would not be encrypted.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("dial filer: %w", err)
	}
	conn, err := connect(cfg)
	if err != nil {
		return nil, fmt.Errorf("dial filer %s: %w", cfg.GRPC, err)
	}
	c := &Client{cfg: cfg, conn: conn, rpc: filer_pb.NewSeaweedFilerClient(conn), http: newHTTP(cfg), log: cfg.Logger}
	c.where = newLocations(c.rpc, cfg.PublicURL)
	conf, err := c.configuration(ctx)
	switch {
	case err == nil && conf.Cipher:
		err = errors.New("it encrypts volume data, which direct uploads would bypass")
	case err == nil && conf.DirBuckets != "/buckets":
		err = fmt.Errorf("it keeps buckets in %q instead of /buckets", conf.DirBuckets)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dial filer %s: %w", cfg.GRPC, err), c.Close())
	}
	return c, nil
}

func (cfg Config) withDefaults() (Config, error) {
	host, port, err := net.SplitHostPort(cfg.Filer)
	if err != nil || host == "" {
		return cfg, fmt.Errorf("filer address %q is not host:port", cfg.Filer)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return cfg, fmt.Errorf("filer address %q has no valid port", cfg.Filer)
	}
	if cfg.GRPC == "" {
		if n+grpcOffset > 65535 {
			return cfg, fmt.Errorf("filer port %d leaves no room for its gRPC port, which must be given", n)
		}
		cfg.GRPC = net.JoinHostPort(host, strconv.Itoa(n+grpcOffset))
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, nil
}

func connect(cfg Config) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	wait := backoff.DefaultConfig
	wait.BaseDelay, wait.MaxDelay = 100*time.Millisecond, maxReconnect
	return grpc.NewClient(cfg.GRPC,
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: pingTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingInterval, Timeout: pingTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	)
}

func newHTTP(cfg Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: pingTimeout, KeepAlive: pingInterval}).DialContext,
			TLSClientConfig:       cfg.HTTPS,
			MaxIdleConnsPerHost:   idleConns,
			IdleConnTimeout:       90 * time.Second,
			ResponseHeaderTimeout: cfg.Timeout,
			DisableCompression:    true, // ranges count plain bytes
			WriteBufferSize:       64 << 10,
			ReadBufferSize:        64 << 10,
		},
	}
}

// Close ends the connections. Calls that still run fail.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	if err := c.conn.Close(); err != nil {
		return fmt.Errorf("close filer connection: %w", err)
	}
	return nil
}

// Version returns the filer's version as it states it, such as "30GB 4.53".
func (c *Client) Version(ctx context.Context) (string, error) {
	conf, err := c.configuration(ctx)
	if err != nil {
		return "", fmt.Errorf("filer version: %w", err)
	}
	return strings.TrimSpace(conf.Version), nil
}

// Ping tells whether the filer answers. It may not accept writes yet: see
// [Client.Wait].
func (c *Client) Ping(ctx context.Context) error {
	if _, err := c.configuration(ctx); err != nil {
		return fmt.Errorf("ping filer: %w", err)
	}
	return nil
}

func (c *Client) configuration(ctx context.Context) (*filer_pb.GetFilerConfigurationResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	conf, err := c.rpc.GetFilerConfiguration(ctx, &filer_pb.GetFilerConfigurationRequest{})
	if err != nil {
		return nil, callError(ctx, err)
	}
	return conf, nil
}

const (
	waitInterval = 200 * time.Millisecond
	waitTry      = 5 * time.Second
)

// Wait returns once the filer takes real writes below dir: bytes on a volume
// server, a file that names them, and its deletion. After a restart a filer
// answers up to 15 s before that. It returns early when a write can never
// succeed, and otherwise with the last failure when ctx ends.
func (c *Client) Wait(ctx context.Context, dir string) error {
	t := time.NewTicker(waitInterval)
	defer t.Stop()
	for {
		err := c.tryWrite(ctx, dir+"/.ready-"+filer.Token(10))
		if err == nil || filer.Definite(err) {
			return err
		}
		c.log.Debug("filer does not take writes yet", "filer", c.cfg.Filer, "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for filer: %w", errors.Join(ctx.Err(), err))
		case <-t.C:
		}
	}
}

func (c *Client) tryWrite(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, waitTry)
	defer cancel()
	b, err := c.Upload(ctx, path, []byte("ready"))
	if err != nil {
		return err
	}
	err = c.Create(ctx, path, filer.File{ID: filer.NewID(), Blobs: []filer.Blob{b}})
	return errors.Join(err, c.Delete(ctx, path, ""))
}
