package functions

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/s3event"
)

func TestNotify(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	for name, c := range map[string]struct {
		event seaweed.ObjectEvent
		want  s3event.Event
	}{
		"put": {
			seaweed.ObjectEvent{Kind: seaweed.Created, Name: "ObjectCreated:Put", Size: 0, ETag: "e", ContentType: "text/plain", Object: filer.ObjectName{Bucket: "bkt", Key: "d/a+b c%2B.txt"}},
			s3event.Event{Kind: s3event.Created, ETag: "e", ContentType: "text/plain"},
		},
		"version": {
			seaweed.ObjectEvent{Kind: seaweed.Created, Name: "ObjectCreated:CompleteMultipartUpload", Size: 1 << 40, ETag: "e-2", Object: filer.ObjectName{Bucket: "bkt", Key: "🪣/", Version: "v1"}},
			s3event.Event{Kind: s3event.Created, Size: 1 << 40, ETag: "e-2"},
		},
		"marker": {
			seaweed.ObjectEvent{Kind: seaweed.Removed, Name: "ObjectRemoved:DeleteMarkerCreated", Object: filer.ObjectName{Bucket: "bkt", Key: `"<&\`, Version: "v2"}},
			s3event.Event{Kind: s3event.Removed},
		},
	} {
		c.event.Sequencer = at.UnixNano()
		m, err := notify("spillway.s3.t", &c.event)
		if err != nil {
			t.Fatal(err)
		}
		events, err := s3event.Parse(m.Data)
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: %v, %v", name, events, err)
		}
		c.want.Name, c.want.Time, c.want.Sequencer = c.event.Name, at.Truncate(time.Millisecond), fmt.Sprintf("%016X", at.UnixNano())
		c.want.Object.Bucket, c.want.Object.Key, c.want.Object.Version = "bkt", c.event.Object.Key, c.event.Object.Version
		c.want.JSON = events[0].JSON
		if diff := cmp.Diff(c.want, events[0]); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if _, ok := events[0].Order(); !ok {
			t.Errorf("%s: no order", name)
		}
	}
}
