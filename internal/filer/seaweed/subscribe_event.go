package seaweed

import (
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

	"github.com/spillway-mq/spillway/internal/filer"
)

// EventKind is what a change of an entry means for its object.
type EventKind int

// The kinds of events.
const (
	Created EventKind = iota + 1 // it, or a version of it, was written
	Removed                      // it was deleted, or hidden by a delete marker
	Touched                      // attributes, tags or rights of it changed
)

// ObjectEvent is what happened to an object, or to a version of it.
type ObjectEvent struct {
	Kind   EventKind
	Name   string // as S3 calls it, as in ObjectCreated:Put; empty if it was touched
	Object filer.ObjectName

	Size        int64
	ETag        string
	ContentType string
	// Sequencer orders the events of an object: the filer's stamp, in nanoseconds
	// since 1970.
	Sequencer int64
	// Modified is when the object was put, which is a little before the filer's
	// stamp, in whole seconds. Zero: it was removed.
	Modified time.Time
	// Write is the same for the event by which an object was put, or its delete
	// marker, and whatever is later found of that object or marker.
	Write uint64
	// Was is the Sequencer that the object had before it was touched.
	Was int64
}

// What the names of S3's events are.
const (
	eventPut      = "ObjectCreated:Put"
	eventComplete = "ObjectCreated:CompleteMultipartUpload"
	eventCopy     = "ObjectCreated:Copy"
	eventDelete   = "ObjectRemoved:Delete"
	eventMarker   = "ObjectRemoved:DeleteMarkerCreated"
)

const uploadKey = "X-Seaweedfs-Upload-Id"

// translate is what an event of the filer's log says of objects: nothing, one
// thing, or two, of an object that was renamed.
func translate(s Scope, m *filer_pb.SubscribeMetadataResponse) []ObjectEvent {
	n := m.GetEventNotification()
	if n == nil {
		return nil
	}
	at := m.TsNs
	if m.MutationTsNs > 0 {
		at = m.MutationTsNs
	}
	was, hadOld := objectOf(s, m.Directory, n.OldEntry, at)
	dir := n.NewParentPath
	if dir == "" {
		dir = m.Directory
	}
	is, hasNew := objectOf(s, dir, n.NewEntry, at)
	same := hadOld && hasNew && was.Object == is.Object
	switch {
	case same && was.Write == is.Write:
		is.Kind, is.Name, is.Was = Touched, "", was.Sequencer
		return []ObjectEvent{is}
	case same && rewritten(n):
		is.Name = eventCopy
	}
	var out []ObjectEvent
	if hadOld && !same {
		out = append(out, ObjectEvent{Kind: Removed, Name: eventDelete, Object: was.Object, Sequencer: at})
	}
	if hasNew {
		if hadOld && !same && is.Kind == Created {
			is.Name = eventCopy // renamed
		}
		out = append(out, is)
	}
	return out
}

// rewritten tells that an object was copied onto itself, to change its metadata.
func rewritten(n *filer_pb.EventNotification) bool {
	before, after := n.OldEntry, n.NewEntry
	return len(after.Chunks) > 0 && len(before.Chunks) > 0 && fileID(before.Chunks[0]) == fileID(after.Chunks[0])
}

// objectOf is the object whose entry this is, as if it had just been written; false:
// none, or none in scope.
func objectOf(s Scope, dir string, e *filer_pb.Entry, at int64) (ObjectEvent, bool) {
	if e == nil {
		return ObjectEvent{}, false
	}
	o := ObjectEvent{Kind: Created, Name: eventPut, Object: filer.ObjectName{Bucket: s.Bucket}, Sequencer: at}
	var ok bool
	if o.Object.Key, o.Object.Version, ok = keyOf(s, dir, e); !ok || !strings.HasPrefix(o.Object.Key, s.Prefix) {
		return ObjectEvent{}, false
	}
	if e.CommitTsNs > 0 {
		o.Sequencer = e.CommitTsNs
	}
	o.Modified, o.Write = mtimeOf(e), writeOf(dir, e)
	if string(e.Extended[markerKey]) == "true" {
		o.Kind, o.Name = Removed, eventMarker
		return o, true
	}
	if len(e.Extended[uploadKey]) > 0 {
		o.Name = eventComplete
	}
	o.Size, o.ETag, o.ContentType = sizeOf(e), s3ETag(e), e.GetAttributes().GetMime()
	return o, true
}

// keyOf is the key of the object whose entry this is. Neither parts of uploads nor
// folders are objects, nor what Spillway itself keeps in buckets.
func keyOf(s Scope, dir string, e *filer_pb.Entry) (key, version string, ok bool) {
	inside, ok := strings.CutPrefix(dir+"/", s.dir()+"/")
	if !ok || e.Name == "" || len(e.Extended[idKey]) > 0 || inside == "" && e.Name == uploadsDir ||
		strings.HasPrefix(inside, uploadsDir+"/") {
		return "", "", false
	}
	key = inside + e.Name
	switch {
	case !e.IsDirectory && isVersion(dir+"/"+e.Name, e):
		version = strings.TrimPrefix(e.Name, versionStart)
		if version == filer.NullVersion { // the marker of a bucket whose versions are suspended
			version = ""
		}
		return strings.TrimSuffix(inside, versionsEnd+"/"), version, true
	case !e.IsDirectory, e.IsPrefixObject(), sizeOf(e) > 0:
		return key, "", true
	case e.IsDirectoryKeyObject():
		return key + "/", "", true
	}
	return "", "", false
}

// uploadsDir is the folder of a bucket that has the parts of unfinished uploads.
const uploadsDir = ".uploads"

// writeIDKey holds what S3 gives each write of an object.
const writeIDKey = "x-seaweedfs-write-id"

// writeOf tells writes apart, and is not changed by what changes attributes alone.
func writeOf(dir string, e *filer_pb.Entry) uint64 {
	d := xxhash.New()
	part := func(text string) { _, _ = d.WriteString(text + "\x00") } // never fails
	part(dir)
	part(e.Name)
	part(string(e.Extended[writeIDKey]))
	part(mtimeOf(e).UTC().Format(time.RFC3339Nano))
	part(s3ETag(e))
	part(string(e.Content))
	for _, chunk := range e.Chunks {
		part(fileID(chunk))
	}
	return d.Sum64()
}
