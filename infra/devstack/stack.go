package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	defaultBucket = "spillway"
	weedPID       = "weed.pid"
	natsPID       = "nats.pid"

	// startLimit bounds a start whose context has no deadline.
	startLimit = 90 * time.Second

	// portTries is how often a start chooses other ports when one of those that
	// it chose was taken by somebody else in between.
	portTries = 3
)

// Config is what a stack is to be. The zero value of a field means its default.
type Config struct {
	Dir    string       // the folder; made if missing
	Ports  Ports        // chosen, then those of the folder
	Weed   string       // path of weed; SPILLWAY_WEED, PATH, or what `make weed` built
	Bucket string       // the bucket that will exist; the folder's, at first "spillway"
	Logger *slog.Logger // discard

	// SyncAlways has JetStream sync every message to disk before it acknowledges
	// it. Without it, a power failure can cost the last two minutes.
	SyncAlways bool

	// NATSChild, if set, is a command that runs the nats-server in a process of
	// its own, so that it can be killed. It gets one more argument, which it must
	// hand to [RunNATS]; at SIGTERM it must end RunNATS's context.
	NATSChild []string

	NoNATS bool // run no nats-server
	NoWeed bool // run no SeaweedFS
}

// Stack is a running stack. Its methods may be called concurrently.
type Stack struct {
	Info Info // as in stack.json; does not change

	cfg       Config
	log       *slog.Logger
	lock      *os.File
	weedBin   weedBinary
	weedExtra []string // more arguments for weed, for tests
	died      chan error

	mu   sync.Mutex
	weed *weed    // nil: none
	nats natsProc // nil: none
}

// Start runs a stack and returns when it can be written to: within 5 s on a new
// folder, 16 s on one with data. Typed errors: [*LockedError], [*VersionError],
// [*CorruptError], [*WeedNotFoundError], [*PortTakenError], [*DiedError]. After an error nothing
// runs any more. The context bounds the start only; [Stack.Close] stops the
// stack.
func Start(ctx context.Context, cfg Config) (*Stack, error) {
	return start(ctx, cfg, nil)
}

func start(ctx context.Context, cfg Config, weedExtra []string) (*Stack, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startLimit)
		defer cancel()
	}
	s, err := prepare(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s.weedExtra = weedExtra
	if err := s.startOnPorts(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), weedGrace)
		defer cancel()
		return nil, errors.Join(err, s.Close(stopCtx))
	}
	return s, nil
}

// prepare checks everything that can be checked and takes the folder's lock.
func prepare(ctx context.Context, cfg Config) (_ *Stack, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("the stack's folder: %w", err)
	}
	if strings.Contains(cfg.Dir, ",") {
		return nil, fmt.Errorf("the stack's folder %s has a comma in its path, which SeaweedFS takes for a list", cfg.Dir)
	}
	s := &Stack{cfg: cfg, log: cfg.Logger, died: make(chan error, 1)}
	if !cfg.NoWeed {
		if s.weedBin, err = findWeed(ctx, cfg.Weed); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the stack's folder: %w", err)
	}
	if s.lock, err = lockDir(cfg.Dir, filepath.Join(cfg.Dir, lockFile)); err != nil {
		return nil, err
	}
	if err := s.adopt(ctx); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	return s, nil
}

// adopt makes the folder ours: reads what a former run left, clears up after one
// that was killed, and makes what is missing.
func (s *Stack) adopt(ctx context.Context) error {
	dir := s.cfg.Dir
	prior, err := readInfo(dir)
	if none := (*NoStackError)(nil); err != nil && !errors.As(err, &none) {
		return err
	}
	for _, err := range []error{
		reapOrphan(ctx, filepath.Join(dir, weedPID), weedDir(dir)),
		reapOrphan(ctx, filepath.Join(dir, natsPID), filepath.Join(dir, "nats")),
		os.MkdirAll(filepath.Join(dir, "logs"), 0o755),
		os.MkdirAll(weedDir(dir), 0o755),
	} {
		if err != nil {
			return err
		}
	}
	key, err := s3Keys(dir)
	if err != nil {
		return err
	}
	s.Info = Info{
		Format: FormatVersion, PID: os.Getpid(), Dir: dir, Started: time.Now().UTC(),
		S3:     S3{AccessKey: key.AccessKey, SecretKey: key.SecretKey},
		Ports:  s.cfg.Ports.or(prior.Ports),
		Bucket: firstOf(s.cfg.Bucket, prior.Bucket, defaultBucket), WeedVersion: s.weedBin.version,
	}
	if !s.cfg.NoNATS {
		s.Info.NATSVersion = server.VERSION
	}
	return s.Info.Ports.validate()
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// startOnPorts starts everything. Ports that were given, or that the folder has
// always had, are used or the start fails, for others know them. Ports that we
// chose just now are chosen again when somebody else was quicker to take one.
func (s *Stack) startOnPorts(ctx context.Context) error {
	wanted := s.Info.Ports
	for try := 1; ; try++ {
		ports, err := wanted.choose()
		if err != nil {
			return err
		}
		s.Info.Ports = ports
		err = s.startAll(ctx)
		if err == nil || ports == wanted || try == portTries || !portTaken(err) {
			return err
		}
		s.log.Warn("a port was taken meanwhile, choosing others", "error", err)
		if err := s.stopAll(ctx); err != nil {
			return err
		}
	}
}

// portTaken tells whether the start failed for a port: as we saw it, or as one of
// the servers did, a moment later.
func portTaken(err error) bool {
	if taken := (*PortTakenError)(nil); errors.As(err, &taken) {
		return true
	}
	for _, words := range []string{"address already in use", "is not available on", weedMoved} {
		if strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// startAll starts everything on the ports in Info and keeps stack.json up to
// date.
func (s *Stack) startAll(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.Info.Ports
	if !s.cfg.NoNATS {
		s.Info.NATS = "nats://" + hostPort(p.NATS)
	}
	if !s.cfg.NoWeed {
		s.Info.Filer, s.Info.Master, s.Info.S3.URL = hostPort(p.Filer), hostPort(p.Master), "http://"+hostPort(p.S3)
		s.Info.Catalog = Catalog{URL: "http://" + hostPort(p.Iceberg), Warehouse: warehouse}
	}
	s.Info.State = Starting
	if err := writeInfo(s.Info.Dir, s.Info); err != nil {
		return err
	}
	var err error
	if !s.cfg.NoNATS {
		if s.nats, err = s.startNATS(ctx); err != nil {
			return err
		}
	}
	if !s.cfg.NoWeed {
		if s.weed, err = s.startWeed(ctx); err != nil {
			return err
		}
	}
	s.Info.State = Ready
	return writeInfo(s.Info.Dir, s.Info)
}

// childDied is told of a child that ended by itself.
func (s *Stack) childDied(err *DiedError) {
	s.log.Error("a process of the stack died", "process", err.Name, "error", err.Err, "log", err.Log)
	select {
	case s.died <- err:
	default: // one is enough
	}
}

// Died gives a [*DiedError] when weed, or the nats-server if it has a process of
// its own, ends without having been told to.
func (s *Stack) Died() <-chan error { return s.died }

// Close stops everything and keeps the data. What has not stopped when the
// context ends is killed, which SeaweedFS and JetStream survive. Closing again
// does nothing.
func (s *Stack) Close(ctx context.Context) error {
	err := s.stopAll(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return err
	}
	s.Info.State = Stopped
	err = errors.Join(err, writeInfo(s.Info.Dir, s.Info), s.lock.Close())
	s.lock = nil
	return err
}

func (s *Stack) stopAll(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.stopWeed(ctx), s.stopNATS(ctx))
}
