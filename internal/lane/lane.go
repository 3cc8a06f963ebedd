// Package lane knows the names, the stream settings and the wire headers of
// lanes, for those who publish to them and those who read them. A lane is one
// JetStream stream that buffers messages of any topics; the subject names the
// topic.
package lane

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Default is the lane group that topics use unless they are bound to another.
// It has one lane.
const Default = "default"

// Headers of messages in lanes. NATS headers are case-sensitive.
const (
	HeaderKey       = "Spillway-Key"        // partition key of a plain message
	HeaderEventTime = "Spillway-Event-Time" // RFC 3339, of a plain message
	HeaderBatch     = "Spillway-Batch"      // "1": the payload is a batch (FORMAT, "Batches")
	HeaderCodec     = "Spillway-Codec"      // of a batch: "null" or "zstandard"
	HeaderProducer  = "Spillway-Producer"   // of a batch: producer id
	HeaderSequence  = "Spillway-Sequence"   // of a batch: dense from 1 per producer and lane
	HeaderAck       = "Spillway-Ack"        // "stored": flush soon, the publisher waits
	HeaderAfter     = "Spillway-After"      // what must be committed before this message is: see [After]
)

// MaxMessage is the largest payload with headers that JetStream takes by
// default (1 MiB, headers included).
const MaxMessage = 1 << 20

// ID names a lane: a group and a number in it.
type ID struct {
	Group string
	N     int
}

// String gives "default.0". It is a NATS subject suffix and a file name part.
func (id ID) String() string { return id.Group + "." + strconv.Itoa(id.N) }

// ParseID reads what String writes.
func ParseID(s string) (ID, error) {
	group, num, _ := strings.Cut(s, ".")
	n, err := strconv.Atoi(num)
	id := ID{group, n}
	if err != nil || n < 0 || topic.CheckGroup(group) != nil || id.String() != s {
		return ID{}, fmt.Errorf("lane %.80q: want group.number, as in default.0", s)
	}
	return id, nil
}

// Stream is the lane's JetStream stream name: "spillway-lane-default-0".
func (id ID) Stream() string { return fmt.Sprintf("spillway-lane-%s-%d", id.Group, id.N) }

// Subjects are what a lane takes. The default group's lane takes S3 event
// notifications too.
func (id ID) Subjects() []string {
	if id.Group == Default {
		return []string{id.prefix() + "*", eventPrefix + "*"}
	}
	return []string{id.prefix() + "*"}
}

// EventSubject is where S3 event notifications for a topic go, as S3 servers send
// them, whatever lane group the topic is bound to.
func EventSubject(topic string) string { return eventPrefix + topic }

// IsEvent tells of a subject of a lane whether it is for S3 event notifications.
func IsEvent(subject string) bool { return strings.HasPrefix(subject, eventPrefix) }

const eventPrefix = "spillway.s3."

// Subject is where a message for a topic goes in this lane.
func (id ID) Subject(topic string) string { return id.prefix() + topic }

// Topic is the topic that a subject of this lane names. Only the last token is
// looked at.
func (id ID) Topic(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

func (id ID) prefix() string {
	if id.Group == Default {
		return "spillway.in."
	}
	return fmt.Sprintf("spillway.lane.%s.%d.", id.Group, id.N)
}

// CommitSubject is where the lane's checkpoints are announced.
func (id ID) CommitSubject() string { return commitPrefix + id.String() }

const commitPrefix = "spillway.commit."

// Source is the name of a lane's incarnation as a source of records, in file
// names and positions: "lane.default.0.k3j9x2".
func (id ID) Source(incarnation string) string { return "lane." + id.String() + "." + incarnation }

// Announcement is the JSON payload on [ID.CommitSubject]: everything in the
// lane up to and including Checkpoint is committed on the filer.
type Announcement struct {
	Lane        string `json:"lane"`
	Incarnation string `json:"incarnation"`
	Checkpoint  uint64 `json:"checkpoint"`
}

// CommitStream holds the last announcement of every lane (one message per
// subject), so that a publisher that missed one can poll.
const CommitStream = "spillway-commit"

// MetadataIncarnation is the stream metadata key that holds the random id of
// this incarnation of the lane.
const MetadataIncarnation = "spillway-incarnation"

// MetadataLanes is the stream metadata key that holds how many lanes the lane's
// group has. A lane of the default group may lack it.
const MetadataLanes = "spillway-lanes"
