package seaweed

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-mq/spillway/internal/filer"
)

var _ filer.Objects = (*Client)(nil)

// What the S3 gateway does (weed/s3api), as far as it matters:
//   - An object's writes, with those of all its versions, are transactions under
//     the lock of its own path, on the filer that owns that path. Ours is one too.
//   - Every write gives an entry a commit time that no other has, and S3 writes a
//     random id besides: an entry that equals another one is that one.
//   - Versions lie in a folder beside the object, whose attributes name the
//     current one. Without such a name it is the object's own entry.
//   - The patch of attributes leaves everything else as it is: the filer reads,
//     changes and writes the entry itself.
const (
	latestKey    = "Seaweed-X-Amz-Latest-Version-File-Name"
	versionKey   = "Seaweed-X-Amz-Version-Id"
	markerKey    = "Seaweed-X-Amz-Delete-Marker"
	etagKey      = "Seaweed-X-Amz-ETag"
	routePrefix  = "s3.object.write:"
	versionStart = "v_"
	versionsEnd  = ".versions"
)

// found is what Object.Extra holds.
type found struct {
	place filer.Place
	entry *filer_pb.Entry
}

// pointerTries bounds how often a version that is named as the current one, and
// is gone, is looked for again.
const pointerTries = 3

// Look implements [filer.Objects].
func (c *Client) Look(ctx context.Context, n filer.ObjectName) (filer.Object, error) {
	place, err := n.Place()
	if place.Bucket == "" {
		return filer.Object{}, fmt.Errorf("look at %.300s: %w", n, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	var o filer.Object
	if err == nil {
		o, err = c.lookUp(ctx, n, place)
	}
	if errors.Is(err, filer.ErrNotFound) || errors.Is(err, filer.ErrInvalid) {
		switch _, dirErr := c.entry(ctx, place.Bucket); {
		case errors.Is(dirErr, filer.ErrNotFound):
			err = filer.ErrNoBucket
		case dirErr != nil: // so it is not known whether this is about our objects
			err = dirErr
		}
	}
	if err != nil {
		return filer.Object{}, fmt.Errorf("look at %.300s: %w", n, err)
	}
	return o, nil
}

// lookUp looks until the current version stays for the look.
func (c *Client) lookUp(ctx context.Context, n filer.ObjectName, place filer.Place) (o filer.Object, err error) {
	for try := 1; ; try++ {
		o, err = c.lookOnce(ctx, n, place)
		if !errors.Is(err, errMoved) || try == pointerTries {
			return o, err
		}
	}
}

// errMoved: the version that was the current one is gone.
var errMoved = fmt.Errorf("%w: the current version is gone", filer.ErrNotFound)

func (c *Client) lookOnce(ctx context.Context, n filer.ObjectName, place filer.Place) (filer.Object, error) {
	path, current, err := c.versionPath(ctx, n.Version, place)
	if err != nil {
		return filer.Object{}, err
	}
	e, err := c.entry(ctx, path)
	switch {
	case errors.Is(err, filer.ErrNotFound) && current:
		return filer.Object{}, errMoved
	case err != nil:
		return filer.Object{}, err
	case !isObject(e, place, path):
		return filer.Object{}, filer.ErrNotFound
	case len(e.Extended[idKey]) > 0:
		return filer.Object{}, fmt.Errorf("%w: it is a file of Spillway's own", filer.ErrInvalid)
	}
	o := describe(e)
	o.Name, o.Path, o.Extra = n, path, found{place, e}
	if path != place.Path {
		o.Name.Version = strings.TrimPrefix(e.Name, versionStart)
	}
	return o, nil
}

// versionPath is the path of a version's entry. It also tells whether it was
// found as the current version, which may be another one by now.
func (c *Client) versionPath(ctx context.Context, version string, place filer.Place) (path string, current bool, err error) {
	if version != "" {
		path, err = place.Version(version)
		return path, false, err
	}
	if place.Folder { // such keys have no versions
		return place.Path, false, nil
	}
	folder, err := c.entry(ctx, place.Versions)
	if errors.Is(err, filer.ErrNotFound) {
		return place.Path, false, nil
	}
	if err != nil {
		return "", false, err
	}
	id, ok := strings.CutPrefix(string(folder.Extended[latestKey]), versionStart)
	switch {
	case !ok:
		return place.Path, false, nil
	case id == filer.NullVersion: // of this kind, only delete markers lie there
		return "", false, filer.ErrNotFound
	}
	path, err = place.Version(id)
	return path, true, err
}

// isObject tells whether an entry is the object that was asked for, and not a
// delete marker, a bare folder, or what another key names.
func isObject(e *filer_pb.Entry, place filer.Place, path string) bool {
	if path != place.Path {
		return !e.IsDirectory && string(e.Extended[markerKey]) != "true"
	}
	switch {
	case !e.IsDirectory:
		return !place.Folder && !isVersion(path, e)
	case place.Folder:
		return e.IsDirectoryKeyObject() && !e.IsPrefixObject()
	}
	return e.IsPrefixObject() || sizeOf(e) > 0 // an object below which there are others
}

// isVersion tells whether a path that a key spells is that of another object's
// version, whose writes are under another lock.
func isVersion(path string, e *filer_pb.Entry) bool {
	dir, name := split(path)
	return strings.HasSuffix(dir, versionsEnd) && strings.HasPrefix(name, versionStart) && len(e.Extended[versionKey]) > 0
}

// entry looks up one entry.
func (c *Client) entry(ctx context.Context, path string) (*filer_pb.Entry, error) {
	dir, name := split(path)
	resp, err := c.rpc.LookupDirectoryEntry(ctx, &filer_pb.LookupDirectoryEntryRequest{Directory: dir, Name: name})
	switch {
	case err != nil:
		return nil, callError(ctx, err)
	case resp.Entry == nil:
		return nil, filer.ErrNotFound
	}
	return resp.Entry, nil
}

func describe(e *filer_pb.Entry) filer.Object {
	o := filer.Object{Size: sizeOf(e), ETag: s3ETag(e), MTime: mtimeOf(e), Attrs: filer.Attrs{}}
	for k, v := range e.Extended {
		if name, ours := strings.CutPrefix(k, filer.AttrPrefix); ours {
			o.Attrs[name] = string(v)
		}
	}
	return o
}

func sizeOf(e *filer_pb.Entry) int64 {
	size := max(int64(e.GetAttributes().GetFileSize()), int64(len(e.Content)))
	for _, chunk := range e.Chunks {
		size = max(size, chunk.Offset+int64(chunk.Size))
	}
	return size
}

// s3ETag is the ETag that the S3 gateway gives an entry.
func s3ETag(e *filer_pb.Entry) string {
	if kept := string(e.Extended[etagKey]); kept != "" {
		return strings.Trim(kept, `"`)
	}
	if r := e.RemoteEntry; r.GetRemoteETag() != "" && int64(e.GetAttributes().GetFileSize()) == r.RemoteSize &&
		(r.LastLocalSyncTsNs > 0 || len(e.Chunks) == 0 && len(e.Content) == 0) {
		return strings.Trim(r.RemoteETag, `"`) // the bytes are those of a mounted bucket elsewhere
	}
	if sum := e.GetAttributes().GetMd5(); len(sum) > 0 {
		return hex.EncodeToString(sum)
	}
	var sums []byte
	for _, chunk := range e.Chunks {
		sum, err := base64.StdEncoding.DecodeString(chunk.ETag)
		if err != nil {
			sum = nil
		}
		sums = append(sums, sum...)
	}
	switch len(e.Chunks) {
	case 0:
		return ""
	case 1:
		return hex.EncodeToString(sums)
	}
	return fmt.Sprintf("%x-%d", md5.Sum(sums), len(e.Chunks))
}

// Mark implements [filer.Objects].
func (c *Client) Mark(ctx context.Context, o filer.Object, name, value string) error {
	f, ok := o.Extra.(found)
	if !ok {
		return fmt.Errorf("mark %s: %w: it was not looked up", o.Name, filer.ErrInvalid)
	}
	if err := filer.CheckMark(name, value); err != nil {
		return fmt.Errorf("mark %s: %w", o.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.rpc.ObjectTransaction(ctx, patch(o.Path, f, filer.AttrPrefix+name, value))
	switch {
	case status.Code(err) == codes.Unimplemented:
		err = fmt.Errorf("%w: the filer is too old for it: %s", filer.ErrInvalid, status.Convert(err).Message())
	case err != nil:
		err = callError(ctx, err)
	default:
		err = responseError(resp.ErrorCode, resp.Error)
	}
	if err != nil {
		return fmt.Errorf("mark %s: %w", o.Name, err)
	}
	return nil
}

// patch is the transaction that changes one attribute of an entry if the entry is
// still the one that was found. A patch of nothing would be no error, but its
// condition is.
func patch(path string, f found, key, value string) *filer_pb.ObjectTransactionRequest {
	dir, name := split(path)
	m := &filer_pb.ObjectMutation{Type: filer_pb.ObjectMutation_PATCH_EXTENDED, Directory: dir, Name: name}
	if value == "" {
		m.DeleteExtended = []string{key}
	} else {
		m.SetExtended = map[string][]byte{key: []byte(value)}
	}
	return &filer_pb.ObjectTransactionRequest{
		LockKey:      f.place.Path,
		RouteKey:     routePrefix + f.place.Path,
		ConditionKey: path,
		Condition: &filer_pb.WriteCondition{Clauses: []*filer_pb.WriteCondition_Clause{{
			Kind: filer_pb.WriteCondition_IF_ENTRY_EQUAL, ExpectedEntry: f.entry,
		}}},
		Mutations: []*filer_pb.ObjectMutation{m},
	}
}
