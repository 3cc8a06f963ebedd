package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/object"
)

const (
	photos     = "photos" // the topic, and a folder in the stack's bucket
	photoCount = 6
	photoBytes = 4 << 20
)

// submitReferences puts objects into S3 and passes only references on. Then one
// object is overwritten, and is reported as what it is.
func (d *demo) submitReferences(ctx context.Context) error {
	info := d.env.Stack.Info
	d.step("by reference: put %d objects of %s into S3, and submit what they are called", photoCount, humanize.IBytes(photoBytes))
	store, err := object.Open(ctx, object.Config{Endpoint: info.S3.URL, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := d.putPhotos(ctx, store); err != nil {
		return err
	}
	if _, err := d.env.CLI(ctx, "topic", "create", photos, "--allow", info.Bucket+"/"+photos+"/"); err != nil {
		return err
	}
	before, err := d.lane.Bytes(ctx)
	if err != nil {
		return err
	}
	if _, err := d.env.CLI(ctx, "submit", photos, "--prefix", "s3://"+info.Bucket+"/"+photos+"/", "--ack", "stored"); err != nil {
		return err
	}
	after, err := d.lane.Bytes(ctx)
	if err != nil {
		return err
	}
	d.say("%s of objects; through NATS went %s", humanize.IBytes(photoCount*photoBytes), humanize.IBytes(after-before))
	d.say("The worker has looked at each object, and pinned it, before it committed its record: spillway refs check %s", photos)
	if err := d.checkRefs(ctx, map[string]int{"valid": photoCount}); err != nil {
		return err
	}
	d.say("Somebody overwrites %s:", d.photo(0))
	if _, err := store.Put(ctx, d.photo(0), strings.NewReader("oops"), 4, object.PutOptions{}); err != nil {
		return err
	}
	return d.checkRefs(ctx, map[string]int{"valid": photoCount - 1, "changed": 1})
}

func (d *demo) putPhotos(ctx context.Context, store *object.Store) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range photoCount {
		g.Go(func() error {
			data := make([]byte, photoBytes)
			_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(data) // it returns no error
			_, err := store.Put(ctx, d.photo(i), bytes.NewReader(data), photoBytes, object.PutOptions{ContentType: "image/x-noise"})
			return err
		})
	}
	return g.Wait()
}

func (d *demo) photo(i int) object.Name {
	return object.Name{Bucket: d.env.Stack.Info.Bucket, Key: fmt.Sprintf("%s/%d", photos, i)}
}

// checkRefs shows what `spillway refs check` says of the topic, and compares it.
func (d *demo) checkRefs(ctx context.Context, want map[string]int) error {
	shown, _ := d.env.CLI(ctx, "refs", "check", photos) // it fails where it finds something
	d.sayAll(shown)
	out, err := d.env.CLI(ctx, "refs", "check", photos, "--json")
	var report struct {
		States   map[string]int `json:"states"`
		Unpinned int            `json:"unpinned"`
	}
	if bad := json.Unmarshal(out, &report); bad != nil {
		return errors.Join(fmt.Errorf("spillway refs check printed no report: %w", bad), err)
	}
	maps.DeleteFunc(report.States, func(_ string, n int) bool { return n == 0 })
	if !maps.Equal(report.States, want) || report.Unpinned > 0 {
		return errors.Join(fmt.Errorf("refs check counts %v and %d that are not pinned, want %v", report.States, report.Unpinned, want), err)
	}
	return nil
}
