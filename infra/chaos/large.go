package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

const (
	largeTopic = "large"
	largeKey   = "chaos/large"
	// largeMemory is how much memory this process, and the worker, may ever take.
	largeMemory = 256 << 20
	// spareDisk is what must be free on the disk besides the object.
	spareDisk = 2 << 30
	// slowDisk is how many bytes a second are waited for.
	slowDisk = 16 << 20
)

// large is one object of many parts that goes by reference, on a stack of its own:
// made while it is uploaded, submitted, stored, and read back to its end. It is
// never in memory, and on no disk but SeaweedFS's.
type large struct {
	env   *rig.Env
	store *object.Store
	size  int64
	sum   []byte
	say   func(format string, args ...any)
}

func passLarge(ctx context.Context, out io.Writer, o options) (summary string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+3*time.Duration(o.object/slowDisk)*time.Second)
	defer cancel()
	if o.cfg.Dir != "" {
		o.cfg.Dir = filepath.Join(o.cfg.Dir, "large")
	}
	env, err := rig.Open(ctx, o.cfg)
	if err != nil {
		return "", err
	}
	defer func() {
		env.Keep = err != nil
		if err != nil {
			fmt.Fprintf(out, "the stack's folder is kept: %s\n", env.Dir)
		}
		err = errors.Join(err, env.Close())
	}()
	if err := room(ctx, env.Dir, o.object); err != nil {
		return "", err
	}
	worker, err := env.StartWorker()
	if err != nil {
		return "", err
	}
	defer worker.Kill()
	s3 := env.Stack.Info.S3
	store, err := object.Open(ctx, object.Config{Endpoint: s3.URL, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey})
	if err != nil {
		return "", err
	}
	defer store.Close()
	begin := time.Now()
	l := &large{env: env, store: store, size: o.object, say: func(format string, args ...any) {
		fmt.Fprintf(out, "%6.1f s  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}}
	l.say("an object of %s, stack in %s", humanize.IBytes(uint64(o.object)), env.Dir)
	if err := l.run(ctx); err != nil {
		return "", err
	}
	ours, err := memory("this process", os.Getpid())
	if err != nil {
		return "", err
	}
	theirs, err := memory("the worker", worker.PID())
	return fmt.Sprintf("an object of %s by reference; %s, %s", humanize.IBytes(uint64(o.object)), ours, theirs), err
}

// run takes the object the whole way.
func (l *large) run(ctx context.Context) error {
	bucket := l.env.Stack.Info.Bucket
	if _, err := l.env.CLI(ctx, "topic", "create", largeTopic, "--allow", bucket); err != nil {
		return err
	}
	uploaded, err := l.upload(ctx, object.Name{Bucket: bucket, Key: largeKey})
	if err != nil {
		return err
	}
	if err := l.submit(ctx, uploaded); err != nil {
		return err
	}
	stored, err := l.stored(ctx)
	if err != nil {
		return err
	}
	if stored.URL != uploaded.URL || stored.ETag != uploaded.ETag || stored.Size != l.size || !bytes.Equal(stored.SHA256, l.sum) {
		return fmt.Errorf("uploaded %+v, and the record refers to %+v", uploaded, stored)
	}
	if err := l.pinned(ctx, object.Name{Bucket: bucket, Key: largeKey}); err != nil {
		return err
	}
	begin := time.Now() // the mark of the pin has changed nothing of the object
	r := ref.NewReader(ctx, l.store, stored)
	defer func() { _ = r.Close() }()
	if n, err := io.Copy(io.Discard, r); err != nil || n != l.size {
		return fmt.Errorf("read the object by its reference: %d of %d bytes: %w", n, l.size, err)
	}
	l.say("read to its end, size and digest are the reference's: %s", l.pace(begin))
	return nil
}

// upload makes the object, whose ETag must be one of many parts.
func (l *large) upload(ctx context.Context, n object.Name) (record.Ref, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(pages{}, 0, l.size)); err != nil {
		return record.Ref{}, err
	}
	l.sum = sum.Sum(nil)
	begin := time.Now()
	info, err := l.store.Put(ctx, n, pages{}, l.size, object.PutOptions{SHA256: l.sum})
	if err != nil {
		return record.Ref{}, err
	}
	_, parts, _ := strings.Cut(info.ETag, "-")
	if got, want := parts, strconv.FormatInt((l.size+object.PartSize-1)/object.PartSize, 10); l.size > object.PartSize && got != want {
		return record.Ref{}, fmt.Errorf("the ETag is %q: want one of %s parts", info.ETag, want)
	}
	l.say("uploaded, its ETag is %s: %s", info.ETag, l.pace(begin))
	return ref.From(n, info), nil
}

// submit looks at the object as any producer does, and waits until the reference
// is stored.
func (l *large) submit(ctx context.Context, f record.Ref) (err error) {
	s3 := l.env.Stack.Info.S3
	objects, err := client.OpenObjects(ctx, client.ObjectsConfig{Endpoint: s3.URL, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey})
	if err != nil {
		return err
	}
	defer objects.Close()
	p, err := client.NewProducer(l.env.NATS, client.Options{Objects: objects, Ack: client.Stored})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	begin := time.Now()
	pending, err := p.Submit(ctx, largeTopic, client.Reference{URL: f.URL, Size: f.Size, ETag: f.ETag}, client.Record{Key: []byte("large")})
	if err != nil {
		return err
	}
	if _, err := pending.Wait(ctx); err != nil {
		return err
	}
	l.say("submitted, and stored after %s", time.Since(begin).Round(time.Millisecond))
	return nil
}

// stored is the reference as a reader of the topic gets it.
func (l *large) stored(ctx context.Context) (f record.Ref, err error) {
	line, err := l.env.CLI(ctx, "read", largeTopic, "--all")
	if err != nil {
		return f, err
	}
	var is struct {
		Rejected string `json:"rejected"`
		Ref      struct {
			URL, ETag, SHA256, State string
			Size                     int64
		} `json:"ref"`
	}
	if err := json.Unmarshal(line, &is); err != nil {
		return f, fmt.Errorf("spillway read printed %.200q: %w", line, err)
	}
	if is.Rejected != "" || is.Ref.State != "" {
		return f, fmt.Errorf("the reference was not verified: %s", line)
	}
	sum, err := hex.DecodeString(is.Ref.SHA256)
	return record.Ref{URL: is.Ref.URL, Size: is.Ref.Size, ETag: is.Ref.ETag, SHA256: sum}, err
}

// pinned sees that the topic holds the object.
func (l *large) pinned(ctx context.Context, n object.Name) error {
	marks, err := (&pin.Pins{Filer: l.env.Filer(), Now: time.Now}).Held(ctx, n)
	if err != nil {
		return err
	}
	if len(marks) != 1 || marks[0].Holder.Topic != largeTopic {
		return fmt.Errorf("the object is to have a pin of topic %s, and has %v", largeTopic, marks)
	}
	return nil
}

func (l *large) pace(begin time.Time) string {
	took := time.Since(begin)
	return fmt.Sprintf("%.1f s, %.0f MB/s", took.Seconds(), float64(l.size)/1e6/took.Seconds())
}

// pages is bytes without an end: pages that begin with their number.
type pages struct{}

const pageSize = 64 << 10

// paper is what is on every page besides.
var paper = func() (page [pageSize]byte) {
	_, _ = rand.NewChaCha8([32]byte{5}).Read(page[:]) // never fails
	return page
}()

// ReadAt implements [io.ReaderAt].
func (pages) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		page, at := (off+int64(n))/pageSize, (off+int64(n))%pageSize
		if at < 8 {
			var number [8]byte
			binary.BigEndian.PutUint64(number[:], uint64(page))
			n += copy(p[n:], number[at:])
			continue
		}
		n += copy(p[n:], paper[at:])
	}
	return n, nil
}
