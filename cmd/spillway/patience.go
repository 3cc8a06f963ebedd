package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/filer"
)

// patientFiler is a filer as a command sees it that somebody waits for. What is
// below retries for as long as its context lives, which is right for a worker;
// this ends the command's context when nothing was answered for a while. It
// also marks errors that are no answer, so that they get their exit code.
type patientFiler struct {
	filer.Store
	name   string
	limit  time.Duration
	giveUp func(error)

	mu    sync.Mutex
	timer *time.Timer // runs while a call waits for the first answer since the last one
	last  error
}

// awayError is a failure to get an answer from the filer or a volume server.
type awayError struct {
	filer string
	err   error
}

func (e *awayError) Error() string { return fmt.Sprintf("filer %s: %v", e.filer, e.err) }
func (e *awayError) Unwrap() error { return e.err }

// asked is called before each call.
func (p *patientFiler) asked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		p.timer = time.AfterFunc(p.limit, p.expire)
	}
}

func (p *patientFiler) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return // answered just now
	}
	err := fmt.Errorf("filer %s has not answered for %s; is it running, and its volume servers?", p.name, p.limit)
	if p.last != nil {
		err = fmt.Errorf("%w Last: %w", err, p.last)
	}
	p.giveUp(&functions.RetryError{Err: err})
}

// answered is called after each call. An answer may be a refusal.
func (p *patientFiler) answered(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil || filer.Definite(err) {
		if p.timer != nil {
			p.timer.Stop()
		}
		p.timer, p.last = nil, nil
		return err
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	p.last = err
	return &awayError{p.name, err}
}

// ask makes one call.
func ask[T any](p *patientFiler, call func() (T, error)) (T, error) {
	p.asked()
	v, err := call()
	return v, p.answered(err)
}

// Create and all others are as the Store's.
func (p *patientFiler) Create(ctx context.Context, path string, f filer.File) error {
	p.asked()
	return p.answered(p.Store.Create(ctx, path, f))
}

// Update marks as Create does.
func (p *patientFiler) Update(ctx context.Context, path, expect string, f filer.File) error {
	p.asked()
	return p.answered(p.Store.Update(ctx, path, expect, f))
}

// Lookup marks as Create does.
func (p *patientFiler) Lookup(ctx context.Context, path string) (filer.Entry, error) {
	return ask(p, func() (filer.Entry, error) { return p.Store.Lookup(ctx, path) })
}

// List marks as Create does.
func (p *patientFiler) List(ctx context.Context, dir, after string, limit int) ([]filer.Entry, error) {
	return ask(p, func() ([]filer.Entry, error) { return p.Store.List(ctx, dir, after, limit) })
}

// Delete marks as Create does.
func (p *patientFiler) Delete(ctx context.Context, path, expect string) error {
	p.asked()
	return p.answered(p.Store.Delete(ctx, path, expect))
}

// DeleteTree marks as Create does.
func (p *patientFiler) DeleteTree(ctx context.Context, dir string) error {
	p.asked()
	return p.answered(p.Store.DeleteTree(ctx, dir))
}

// Upload marks as Create does.
func (p *patientFiler) Upload(ctx context.Context, path string, data []byte) (filer.Blob, error) {
	return ask(p, func() (filer.Blob, error) { return p.Store.Upload(ctx, path, data) })
}

// UploadAs marks as Create does.
func (p *patientFiler) UploadAs(ctx context.Context, path string, data []byte, how filer.Storage) (filer.Blob, error) {
	return ask(p, func() (filer.Blob, error) { return p.Store.UploadAs(ctx, path, data, how) })
}

// Discard marks as Create does.
func (p *patientFiler) Discard(ctx context.Context, b filer.Blob) error {
	p.asked()
	return p.answered(p.Store.Discard(ctx, b))
}

// Expiries marks as Create does.
func (p *patientFiler) Expiries(ctx context.Context, dir string) ([]filer.Expiry, error) {
	return ask(p, func() ([]filer.Expiry, error) { return p.Store.Expiries(ctx, dir) })
}

// Open marks as Create does, and so does reading from what it returns.
func (p *patientFiler) Open(ctx context.Context, e filer.Entry, off int64) (io.ReadCloser, error) {
	body, err := ask(p, func() (io.ReadCloser, error) { return p.Store.Open(ctx, e, off) })
	if err != nil {
		return nil, err
	}
	return &patientReader{body, p}, nil
}

type patientReader struct {
	io.ReadCloser
	p *patientFiler
}

func (r *patientReader) Read(b []byte) (int, error) {
	r.p.asked()
	n, err := r.ReadCloser.Read(b)
	if err == io.EOF { // itself, unwrapped: the end, which is an answer
		_ = r.p.answered(nil)
		return n, err
	}
	return n, r.p.answered(err)
}
