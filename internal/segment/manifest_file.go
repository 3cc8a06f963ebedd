package segment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
)

// maxManifest bounds what is read of a manifest: as much as MaxManifestFiles take.
const maxManifest = 32 << 20

func (s *Segment) manifestPath() string { return path.Join(s.log.Dir(), "manifest.json") }

// Manifest reads the segment's manifest. filer.ErrNotFound: it has none, and what it
// holds is in its chunks. *ManifestError: it is not what was written.
// *ManifestFormatError: a later version of this program wrote it.
func (s *Segment) Manifest(ctx context.Context) (Manifest, error) {
	data, attrs, err := s.readManifest(ctx)
	if err != nil {
		return Manifest{}, fmt.Errorf("manifest of segment %s: %w", s.ID, err)
	}
	if got := digest(data); got != attrs[attrDigest] {
		return Manifest{}, s.badManifest("its bytes have the digest %s, its attributes say %.40q", got, attrs[attrDigest])
	}
	format, m, err := parseManifest(data)
	switch {
	case format > ManifestFormat:
		return Manifest{}, &ManifestFormatError{s.manifestPath(), format}
	case err != nil:
		return Manifest{}, s.badManifest("%v", err)
	case m.Segment != s.ID:
		return Manifest{}, s.badManifest("it is of the segment %.100q", m.Segment)
	}
	return m, nil
}

func (s *Segment) badManifest(format string, a ...any) error {
	return &ManifestError{s.manifestPath(), fmt.Sprintf(format, a...)}
}

func (s *Segment) readManifest(ctx context.Context) (data []byte, attrs filer.Attrs, err error) {
	var e filer.Entry
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		e, err = s.topic.store.Filer.Lookup(ctx, s.manifestPath())
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case e.IsDir:
		return nil, nil, s.badManifest("it is a folder")
	case e.Size > maxManifest:
		return nil, nil, s.badManifest("it has %d bytes, and at most %d are allowed", e.Size, maxManifest)
	case len(e.Blobs) == 0:
		return e.Content, e.Attrs, nil
	}
	err = filer.Retry(ctx, func(ctx context.Context) error {
		r, err := s.topic.store.Filer.Open(ctx, e, 0)
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // read-only
		data, err = io.ReadAll(io.LimitReader(r, maxManifest+1))
		return err
	})
	if errors.Is(err, filer.ErrNotFound) { // of the bytes, not of the file: there is a manifest
		err = s.badManifest("its bytes are gone: %v", err)
	}
	return data, e.Attrs, err
}

// parseManifest decodes and checks a manifest. It takes no more memory than the
// allowed number of files needs, whatever the data is. The format is told whenever
// it could be read.
func parseManifest(data []byte) (format int, m Manifest, err error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return 0, m, err
	}
	if head.Format != ManifestFormat {
		return head.Format, m, fmt.Errorf("it has the format %d", head.Format)
	}
	var file struct {
		Manifest
		Dropped bounded[DroppedRange] `json:"dropped"`
		Files   bounded[DataFile]     `json:"files"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return head.Format, m, err
	}
	m = file.Manifest
	m.Dropped, m.Files = file.Dropped, file.Files
	m = m.normal()
	err = m.Validate()
	return m.Format, m, err
}

// bounded is a list that is decoded element by element, and no further than allowed.
type bounded[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (b *bounded[T]) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return errors.Join(err, errors.New("a list was expected"))
	}
	*b = nil
	for dec.More() {
		if len(*b) == MaxManifestFiles {
			return fmt.Errorf("a list of more than %d", MaxManifestFiles)
		}
		var one T
		if err := dec.Decode(&one); err != nil {
			return err
		}
		*b = append(*b, one)
	}
	return nil
}

// encodeManifest gives the bytes of a manifest: JSON, with a line for each file.
func encodeManifest(m Manifest) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	files := m.Files
	m.Files = nil
	if err := enc.Encode(m); err != nil {
		return nil, err
	}
	b.Truncate(bytes.LastIndex(b.Bytes(), []byte("null}")))
	b.WriteByte('[')
	for i, f := range files {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		if err := enc.Encode(f); err != nil {
			return nil, err
		}
		b.Truncate(b.Len() - 1) // without the end of the line
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

// CreateManifest makes the segment's manifest and returns the one in force: m, or
// that of whoever was first, whose files are those that count. Format and Segment
// are filled in. On nil it is as durable as the filer's settings make it; the files
// that m names have to be so before. Outcomes are settled; any number may race, and
// calling again after any error is fine.
//
// *ManifestError: m is wrong in itself, or leaves out records that the segment's log
// has; nothing was written. commitlog.ErrNoLog: the topic is being deleted.
func (s *Segment) CreateManifest(ctx context.Context, m Manifest) (Manifest, error) {
	m.Format, m.Segment = ManifestFormat, s.ID
	m = m.normal()
	if err := m.Validate(); err != nil {
		return Manifest{}, s.badManifest("%v", err)
	}
	if err := s.agrees(ctx, m); err != nil {
		return Manifest{}, err
	}
	f, err := s.encoded(ctx, m)
	if err != nil {
		return Manifest{}, err
	}
	_, err = filer.Create(ctx, s.topic.store.Filer, s.manifestPath(), f)
	if errors.Is(err, filer.ErrExists) {
		if !errors.Is(err, filer.ErrStray) {
			s.topic.discard(ctx, f.Blobs)
		}
		return s.Manifest(ctx)
	}
	if err != nil {
		return Manifest{}, err
	}
	// As after an append (rule 3): without a head the folder is about to go.
	if _, _, err := s.log.Head(ctx); err != nil {
		if errors.Is(err, commitlog.ErrNoLog) {
			err = errors.Join(err, filer.Retry(ctx, func(ctx context.Context) error {
				return s.topic.store.Filer.Delete(ctx, s.manifestPath(), f.ID)
			}))
		}
		return Manifest{}, err
	}
	return m, nil
}

// agrees checks a manifest against the segment's log: that it ends where the seal
// says, and begins no later than the first chunk that there is. What that chunk says
// does not matter if it cannot be read, and an operator gave up its records.
func (s *Segment) agrees(ctx context.Context, m Manifest) error {
	seal, err := s.ChunkAt(ctx, m.Seal)
	if err != nil && !errors.Is(err, filer.ErrNotFound) {
		return err
	}
	if err != nil || !seal.Sealed || seal.Base != m.End {
		return s.badManifest("it ends at offset %d with the seal %d, which is none, or another one", m.End, m.Seal)
	}
	first, err := s.first(ctx)
	if len(m.Dropped) > 0 && m.Dropped[0].First == m.Base && (errors.Is(err, filer.ErrNotFound) || errors.Is(err, filer.ErrCorrupt)) {
		return nil
	}
	if err != nil {
		return err
	}
	if first.Base < m.Base {
		return s.badManifest("it begins at offset %d, but the first record that there is has the offset %d", m.Base, first.Base)
	}
	return nil
}

// first is the first chunk that there is.
func (s *Segment) first(ctx context.Context) (Chunk, error) {
	head, _, err := s.log.Head(ctx)
	for err == nil {
		c, err2 := s.ChunkAt(ctx, head)
		if !errors.Is(err2, filer.ErrNotFound) {
			return c, err2
		}
		before := head
		if head, _, err = s.log.Head(ctx); err == nil && head == before {
			return Chunk{}, err2
		}
	}
	return Chunk{}, err
}

// encoded is a manifest as a file to create, with its bytes uploaded if they are many.
func (s *Segment) encoded(ctx context.Context, m Manifest) (filer.File, error) {
	data, err := encodeManifest(m)
	if err != nil {
		return filer.File{}, fmt.Errorf("encode %s: %w", s.manifestPath(), err)
	}
	if len(data) > maxManifest {
		return filer.File{}, s.badManifest("it has %d bytes, and at most %d are allowed", len(data), maxManifest)
	}
	f := filer.File{ID: filer.NewID(), Attrs: filer.Attrs{attrDigest: digest(data)}, Content: data}
	if len(data) <= s.topic.store.Inline {
		return f, nil
	}
	f.Content = nil
	err = filer.Retry(ctx, func(ctx context.Context) error {
		f.Blobs, err = filer.UploadPartsAs(ctx, s.topic.store.Filer, s.manifestPath(), data, storageOf(s.topic.Definition))
		return err
	})
	if err != nil {
		return filer.File{}, fmt.Errorf("upload %s: %w", s.manifestPath(), err)
	}
	return f, nil
}
