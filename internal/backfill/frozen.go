package backfill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/filer"
)

// FrozenError tells that a job's file is not what was written when the job was made,
// or not to be understood. Nobody may work on the job until somebody has looked at
// it: with other objects, or others in another order, positions would mean other
// rows. It matches filer.ErrCorrupt.
type FrozenError struct{ Path, Reason string }

func (e *FrozenError) Error() string { return fmt.Sprintf("job file %s: %s", e.Path, e.Reason) }

// Is makes it match filer.ErrCorrupt.
func (e *FrozenError) Is(target error) bool { return target == filer.ErrCorrupt }

// attrDigest of a job's file is "xxh64:" and the hexadecimal digest of its bytes.
const attrDigest = "Digest"

func digest(data []byte) string { return fmt.Sprintf("xxh64:%016x", xxhash.Sum64(data)) }

// encode gives the bytes of a job's file: JSON, with one line for each object, so
// that people can read it.
func encode(j Job) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	sources := j.Sources
	j.Sources = nil
	if err := enc.Encode(j); err != nil {
		return nil, err
	}
	b.Truncate(bytes.LastIndex(b.Bytes(), []byte("null}")))
	b.WriteByte('[')
	for i, s := range sources {
		name, err := json.Marshal(s.Name)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "\n{\"name\":%s,\"objects\":[\n", name)
		for k, o := range s.Objects {
			if k > 0 {
				b.WriteString(",\n")
			}
			if err := enc.Encode(o); err != nil {
				return nil, err
			}
			b.Truncate(b.Len() - 1) // without the end of the line
		}
		b.WriteString("\n]}")
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

// freeze creates the job's file. filer.ErrExists: there is one.
func (b *Jobs) freeze(ctx context.Context, id string, data []byte) error {
	f := filer.File{ID: filer.NewID(), Attrs: filer.Attrs{attrDigest: digest(data)}, Content: data}
	if len(data) > b.store.Inline {
		blobs, err := b.upload(ctx, id, data)
		if err != nil {
			return err
		}
		f.Content, f.Blobs = nil, blobs
	}
	_, err := filer.Create(ctx, b.store.Filer, b.jobPath(id), f)
	if errors.Is(err, filer.ErrExists) && !errors.Is(err, filer.ErrStray) {
		b.discard(ctx, f.Blobs)
	}
	return err
}

// stretch is how much of a job's file is written or read in one try, so that a slow
// filer gets on.
const stretch = 4 * filer.PartSize

func (b *Jobs) upload(ctx context.Context, id string, data []byte) (blobs []filer.Blob, err error) {
	for from := 0; from < len(data) && err == nil; from += stretch {
		var some []filer.Blob
		err = filer.Retry(ctx, func(ctx context.Context) (err error) {
			some, err = filer.UploadParts(ctx, b.store.Filer, b.jobPath(id), data[from:min(from+stretch, len(data))])
			return err
		})
		blobs = append(blobs, some...)
	}
	if err != nil {
		b.discard(context.WithoutCancel(ctx), blobs)
	}
	return blobs, err
}

// discard deletes bytes that no file names. Those that stay are lost space.
func (b *Jobs) discard(ctx context.Context, blobs []filer.Blob) {
	for _, blob := range blobs {
		if err := b.store.Filer.Discard(ctx, blob); err != nil {
			b.store.Logger.Warn("could not delete an upload that is not needed", "topic", b.topic.Name, "blob", blob.ID, "err", err)
		}
	}
}

// Load reads a job's file. [ErrNoJob] and [*FrozenError] mean that nobody may work
// on the job (rule 38). An id that is none is an [*IDError]. Other errors are the
// filer's, and may pass.
func (b *Jobs) Load(ctx context.Context, id string) (Job, error) {
	if err := CheckID(id); err != nil {
		return Job{}, err
	}
	data, attrs, err := b.read(ctx, b.jobPath(id))
	if errors.Is(err, filer.ErrNotFound) {
		err = ErrNoJob
	}
	if err != nil {
		return Job{}, fmt.Errorf("job %s of topic %q: %w", id, b.topic.Name, err)
	}
	j, err := b.thaw(id, data, attrs)
	if err != nil {
		return Job{}, &FrozenError{b.jobPath(id), err.Error()}
	}
	return j, nil
}

// thaw takes the bytes of a job's file for a job only if they are as they were
// written.
func (b *Jobs) thaw(id string, data []byte, attrs filer.Attrs) (Job, error) {
	var j Job
	switch want, ok := attrs[attrDigest]; {
	case !ok:
		return j, errors.New("it has no digest: it was replaced, or written by something else")
	case want != digest(data):
		return j, fmt.Errorf("its bytes have the digest %s, and were written with %.40q", digest(data), want)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields() // they would say to read the objects in a way that is not known here
	if err := dec.Decode(&j); err != nil {
		return j, fmt.Errorf("it cannot be understood, and may be of a newer version: %w", err)
	}
	if j.ID != id || j.Topic != b.topic.Name || j.Incarnation != b.topic.Incarnation {
		return j, fmt.Errorf("it is of job %.40q of topic %.100q (incarnation %.40q)", j.ID, j.Topic, j.Incarnation)
	}
	return j, checkSources(j).err()
}

// read reads a file, however large it may be allowed to be, and its attributes.
func (b *Jobs) read(ctx context.Context, path string) (data []byte, attrs filer.Attrs, err error) {
	var e filer.Entry
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		e, err = b.store.Filer.Lookup(ctx, path)
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case e.IsDir:
		return nil, nil, &FrozenError{path, "it is a folder"}
	case e.Size > MaxFile:
		return nil, nil, &FrozenError{path, fmt.Sprintf("it has %d bytes", e.Size)}
	case len(e.Blobs) == 0:
		return e.Content, e.Attrs, nil
	}
	data = make([]byte, 0, e.Size)
	for int64(len(data)) < e.Size {
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			data, err = b.readOn(ctx, e, data)
			return err
		})
		switch {
		case errors.Is(err, filer.ErrNotFound): // of the bytes, not of the file
			return nil, nil, &FrozenError{path, "its bytes are gone: " + err.Error()}
		case err != nil:
			return nil, nil, err
		}
	}
	return data, e.Attrs, nil
}

// readOn reads a stretch more of an entry.
func (b *Jobs) readOn(ctx context.Context, e filer.Entry, data []byte) ([]byte, error) {
	from := len(data)
	r, err := b.store.Filer.Open(ctx, e, int64(from))
	if err != nil {
		return data, err
	}
	defer r.Close() //nolint:errcheck // read-only
	n, err := io.ReadFull(r, data[from:min(from+stretch, cap(data))])
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: it ends after %d of %d bytes", filer.ErrCorrupt, from+n, e.Size)
	}
	return data[:from+n], err
}
