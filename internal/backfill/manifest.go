package backfill

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/object"
)

// Endpoint is what manifests need of an S3 endpoint. *object.Store is one.
type Endpoint interface {
	Head(ctx context.Context, bucket, key, version string) (object.Info, error)
	Get(ctx context.Context, n object.Name, off int64, ifMatch string) (io.ReadCloser, object.Info, error)
}

// ManifestError tells what is wrong with a manifest.
type ManifestError struct {
	Manifest string
	Faults   []string // the first of them
	Count    int      // of all
}

func (e *ManifestError) Error() string {
	s := fmt.Sprintf("manifest %.200q: %s", e.Manifest, strings.Join(e.Faults, "; "))
	if more := e.Count - len(e.Faults); more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return s
}

// maxManifest is how many bytes a manifest, or a file of an inventory, has at most.
// A longer one would name more objects than a job can have.
const maxManifest = MaxFile

// Manifest lists the objects that a manifest names, each looked at for what it is
// now. The manifest is a file of the host, or an object ("s3://bucket/key"). It is
// one of
//
//   - text: an object a line, "s3://bucket/key", and perhaps a tab and a version.
//     Lines without anything, or that begin with #, are none;
//   - a manifest of Redshift: {"entries":[{"url":"s3://bucket/key"},…]};
//   - the manifest.json of an S3 inventory whose files are CSV.
//
// The filter is for whole keys, or what follows their last slashes. All faults come as one [*ManifestError]; objects that are not there, or named
// twice, as one [*NamesError]. Other errors are those of package object, and of the
// file system.
func Manifest(ctx context.Context, from Endpoint, where string, f Filter) (Listing, error) {
	var l Listing
	if err := f.Check(); err != nil {
		return l, err
	}
	data, err := fetch(ctx, from, where)
	if err != nil {
		return l, err
	}
	m := &manifest{where: where, endpoint: from}
	names, err := m.parse(ctx, data)
	if err != nil {
		return l, err
	}
	l.Left.Old = m.old
	twice := &NamesError{Err: ErrTwice}
	seen := make(map[object.Name]bool, len(names))
	wanted := names[:0]
	for _, n := range names {
		switch {
		case !f.Takes(n.Key):
			l.Left.Filtered++
		case seen[n]:
			twice.add(n.String())
		default:
			seen[n] = true
			wanted = append(wanted, n)
		}
	}
	if err := twice.orNil(); err != nil {
		return l, err
	}
	err = l.look(ctx, from, wanted)
	return l, err
}

// manifest is one that is being read.
type manifest struct {
	where    string
	endpoint Endpoint
	faults   faults
	old      int // objects of an inventory that are left out
	size     int // of the names that an inventory has
}

func (m *manifest) fault(format string, args ...any) error {
	m.faults.add(format, args...)
	return &ManifestError{m.where, m.faults.shown, m.faults.count}
}

// parse gives the names, in their order.
func (m *manifest) parse(ctx context.Context, data []byte) (names []object.Name, err error) {
	data = bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		names, err = m.document(ctx, data)
	} else {
		names, err = m.lines(data), nil
	}
	switch {
	case err != nil:
		return nil, err
	case m.faults.count > 0:
		return nil, &ManifestError{m.where, m.faults.shown, m.faults.count}
	case len(names) == 0:
		return nil, m.fault("it names no object")
	}
	return names, nil
}

func (m *manifest) lines(data []byte) (names []object.Name) {
	for n := 1; len(data) > 0; n++ {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte("\n"))
		text := string(bytes.TrimSuffix(line, []byte("\r")))
		if strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}
		url, version, _ := strings.Cut(text, "\t")
		if name, ok := m.name(fmt.Sprintf("line %d", n), url, strings.TrimSpace(version)); ok {
			names = append(names, name)
		}
	}
	return names
}

// name reads the name of an object at a place of the manifest.
func (m *manifest) name(place, url, version string) (object.Name, bool) {
	rest, ok := strings.CutPrefix(url, object.Scheme)
	if !ok {
		m.faults.add("%s: %q is not s3://bucket/key", place, clip(url))
		return object.Name{}, false
	}
	n := object.Name{Version: version}
	n.Bucket, n.Key, _ = strings.Cut(rest, "/")
	if err := n.Check(); err != nil {
		m.faults.add("%s: %q: %v", place, clip(url), err)
		return object.Name{}, false
	}
	return n, true
}

// document reads a manifest that is one JSON object.
func (m *manifest) document(ctx context.Context, data []byte) (names []object.Name, err error) {
	var doc struct {
		Entries []struct {
			URL string `json:"url"`
		} `json:"entries"`
		inventory
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, m.fault("it begins as JSON does, and is none of a manifest: %v", err)
	}
	if doc.Format != "" {
		return m.inventory(ctx, doc.inventory)
	}
	if doc.Entries == nil {
		return nil, m.fault(`it has neither "entries", as those of Redshift, nor "fileFormat", as those of S3 inventories`)
	}
	for i, e := range doc.Entries {
		if n, ok := m.name(fmt.Sprintf("entry %d", i+1), e.URL, ""); ok {
			names = append(names, n)
		}
	}
	return names, nil
}

// looksAtOnce is how many objects are looked at at a time.
const looksAtOnce = 32

// look looks at objects, and takes them into the listing in their order.
func (l *Listing) look(ctx context.Context, from Endpoint, names []object.Name) error {
	found := make([]*object.Info, len(names))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(looksAtOnce)
	for i, n := range names {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			info, err := from.Head(gctx, n.Bucket, n.Key, n.Version)
			if errors.Is(err, object.ErrNotFound) {
				return nil // told below, with all the others
			}
			found[i] = &info
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	missing, twice := &NamesError{Err: ErrMissing}, &NamesError{Err: ErrTwice}
	seen := make(map[object.Name]bool, len(names))
	for i, n := range names {
		if found[i] == nil {
			missing.add(versioned(n))
			continue
		}
		n.Version = found[i].Version
		o := Object{Bucket: n.Bucket, Key: n.Key, Version: n.Version, ETag: found[i].ETag, Size: found[i].Size}
		switch {
		case isMarker(o):
			l.Left.Markers++
			continue
		case seen[n]: // once as a version, and once as the current one
			twice.add(versioned(n))
			continue
		}
		seen[n] = true
		if err := l.add(o); err != nil {
			return err
		}
	}
	if err := missing.orNil(); err != nil {
		return err
	}
	return twice.orNil()
}

func versioned(n object.Name) string {
	if n.Version == "" {
		return n.String()
	}
	return n.String() + " version " + n.Version
}

// fetch reads a manifest into memory.
func fetch(ctx context.Context, from Endpoint, where string) ([]byte, error) {
	if !strings.HasPrefix(where, object.Scheme) {
		f, err := os.Open(filepath.Clean(where))
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // read-only
		return all(f, where)
	}
	m := &manifest{where: where}
	n, ok := m.name("its own name", where, "")
	if !ok {
		return nil, &ManifestError{where, m.faults.shown, m.faults.count}
	}
	return get(ctx, from, n, where)
}

// get reads an object, as it is at one time, into memory.
func get(ctx context.Context, from Endpoint, n object.Name, where string) ([]byte, error) {
	const tries = 5
	for try := 1; ; try++ {
		body, _, err := from.Get(ctx, n, 0, "")
		if err != nil {
			return nil, err
		}
		data, err := all(body, where)
		_ = body.Close()
		if broken := (*object.UnavailableError)(nil); err == nil || !errors.As(err, &broken) || try == tries {
			return data, err
		}
	}
}

func all(r io.Reader, where string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(bufio.NewReader(r), maxManifest+1))
	if err == nil && len(data) > maxManifest {
		err = &ManifestError{where, []string{fmt.Sprintf("it has more than %d bytes", maxManifest)}, 1}
	}
	return data, err
}
