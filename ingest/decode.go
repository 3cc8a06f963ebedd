package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// decoder turns messages of one source into records in chunk encoding.
type decoder struct {
	source  string
	objects *segment.ObjectTable // of S3 events up to the last message; nil before the first
}

// HeaderTopic is set on records of the system topic "unrouted": the topic that
// they were published to.
const HeaderTopic = "Spillway-Topic"

// batchID is the identity of a batch, nil for plain messages.
func batchID(h map[string][]string) (*record.ID, error) {
	if h[lane.HeaderBatch] == nil {
		return nil, nil
	}
	producer, err := single(h, lane.HeaderProducer)
	if err != nil || producer == "" {
		return nil, errors.Join(errors.New("batch without a producer"), err)
	}
	if len(producer) > 64 {
		return nil, fmt.Errorf("producer id of %d bytes, at most 64 are allowed", len(producer))
	}
	text, err := single(h, lane.HeaderSequence)
	if err != nil {
		return nil, err
	}
	seq, err := strconv.ParseUint(text, 10, 63)
	if err != nil || seq == 0 {
		return nil, fmt.Errorf("batch sequence %.40q", text)
	}
	return &record.ID{Producer: producer, Sequence: seq}, nil
}

// single is the value of a header that may appear at most once.
func single(h map[string][]string, name string) (string, error) {
	switch values := h[name]; len(values) {
	case 0:
		return "", nil
	case 1:
		return values[0], nil
	default:
		return "", fmt.Errorf("header %s is given %d times", name, len(values))
	}
}

// into appends the records of m to set. A message that cannot be accepted is
// appended as one rejected record (rule 23); the returned counts tell.
func (d decoder) into(set *record.Set, m Message, id *record.ID, key topic.Key) (rows, rejected int, err error) {
	data, recs := len(set.Data), len(set.Recs)
	if m.Header[lane.HeaderBatch] == nil {
		rows, rejected, err = d.plain(set, m, key)
	} else {
		rows, rejected, err = d.batch(set, m, id, key)
	}
	if err == nil {
		return rows, rejected, nil
	}
	// Rows before the bad one are in the set already; the message is rejected
	// as a whole.
	set.Data, set.Recs = set.Data[:data], set.Recs[:recs]
	if err := d.reject(set, m, id, err.Error()); err != nil {
		return 0, 0, err
	}
	return 1, 1, nil
}

// slotOf places a record by its key, or spreads it evenly.
func (d decoder) slotOf(key topic.Key) func(topic.Position, []byte) topic.Slot {
	return func(p topic.Position, k []byte) topic.Slot {
		if k == nil || key == topic.KeyNone {
			return topic.SpreadSlot(d.source, p)
		}
		return topic.SlotOf(k)
	}
}

func (d decoder) batch(set *record.Set, m Message, id *record.ID, key topic.Key) (rows, rejected int, err error) {
	version, err := single(m.Header, lane.HeaderBatch)
	if err != nil {
		return 0, 0, err
	}
	if version != "1" {
		return 0, 0, fmt.Errorf("batch version %.40q is not known", version)
	}
	codec, err := single(m.Header, lane.HeaderCodec)
	if err != nil {
		return 0, 0, err
	}
	meta := record.Meta{Time: m.Time, Sequence: m.Sequence, ID: id}
	if key.Pointer() == nil {
		rows, err = set.AppendBatch(meta, codec, m.Data, d.slotOf(key))
		return rows, 0, err
	}
	records, err := record.DecodeBatch(meta, codec, m.Data)
	if err != nil {
		return 0, 0, err
	}
	for i := range records {
		bad, err := d.keyed(set, &records[i], key)
		if err != nil {
			return 0, 0, err
		}
		rejected += bad
	}
	return len(records), rejected, nil
}

func (d decoder) plain(set *record.Set, m Message, key topic.Key) (rows, rejected int, err error) {
	r := record.Record{Time: m.Time, Position: topic.Position{Sequence: m.Sequence}, Value: m.Data}
	if r.Value == nil {
		r.Value = []byte{} // a message has a payload, if an empty one: not null
	}
	if m.Header[lane.HeaderKey] != nil {
		k, err := single(m.Header, lane.HeaderKey)
		if err != nil {
			return 0, 0, err
		}
		r.Key = []byte(k)
	}
	if m.Header[lane.HeaderEventTime] != nil {
		text, err := single(m.Header, lane.HeaderEventTime)
		if err != nil {
			return 0, 0, err
		}
		if r.EventTime, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return 0, 0, fmt.Errorf("header %s: %.60q is not a time as in 2006-01-02T15:04:05Z", lane.HeaderEventTime, text)
		}
	}
	r.Headers = headers(m.Header, func(name string) bool { return !strings.HasPrefix(name, "Spillway-") })
	rejected, err = d.keyed(set, &r, key)
	return 1, rejected, err
}

// keyed appends a record whose partition key, for topics keyed by a JSON
// pointer, is first taken from its value. A reference keeps the key that it was
// published with: its value is elsewhere, and may change.
func (d decoder) keyed(set *record.Set, r *record.Record, key topic.Key) (rejected int, err error) {
	if pointer := key.Pointer(); pointer != nil && r.Ref == nil {
		k, err := keyAt(r.Value, pointer)
		if err != nil {
			r.Rejected = err.Error()
			return 1, set.Append(r, topic.SpreadSlot(d.source, r.Position))
		}
		r.Key = k
	}
	return 0, set.Append(r, d.slotOf(key)(r.Position, r.Key))
}

// reject appends a message as one rejected record with its original bytes.
func (d decoder) reject(set *record.Set, m Message, id *record.ID, reason string) error {
	r := record.Record{
		Time: m.Time, ID: id, Position: topic.Position{Sequence: m.Sequence}, Rejected: reason, Value: m.Data,
		Headers: headers(m.Header, func(string) bool { return true }),
	}
	for i := range r.Headers {
		r.Headers[i].Name = strings.ToValidUTF8(r.Headers[i].Name, "\uFFFD")
	}
	return set.Append(&r, topic.SpreadSlot(d.source, r.Position))
}

// headers lists a message's headers by name, since the order in which they were
// sent is not known. Repeated ones keep their order.
func headers(h map[string][]string, keep func(string) bool) []record.Header {
	names := make([]string, 0, len(h))
	for name := range h {
		if keep(name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var list []record.Header
	for _, name := range names {
		for _, v := range h[name] {
			list = append(list, record.Header{Name: name, Value: []byte(v)})
		}
	}
	return list
}

// keyAt takes the partition key from a JSON value: a string's text, or the
// literal of a number or boolean as it is written. Absent and null are no key.
func keyAt(value []byte, pointer []string) ([]byte, error) {
	if tooDeep(value) || !gjson.ValidBytes(value) {
		return nil, errors.New("the partition key is a JSON pointer, but the value is not JSON")
	}
	at := gjson.ParseBytes(value)
	for _, token := range pointer {
		at = child(at, token)
	}
	switch at.Type {
	case gjson.Null:
		return nil, nil
	case gjson.String:
		return []byte(at.Str), nil
	case gjson.Number, gjson.True, gjson.False:
		return []byte(at.Raw), nil
	}
	return nil, fmt.Errorf("the partition key at /%s is an object or array", strings.Join(pointer, "/"))
}

// tooDeep tells of a value that it is not JSON, or nested so deep that looking into
// it would take a stack of 100 MiB. encoding/json, which bounds the depth, is asked
// only about values that could be so.
func tooDeep(value []byte) bool {
	const most = 10_000
	return bytes.Count(value, []byte("["))+bytes.Count(value, []byte("{")) > most && !json.Valid(value)
}

// child is one step of a JSON pointer. Of repeated names the first counts.
func child(v gjson.Result, token string) (found gjson.Result) {
	switch {
	case v.IsObject():
		v.ForEach(func(name, value gjson.Result) bool {
			if name.Str == token {
				found = value
				return false
			}
			return true
		})
	case v.IsArray():
		i, err := strconv.Atoi(token)
		if list := v.Array(); err == nil && i >= 0 && i < len(list) && strconv.Itoa(i) == token {
			found = list[i]
		}
	}
	return found
}
