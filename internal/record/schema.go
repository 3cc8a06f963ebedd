package record

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"reflect"
)

const recordName = "spillway.Record"

// fingerprint is the CRC-64-AVRO of the record schema's canonical form, checked
// by a test against an Avro library.
const fingerprint = 0xdb5de67722f900e8

var (
	//go:embed record.avsc
	recordSource []byte
	//go:embed message.avsc
	messageSource []byte

	recordSchema  = compact(recordSource)
	messageSchema = compact(messageSource)
)

// Schema is the Avro schema of chunk files, as it stands in their headers.
func Schema() string { return recordSchema }

// MessageSchema is the Avro schema of the messages in a batch.
func MessageSchema() string { return messageSchema }

// Fingerprint is the CRC-64-AVRO fingerprint of [Schema] in canonical form. It
// changes when the layout of the bytes in chunk files does.
func Fingerprint() uint64 { return fingerprint }

func compact(source []byte) string {
	var b bytes.Buffer
	if err := json.Compact(&b, source); err != nil {
		panic("embedded schema: " + err.Error())
	}
	return b.String()
}

// checkSchema accepts our schema in any wording: docs, white space and the order
// of JSON members do not matter, logical types do.
func checkSchema(text []byte) error {
	if string(text) == recordSchema {
		return nil
	}
	var got, want any
	if err := json.Unmarshal(text, &got); err != nil {
		return &SchemaError{Name: string(text)}
	}
	if err := json.Unmarshal([]byte(recordSchema), &want); err != nil {
		return err
	}
	dropDocs(got)
	dropDocs(want)
	if reflect.DeepEqual(got, want) {
		return nil
	}
	return &SchemaError{Name: schemaName(got, text)}
}

func dropDocs(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		delete(s, "doc")
		for _, v := range s {
			dropDocs(v)
		}
	case []any:
		for _, v := range s {
			dropDocs(v)
		}
	}
}

func schemaName(schema any, text []byte) string {
	m, ok := schema.(map[string]any)
	if !ok {
		return string(text)
	}
	name, ok := m["name"].(string)
	if !ok {
		return string(text)
	}
	if space, ok := m["namespace"].(string); ok && space != "" {
		name = space + "." + name
	}
	return name
}
