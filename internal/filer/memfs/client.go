package memfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
)

var (
	// ErrKilled is what every call of a killed client returns.
	ErrKilled = errors.New("memfs: client killed")
	// ErrLost is the reply to a call whose effect is late, unless its Fault
	// says otherwise.
	ErrLost = errors.New("memfs: reply lost")
)

// Op is one call of one client.
type Op struct {
	Client string
	// Name is the method of [filer.Store] or [filer.Objects], or "Read" for the first read from
	// what Open returned.
	Name string
	// Path is the path or directory of the call; for Discard the one that the
	// blob was uploaded for.
	Path string
	// N counts this client's calls with this Name and Path, from 1.
	N int
}

// Fault is what happens to one call. The zero Fault is none.
type Fault struct {
	// Delay passes before the effect. A call that is killed or whose context
	// ends meanwhile has no effect.
	Delay time.Duration
	// Before fails the call without any effect. A "Read" gives half of the
	// bytes that were asked for first, as a dropped connection does.
	Before error
	// After is returned instead of the result, once the effect has been had: a
	// lost reply.
	After error
	// Late, if positive, makes the call return After ([ErrLost] when nil) at
	// once and have its effect only so much later, as a request delayed in the
	// network does. Killing the client does not stop it.
	Late time.Duration
	// Hold passes after the effect, before the call returns.
	Hold time.Duration
}

// Hook decides about a call before it happens. It may be called concurrently.
type Hook func(Op) Fault

// Client is a [filer.Store] for one actor: a worker that can be killed without
// its fellows. Waits use the time package and so run in virtual time in a
// testing/synctest bubble.
type Client struct {
	fs     *FS
	name   string
	hook   Hook
	killed chan struct{}

	mu     sync.Mutex
	counts map[Op]int
	dead   bool
}

var _ filer.Store = (*Client)(nil)

// Kill makes every later call, and those that wait for their effect or their
// return, fail with [ErrKilled].
func (c *Client) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead {
		c.dead = true
		close(c.killed)
	}
}

// Create implements [filer.Store].
func (c *Client) Create(ctx context.Context, path string, f filer.File) error {
	if err := filer.CheckWrite(path, f); err != nil {
		return fmt.Errorf("create %q: %w", path, err)
	}
	f = clone(f)
	return c.call(ctx, "Create", path, func() error { return c.fs.create(path, f) })
}

// Update implements [filer.Store].
func (c *Client) Update(ctx context.Context, path, expect string, f filer.File) error {
	if err := filer.CheckWrite(path, f); err != nil {
		return fmt.Errorf("update %q: %w", path, err)
	}
	if expect == "" {
		return fmt.Errorf("update %s: %w: no ID to compare with", path, filer.ErrInvalid)
	}
	f = clone(f)
	return c.call(ctx, "Update", path, func() error { return c.fs.update(path, expect, f) })
}

// Lookup implements [filer.Store].
func (c *Client) Lookup(ctx context.Context, path string) (filer.Entry, error) {
	if err := filer.CheckPath(path); err != nil {
		return filer.Entry{}, fmt.Errorf("look up %q: %w", path, err)
	}
	return result(ctx, c, Op{Name: "Lookup", Path: path}, func() (filer.Entry, error) { return c.fs.lookup(path) })
}

// List implements [filer.Store].
func (c *Client) List(ctx context.Context, dir, after string, limit int) ([]filer.Entry, error) {
	if err := filer.CheckPath(dir); err != nil {
		return nil, fmt.Errorf("list %q: %w", dir, err)
	}
	return result(ctx, c, Op{Name: "List", Path: dir}, func() ([]filer.Entry, error) { return c.fs.list(dir, after, limit), nil })
}

// Delete implements [filer.Store].
func (c *Client) Delete(ctx context.Context, path, expect string) error {
	if err := filer.CheckPath(path); err != nil {
		return fmt.Errorf("delete %q: %w", path, err)
	}
	return c.call(ctx, "Delete", path, func() error { return c.fs.remove(path, expect) })
}

// DeleteTree implements [filer.Store].
func (c *Client) DeleteTree(ctx context.Context, dir string) error {
	if err := filer.CheckPath(dir); err != nil {
		return fmt.Errorf("delete tree %q: %w", dir, err)
	}
	return c.call(ctx, "DeleteTree", dir, func() error { c.fs.removeTree(dir); return nil })
}

// Upload implements [filer.Store].
func (c *Client) Upload(ctx context.Context, path string, data []byte) (filer.Blob, error) {
	return c.UploadAs(ctx, path, data, filer.Storage{})
}

// UploadAs implements [filer.Store]. To the hook it is an "Upload".
func (c *Client) UploadAs(ctx context.Context, path string, data []byte, how filer.Storage) (filer.Blob, error) {
	if err := errors.Join(filer.CheckPath(path), how.Check()); err != nil {
		return filer.Blob{}, fmt.Errorf("upload for %q: %w", path, err)
	}
	if len(data) == 0 || len(data) > filer.MaxBlob {
		return filer.Blob{}, fmt.Errorf("upload for %s: %w: blob of %d bytes", path, filer.ErrInvalid, len(data))
	}
	data = slices.Clone(data)
	return result(ctx, c, Op{Name: "Upload", Path: path}, func() (filer.Blob, error) { return c.fs.upload(path, data, how) })
}

// Expiries implements [filer.Store].
func (c *Client) Expiries(ctx context.Context, dir string) ([]filer.Expiry, error) {
	if err := filer.CheckPath(dir); err != nil {
		return nil, fmt.Errorf("rules of %q: %w", dir, err)
	}
	return result(ctx, c, Op{Name: "Expiries", Path: dir}, func() ([]filer.Expiry, error) { return c.fs.expiring(dir), nil })
}

// Discard implements [filer.Store].
func (c *Client) Discard(ctx context.Context, b filer.Blob) error {
	return c.call(ctx, "Discard", c.fs.blobPath(b.ID), func() error { return c.fs.discard(b.ID) })
}

// Open implements [filer.Store].
func (c *Client) Open(ctx context.Context, e filer.Entry, off int64) (io.ReadCloser, error) {
	if off < 0 || e.IsDir {
		return nil, fmt.Errorf("open %q at %d: %w", e.Path, off, filer.ErrInvalid)
	}
	r, err := result(ctx, c, Op{Name: "Open", Path: e.Path}, func() (io.Reader, error) { return c.fs.read(e, off) })
	if err != nil {
		return nil, err
	}
	return &reader{ctx: ctx, c: c, path: e.Path, r: r}, nil
}

// result is call for a method that returns a value. The value of a late effect
// goes nowhere.
func result[T any](ctx context.Context, c *Client, op Op, effect func() (T, error)) (T, error) {
	var v, zero T
	err := c.call(ctx, op.Name, op.Path, func() (err error) { v, err = effect(); return err })
	if err != nil {
		return zero, err
	}
	return v, nil
}

// call runs an effect with the fault that the hook wants.
func (c *Client) call(ctx context.Context, name, path string, effect func() error) error {
	f := c.fault(name, path)
	if err := c.wait(ctx, f.Delay); err != nil {
		return fmt.Errorf("%s %s: %w", name, path, err)
	}
	if f.Before != nil {
		return f.Before
	}
	if f.Late > 0 {
		c.fs.late.Go(func() {
			<-time.After(f.Late)
			_ = effect() // nobody hears the reply
		})
		if f.After == nil {
			return ErrLost
		}
		return f.After
	}
	err := effect()
	if waitErr := c.wait(ctx, f.Hold); waitErr != nil {
		return fmt.Errorf("%s %s: %w", name, path, waitErr)
	}
	if f.After != nil {
		return f.After
	}
	return err
}

func (c *Client) fault(name, path string) Fault {
	if c.hook == nil {
		return Fault{}
	}
	op := Op{Client: c.name, Name: name, Path: path}
	c.mu.Lock()
	c.counts[op]++
	n := c.counts[op]
	c.mu.Unlock()
	op.N = n
	return c.hook(op)
}

// wait sleeps for d, or tells why the call ends before. It looks at the context
// and at Kill even when there is nothing to wait for.
func (c *Client) wait(ctx context.Context, d time.Duration) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-c.killed:
		}
	}
	select {
	case <-c.killed:
		return ErrKilled
	default:
		return ctx.Err()
	}
}

// reader streams bytes as a connection does: it breaks when the client is
// killed or the context ends.
type reader struct {
	ctx  context.Context
	c    *Client
	path string
	r    io.Reader
	err  error
	read bool
}

func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	var f Fault
	if !r.read {
		r.read = true
		f = r.c.fault("Read", r.path)
	}
	if r.err = r.c.wait(r.ctx, f.Delay); r.err != nil {
		return 0, r.err
	}
	if f.Before != nil {
		r.err = f.Before
		n, _ := r.r.Read(p[:len(p)/2])
		return n, r.err
	}
	return r.r.Read(p)
}

func (r *reader) Close() error {
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	return nil
}
