package functions

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// s3Notification is a notification in AWS's shape, as far as it says anything here.
type s3Notification struct {
	Records []s3Record
}

type s3Record struct {
	EventVersion string   `json:"eventVersion"`
	EventSource  string   `json:"eventSource"`
	AWSRegion    string   `json:"awsRegion"`
	EventTime    string   `json:"eventTime"`
	EventName    string   `json:"eventName"`
	S3           s3Entity `json:"s3"`
}

type s3Entity struct {
	SchemaVersion   string   `json:"s3SchemaVersion"`
	ConfigurationID string   `json:"configurationId"`
	Bucket          s3Bucket `json:"bucket"`
	Object          s3Object `json:"object"`
}

type s3Bucket struct {
	Name string `json:"name"`
	ARN  string `json:"arn"`
}

type s3Object struct {
	Key         string `json:"key"`
	Size        *int64 `json:"size,omitempty"`
	ETag        string `json:"eTag,omitempty"`
	ContentType string `json:"contentType,omitempty"` // MinIO's, and not AWS's
	VersionID   string `json:"versionId,omitempty"`
	Sequencer   string `json:"sequencer"`
}

// notify makes the message that tells of an event, whose id is the same whenever it
// is told. Its bytes are the same too.
func notify(subject string, e *seaweed.ObjectEvent) (*nats.Msg, error) {
	at := time.Unix(0, e.Sequencer).UTC()
	o := s3Object{Key: escapeKey(e.Object.Key), VersionID: e.Object.Version, Sequencer: fmt.Sprintf("%016X", e.Sequencer)}
	if e.Kind == seaweed.Created {
		o.Size, o.ETag, o.ContentType = &e.Size, e.ETag, e.ContentType
	}
	data, err := json.Marshal(s3Notification{[]s3Record{{
		EventVersion: "2.1", EventSource: "seaweedfs:s3", EventTime: at.Format("2006-01-02T15:04:05.000Z"), EventName: e.Name,
		S3: s3Entity{SchemaVersion: "1.0", ConfigurationID: "spillway", Object: o,
			Bucket: s3Bucket{Name: e.Object.Bucket, ARN: "arn:aws:s3:::" + e.Object.Bucket}},
	}}})
	if err != nil {
		return nil, fmt.Errorf("notification of %s: %w", e.Object, err)
	}
	m := nats.NewMsg(subject)
	m.Data = data
	m.Header.Set(nats.MsgIdHdr, strings.Join([]string{"s3", e.Object.Bucket, o.Key, o.VersionID, o.Sequencer, e.Name}, "/"))
	return m, nil
}

// escapeKey encodes a key as AWS does: as in a form, but for slashes.
func escapeKey(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "%2F", "/") }
