package seaweed_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// TestMarksAtTheGateway is what docs/adr/0015-pins.md says about what becomes of
// marks when others work on the object.
func TestMarksAtTheGateway(t *testing.T) {
	const key, value = "k", "t 2026-01-01T00:00:00Z x"
	c, g := dial(t, seaweed.Config{}), s3Gateway(t)
	bucket := g.MakeBucket(t, false)
	for what, step := range map[string]struct {
		do    func() error
		at    string // where to look afterwards
		stays bool
	}{
		"nothing": {func() error { return nil }, key, true},
		"tagged": {func() error {
			tags := &types.Tagging{TagSet: []types.Tag{{Key: aws.String("a"), Value: aws.String("b")}}}
			_, err := g.PutObjectTagging(t.Context(), &s3.PutObjectTaggingInput{Bucket: &bucket, Key: aws.String(key), Tagging: tags})
			return err
		}, key, true},
		"acl": {func() error {
			_, err := g.PutObjectAcl(t.Context(), &s3.PutObjectAclInput{Bucket: &bucket, Key: aws.String(key), ACL: types.ObjectCannedACLPublicRead})
			return err
		}, key, true},
		"put again": {func() error { _, err := g.Put(t.Context(), bucket, key, []byte("bytes"), nil); return err }, key, false},
		"put in parts": {func() error {
			_, err := g.Put(t.Context(), bucket, key, make([]byte, partSize+1), nil)
			return err
		}, key, false},
		"copied":                        {g.copy(t, bucket, key, "copy", ""), "copy", true},
		"copied with other metadata":    {g.copy(t, bucket, key, "other", types.MetadataDirectiveReplace), "other", false},
		"onto itself, for its metadata": {g.copy(t, bucket, key, key, types.MetadataDirectiveReplace), key, false},
		"renamed, which SeaweedFS can do": {func() error {
			_, err := g.RenameObject(t.Context(), &s3.RenameObjectInput{Bucket: &bucket, Key: aws.String("new"), RenameSource: aws.String(bucket + "/" + key)})
			return err
		}, "new", true},
	} {
		if _, err := g.Put(t.Context(), bucket, key, []byte("bytes"), nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Mark(t.Context(), look(t, c, bucket, key), "Pin-Abc", value); err != nil {
			t.Fatal(err)
		}
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		head, err := g.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: &bucket, Key: &step.at})
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if step.stays {
			want = value
		}
		if has := look(t, c, bucket, step.at).Attrs["Pin-Abc"]; has != want || head.Metadata["spillway-pin-abc"] != want {
			t.Errorf("%s: has %q, and S3 shows %q", what, has, head.Metadata)
		}
	}
}

func (g gateway) copy(t *testing.T, bucket, from, to string, how types.MetadataDirective) func() error {
	return func() error {
		_, err := g.CopyObject(t.Context(), &s3.CopyObjectInput{
			Bucket: &bucket, Key: &to, CopySource: aws.String(bucket + "/" + from), MetadataDirective: how,
		})
		return err
	}
}

func look(t *testing.T, c *seaweed.Client, bucket, key string) filer.Object {
	t.Helper()
	o, err := c.Look(t.Context(), filer.ObjectName{Bucket: bucket, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestSuspendedVersions follows the current object through a bucket that has
// versions for a while only.
func TestSuspendedVersions(t *testing.T) {
	c, g := dial(t, seaweed.Config{}), s3Gateway(t)
	bucket := g.MakeBucket(t, false)
	n := filer.ObjectName{Bucket: bucket, Key: "k"}
	for i, step := range []struct {
		status types.BucketVersioningStatus // empty: as before
		put    string                       // empty: delete
	}{
		{"", "a"}, {types.BucketVersioningStatusEnabled, "bb"}, {"", ""}, {"", "ccc"}, {types.BucketVersioningStatusSuspended, "dddd"}, {"", "eeeee"},
		{"", ""}, {types.BucketVersioningStatusEnabled, "ffffff"},
	} {
		check := func() {
			t.Helper()
			o, err := c.Look(t.Context(), n)
			seen, seenErr := g.Get(t.Context(), n)
			if (err == nil) != (seenErr == nil) || o.Size != seen.Size || o.ETag != seen.ETag {
				t.Errorf("step %d: found %+v, %v; S3 shows %+v, %v", i, o, err, seen, seenErr)
			}
		}
		if step.status != "" {
			g.version(t, bucket, step.status)
			check()
		}
		var err error
		if step.put == "" {
			err = g.Delete(t.Context(), n)
		} else {
			_, err = g.Put(t.Context(), bucket, n.Key, []byte(step.put), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		check()
		// SeaweedFS loses what the last step puts: its delete marker of step 6 still
		// counts as the current version. So do we, then.
		if o, err := c.Look(t.Context(), n); err == nil {
			if err := c.Mark(t.Context(), o, "Test", step.put); err != nil {
				t.Errorf("step %d: %v", i, err)
			}
			check()
		}
	}
}
