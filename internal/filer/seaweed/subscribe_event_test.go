package seaweed_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

var recordWeed = flag.Bool("record", false, "write the events of the real filer to testdata/events")

// story is what is done in a bucket, and the events that are to come of it.
type story struct {
	name     string
	versions bool
	do       func(b *shelf) error
	want     []string
}

// shelf is a bucket in which a story happens.
type shelf struct {
	gateway
	ctx    context.Context
	t      *testing.T
	filer  *seaweed.Client
	bucket string
}

func (b *shelf) put(key, value string) (version *string, err error) {
	out, err := b.PutObject(b.ctx, &s3.PutObjectInput{Bucket: &b.bucket, Key: &key, Body: strings.NewReader(value), ContentType: aws.String("text/x-odd")})
	if err != nil {
		return nil, err
	}
	return out.VersionId, nil
}

func (b *shelf) delete(key string, version *string) (*string, error) {
	out, err := b.DeleteObject(b.ctx, &s3.DeleteObjectInput{Bucket: &b.bucket, Key: &key, VersionId: version})
	if err != nil {
		return nil, err
	}
	return out.VersionId, nil
}

// all does one thing after the other, if the last one went well.
func all(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (b *shelf) puts(key, value string) func() error {
	return func() error { _, err := b.put(key, value); return err }
}

func (b *shelf) deletes(key string) func() error {
	return func() error { _, err := b.delete(key, nil); return err }
}

const big = "large" // of the object that is put in parts

// stories have what S3 can do to objects, and what SeaweedFS can besides.
var stories = []story{
	{"put", false, func(b *shelf) error { return b.puts("d/a b+c%2B.txt", "x")() },
		[]string{"ObjectCreated:Put d/a b+c%2B.txt 1 text/x-odd"}},
	{"put-empty", false, func(b *shelf) error { return b.puts("k", "")() },
		[]string{"ObjectCreated:Put k 0 text/x-odd"}},
	{"overwrite", false, func(b *shelf) error { return all(b.puts("k", "x"), b.puts("k", "x"), b.puts("k", ""), b.puts("k", "")) },
		[]string{"ObjectCreated:Put k 1 text/x-odd", "ObjectCreated:Put k 1 text/x-odd", "ObjectCreated:Put k 0 text/x-odd", "ObjectCreated:Put k 0 text/x-odd"}},
	{"delete", false, func(b *shelf) error { return all(b.puts("d/k", "x"), b.deletes("d/k"), b.deletes("d/k")) },
		[]string{"ObjectCreated:Put d/k 1 text/x-odd", "ObjectRemoved:Delete d/k"}},
	{"folder-key", false, func(b *shelf) error { return all(b.puts("dir/", ""), b.deletes("dir/")) },
		[]string{"ObjectCreated:Put dir/ 0 text/x-odd", "ObjectRemoved:Delete dir/"}},
	{"key-below-key", false, func(b *shelf) error { return all(b.puts("k/a", "x"), b.puts("k", "yy"), b.deletes("k")) },
		[]string{"ObjectCreated:Put k/a 1 text/x-odd", "ObjectCreated:Put k 2 text/x-odd", "ObjectRemoved:Delete k"}},
	{"multipart", false, func(b *shelf) error {
		_, err := b.Put(b.ctx, b.bucket, big, make([]byte, partSize+1), nil)
		return err
	}, []string{"ObjectCreated:CompleteMultipartUpload large 8388609 text/x-odd"}},
	{"multipart-aborted", false, func(b *shelf) error {
		up, err := b.CreateMultipartUpload(b.ctx, &s3.CreateMultipartUploadInput{Bucket: &b.bucket, Key: aws.String("k")})
		if err != nil {
			return err
		}
		if _, err := b.UploadPart(b.ctx, &s3.UploadPartInput{Bucket: &b.bucket, Key: aws.String("k"), UploadId: up.UploadId,
			PartNumber: aws.Int32(1), Body: bytes.NewReader([]byte("x"))}); err != nil {
			return err
		}
		_, err = b.AbortMultipartUpload(b.ctx, &s3.AbortMultipartUploadInput{Bucket: &b.bucket, Key: aws.String("k"), UploadId: up.UploadId})
		return err
	}, nil},
	{"copy", false, func(b *shelf) error { return all(b.puts("k", "x"), b.copy(b.t, b.bucket, "k", "copy", "")) },
		[]string{"ObjectCreated:Put k 1 text/x-odd", "ObjectCreated:Put copy 1 text/x-odd"}},
	{"copy-onto-itself", false, func(b *shelf) error {
		if err := b.puts("k", "x")(); err != nil {
			return err
		}
		<-time.After(1100 * time.Millisecond) // S3's times are whole seconds
		return b.copy(b.t, b.bucket, "k", "k", types.MetadataDirectiveReplace)()
	}, []string{"ObjectCreated:Put k 1 text/x-odd", "ObjectCreated:Copy k 1 binary/octet-stream"}},
	{"rename", false, func(b *shelf) error {
		return all(b.puts("k", "x"), func() error {
			_, err := b.RenameObject(b.ctx, &s3.RenameObjectInput{Bucket: &b.bucket, Key: aws.String("d/new"), RenameSource: aws.String(b.bucket + "/k")})
			return err
		})
	}, []string{"ObjectCreated:Put k 1 text/x-odd", "touched k", "ObjectRemoved:Delete k", "ObjectCreated:Copy d/new 1 text/x-odd"}},
	{"tags-acl-pin", false, func(b *shelf) error {
		key := aws.String("k")
		return all(b.puts("k", "x"), func() error {
			tags := &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}}
			_, err := b.PutObjectTagging(b.ctx, &s3.PutObjectTaggingInput{Bucket: &b.bucket, Key: key, Tagging: tags})
			return err
		}, func() error {
			_, err := b.PutObjectAcl(b.ctx, &s3.PutObjectAclInput{Bucket: &b.bucket, Key: key, ACL: types.ObjectCannedACLPublicRead})
			return err
		}, func() error { return b.filer.Mark(b.ctx, look(b.t, b.filer, b.bucket, "k"), "Pin-Abc", "v") })
	}, []string{"ObjectCreated:Put k 1 text/x-odd", "touched k", "touched k", "touched k"}},
	{"pin-empty", false, func(b *shelf) error {
		return all(b.puts("k", ""), func() error { return b.filer.Mark(b.ctx, look(b.t, b.filer, b.bucket, "k"), "Pin-Abc", "v") })
	}, []string{"ObjectCreated:Put k 0 text/x-odd", "touched k"}},
	{"spillways-own", false, func(b *shelf) error {
		return b.filer.Create(b.ctx, "/buckets/"+b.bucket+"/topics/t/topic.json", filer.File{ID: filer.NewID(), Content: []byte("{}")})
	}, nil},
	{"versions", true, func(b *shelf) error { return all(b.puts("d/k", "x"), b.puts("d/k", "yy"), b.deletes("d/k")) },
		[]string{"ObjectCreated:Put d/k @1 1 text/x-odd", "ObjectCreated:Put d/k @2 2 text/x-odd", "touched d/k @1",
			"ObjectRemoved:DeleteMarkerCreated d/k @3", "touched d/k @2"}},
	{"versions-deleted", true, func(b *shelf) error {
		first, err := b.put("k", "x")
		if err != nil {
			return err
		}
		marker, err := b.delete("k", nil)
		if err != nil {
			return err
		}
		return all(func() error { _, err := b.delete("k", marker); return err }, func() error { _, err := b.delete("k", first); return err })
	}, []string{"ObjectCreated:Put k @1 1 text/x-odd", "ObjectRemoved:DeleteMarkerCreated k @2", "touched k @1",
		"ObjectRemoved:Delete k @2", "ObjectRemoved:Delete k @1"}},
	{"versions-multipart", true, func(b *shelf) error {
		_, err := b.Put(b.ctx, b.bucket, big, make([]byte, partSize+1), nil)
		return err
	}, []string{"ObjectCreated:CompleteMultipartUpload large @1 8388609 text/x-odd"}},
	{"versions-suspended", true, func(b *shelf) error {
		return all(b.puts("k", "x"), func() error { b.version(b.t, b.bucket, types.BucketVersioningStatusSuspended); return nil },
			b.puts("k", "yy"), b.deletes("k"))
	}, []string{"ObjectCreated:Put k @1 1 text/x-odd", "ObjectCreated:Put k 2 text/x-odd", "touched k @1",
		"ObjectRemoved:Delete k", "ObjectRemoved:DeleteMarkerCreated k"}},
}

// tellAll describes events, versions by the order in which they come.
func tellAll(events []seaweed.ObjectEvent) (lines []string) {
	var versions []string
	for _, e := range events {
		line := "touched"
		if e.Kind != seaweed.Touched {
			line = e.Name
		}
		line += " " + e.Object.Key
		if v := e.Object.Version; v != "" {
			if !slices.Contains(versions, v) {
				versions = append(versions, v)
			}
			line += fmt.Sprintf(" @%d", slices.Index(versions, v)+1)
		}
		if e.Kind == seaweed.Created {
			line += fmt.Sprintf(" %d %s", e.Size, e.ContentType)
		}
		lines = append(lines, line)
	}
	return lines
}

// checkEvents holds events against what they are to be, and what holds of all: each
// later one of an object has a higher sequencer, and touches follow writes.
func checkEvents(t *testing.T, events []seaweed.ObjectEvent, want []string) {
	t.Helper()
	if got := tellAll(events); !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	last, writes := map[filer.ObjectName]int64{}, map[uint64]bool{}
	for _, e := range events {
		if e.Sequencer <= last[e.Object] {
			t.Errorf("%s %s: sequencer %d after %d", e.Name, e.Object, e.Sequencer, last[e.Object])
		}
		switch {
		case e.Kind == seaweed.Touched && (e.Was != last[e.Object] || !writes[e.Write]):
			t.Errorf("%s: touched after %d, and %d was the last", e.Object, e.Was, last[e.Object])
		case e.Kind == seaweed.Created && (writes[e.Write] || e.ETag == "" || time.Unix(0, e.Sequencer).Sub(e.Modified).Abs() > time.Minute):
			t.Errorf("%+v", e)
		}
		last[e.Object], writes[e.Write] = e.Sequencer, true
	}
}

// TestEventsOfRecordings reads what a real filer sent, in testdata/events.
func TestEventsOfRecordings(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			f, err := os.Open(recording(s))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close() //nolint:errcheck // read-only
			var events []seaweed.ObjectEvent
			lines := bufio.NewScanner(f)
			for lines.Buffer(nil, 1<<20); lines.Scan(); {
				m := new(filer_pb.SubscribeMetadataResponse)
				if err := protojson.Unmarshal(lines.Bytes(), m); err != nil {
					t.Fatal(err)
				}
				events = append(events, seaweed.Translate(seaweed.Scope{Bucket: "bkt"}, m)...)
			}
			if err := lines.Err(); err != nil {
				t.Fatal(err)
			}
			checkEvents(t, events, s.want)
		})
	}
}

func recording(s story) string { return filepath.Join("testdata", "events", s.name+".jsonl") }

// TestEventsOfWeed has the stories happen on a real one.
func TestEventsOfWeed(t *testing.T) {
	c, g := dial(t, seaweed.Config{}), s3Gateway(t)
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			b := &shelf{g, t.Context(), t, c, g.MakeBucket(t, s.versions)}
			since := time.Now().UnixNano()
			if err := s.do(b); err != nil {
				t.Fatal(err)
			}
			if *recordWeed {
				recordEvents(t, c, b.bucket, since, recording(s))
			}
			var events []seaweed.ObjectEvent
			if err := c.Subscribe(t.Context(), seaweed.Scope{Bucket: b.bucket}, since, false, func(s seaweed.Step) error {
				events = append(events, s.Events...)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			checkEvents(t, events, s.want)
			checkListing(t, c, b.bucket, events)
		})
	}
}

// checkListing: what a listing tells of a bucket is what the events told that came
// last, with the same writes, and sequencers that are the same where nothing was
// touched since.
func checkListing(t *testing.T, c *seaweed.Client, bucket string, events []seaweed.ObjectEvent) {
	t.Helper()
	last := map[filer.ObjectName]seaweed.ObjectEvent{}
	for _, e := range events {
		switch {
		case e.Write == 0:
			delete(last, e.Object)
		case e.Kind == seaweed.Touched:
			was := last[e.Object]
			was.Sequencer = e.Sequencer
			last[e.Object] = was
		default:
			last[e.Object] = e
		}
	}
	err := c.Written(t.Context(), seaweed.Scope{Bucket: bucket}, func(o seaweed.ObjectEvent) error {
		was := last[o.Object]
		delete(last, o.Object)
		if o.Write != was.Write || o.Sequencer != was.Sequencer || o.Kind != was.Kind || o.ETag != was.ETag {
			t.Errorf("found %+v, and was told %+v", o, was)
		}
		return nil
	})
	if err != nil || len(last) > 0 {
		t.Errorf("not found: %+v, %v", last, err)
	}
}

// recordEvents writes a filer's messages as they come, but for the bucket's name.
func recordEvents(t *testing.T, c *seaweed.Client, bucket string, since int64, file string) {
	t.Helper()
	stream, err := c.RPC().SubscribeMetadata(t.Context(), &filer_pb.SubscribeMetadataRequest{
		ClientName: "recorder", PathPrefix: "/buckets/" + bucket, SinceNs: since, UntilNs: math.MaxInt64,
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		line, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", bytes.ReplaceAll(line, []byte(bucket), []byte("bkt")))
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
