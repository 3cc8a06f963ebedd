package filer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrNoBucket says that the filer has not even the bucket. It matches [ErrNotFound].
var ErrNoBucket error = noBucket{}

type noBucket struct{}

func (noBucket) Error() string { return "no such bucket" }

// Is makes it match ErrNotFound.
func (noBucket) Is(target error) bool { return target == ErrNotFound }

// NullVersion is S3's name for the version of an object that was put while its
// bucket had no versions.
const NullVersion = "null"

// ObjectName names an object as S3 does.
type ObjectName struct {
	Bucket, Key string
	Version     string // empty: the current one; [NullVersion]: the one without an id
}

func (n ObjectName) String() string {
	s := fmt.Sprintf("object %q of bucket %q", n.Key, n.Bucket)
	if n.Version != "" {
		s += fmt.Sprintf(" (version %q)", n.Version)
	}
	return s
}

// Object is an object as found: what it is, and its attributes with [AttrPrefix],
// without it.
type Object struct {
	Name  ObjectName // with the version that was found; empty or NullVersion: it has no id
	Path  string     // of its entry
	Size  int64
	ETag  string // as S3 says it, without quotes
	MTime time.Time
	Attrs Attrs
	// Extra is how the implementation knows the object again.
	Extra any
}

// Objects is the view of a filer's buckets that S3 has. The objects were put
// there by others, through the filer's S3 gateway: unlike a [Store]'s files they
// have no ID of ours, and nothing of theirs may be changed but our attributes.
// All methods may be called concurrently, try once and honour ctx.
type Objects interface {
	// Look finds an object or one version of it. ErrNotFound: there is none, or
	// the current version is a delete marker; ErrNoBucket is the particular case
	// of it, whatever the key and the version. ErrInvalid: no object of the bucket
	// can have that name, or what is there is one of our own files.
	Look(ctx context.Context, n ObjectName) (Object, error)
	// Mark sets one attribute of an object, or removes it if value is empty, and
	// changes nothing else: neither bytes nor ETag, time, metadata or tags.
	// ErrConflict is definite, and means that the object is not as it was looked
	// up any more: overwritten, even by the same bytes, deleted, or another
	// attribute of it changed. ErrInvalid is definite too; any other error is an
	// unknown outcome.
	Mark(ctx context.Context, o Object, name, value string) error
}

// Amend is [Objects.Mark] with unknown outcomes settled: it repeats the call
// until it knows. On nil the object has the attribute with that value (or has it
// no longer, or is gone with it, if value is empty). On ErrConflict or
// ErrNotFound it never comes to have it by this call. So that a value found is
// known to be this call's, values must not repeat.
func Amend(ctx context.Context, s Objects, o Object, name, value string) error {
	for b := (backoff{}); ; {
		err := try(ctx, func(ctx context.Context) error { return s.Mark(ctx, o, name, value) })
		if err == nil || errors.Is(err, ErrInvalid) {
			return wrapMark(o, name, err)
		}
		var now Object
		lookErr := try(ctx, func(ctx context.Context) (err error) { now, err = s.Look(ctx, o.Name); return err })
		has, there := now.Attrs[name]
		gone := errors.Is(lookErr, ErrNotFound)
		switch {
		case lookErr == nil && has == value && there == (value != ""), gone && value == "":
			return nil
		case errors.Is(err, ErrConflict):
			return wrapMark(o, name, err)
		case gone:
			return wrapMark(o, name, lookErr)
		}
		if !b.wait(ctx) {
			return fmt.Errorf("mark %s with %s: outcome unknown: %w", o.Name, name, errors.Join(err, ctx.Err()))
		}
	}
}

func wrapMark(o Object, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("mark %s with %s: %w", o.Name, name, err)
}

// uploads is where the S3 gateway keeps the parts of unfinished uploads, in each
// bucket.
const uploads = ".uploads"

// versions ends the name of the folder beside an object that has its versions.
const versions = ".versions"

// Place is where a filer keeps an object, in a bucket's folder and never outside
// of it.
type Place struct {
	Bucket   string // the path of the bucket's folder
	Path     string // of the object's own entry: its null version
	Versions string // of the folder that has the versions with ids
	// Folder: the key ends with a slash, so that the entry is a folder's.
	Folder bool
}

// CleanKey spells a key as SeaweedFS's gateway does: slashes count once, a leading
// one not at all, and a backslash is one. Keys that differ only in this name the
// same object there.
func CleanKey(key string) string {
	slash := func(r rune) bool { return r == '/' || r == '\\' }
	clean := strings.Join(strings.FieldsFunc(key, slash), "/")
	if clean != "" && (strings.HasSuffix(key, "/") || strings.HasSuffix(key, `\`)) {
		clean += "/"
	}
	return clean
}

// Place finds the place, by [CleanKey]. ErrInvalid: no object can have the name;
// only Bucket is set then, or nothing if no bucket can have its name either.
func (n ObjectName) Place() (Place, error) {
	bad := func(why string) error { return fmt.Errorf("%w: %.200s: %s", ErrInvalid, n, why) }
	if strings.HasPrefix(n.Bucket, ".") {
		return Place{}, bad("a bucket's name does not begin with a dot")
	}
	if err := checkBucket(n.Bucket); err != nil {
		return Place{}, err
	}
	bucket := bucketsDir + n.Bucket
	key, folder := strings.CutSuffix(CleanKey(n.Key), "/")
	if key == "" {
		return Place{Bucket: bucket}, bad("the key names nothing")
	}
	for i, s := range strings.Split(key, "/") {
		if s == "." || s == ".." || i == 0 && s == uploads {
			return Place{Bucket: bucket}, bad(fmt.Sprintf("the key has a segment %q", s))
		}
	}
	path := bucket + "/" + key
	if err := CheckPath(path); err != nil {
		return Place{Bucket: bucket}, err
	}
	return Place{Bucket: bucket, Path: path, Versions: path + versions, Folder: folder}, nil
}

// Version is the path of the version with an id.
func (p Place) Version(id string) (string, error) {
	if id == NullVersion {
		return p.Path, nil
	}
	if id == "" || strings.ContainsAny(id, `/\`) || p.Folder {
		return "", fmt.Errorf("%w: version %.80q", ErrInvalid, id)
	}
	path := p.Versions + "/v_" + id
	return path, CheckPath(path)
}

// CheckMark tells whether an object can be marked so. Implementations of
// [Objects] call it first. The error is an [ErrInvalid].
func CheckMark(name, value string) error {
	if len(value) > maxMark {
		return fmt.Errorf("%w: value of attribute %.80s with %d bytes", ErrInvalid, name, len(value))
	}
	return checkAttr(name, value)
}

// maxMark bounds attributes that are put on others' objects, since they come
// with every HEAD.
const maxMark = 512
