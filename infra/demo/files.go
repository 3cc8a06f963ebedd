package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/hamba/avro/v2/ocf"

	"github.com/spillway-mq/spillway/internal/segment"
)

const (
	showFiles   = 4
	showRecords = 3
	maxFile     = 64 << 20
)

// showFiles lists the topic's files and opens one as anybody can: over plain
// HTTP, with an Avro library that shares no code with Spillway's.
func (d *demo) showFiles(ctx context.Context) error {
	d.step("look at the files: Avro object container files, each with a URL on the filer and a name in S3")
	chunks, err := d.chunks(ctx)
	if err != nil {
		return err
	}
	if len(chunks) == 0 {
		return errors.New("the topic has no files")
	}
	base := "http://" + d.env.Stack.Info.Filer
	for i, c := range chunks {
		if i == showFiles {
			d.say("… and %d more", len(chunks)-showFiles)
			break
		}
		name := strings.TrimPrefix(c.Entry.Path, "/buckets/")
		d.say("%s%s", base, c.Entry.Path)
		d.say("  s3://%s   %s, %d records from offset %d", name, humanize.IBytes(uint64(c.Entry.Size)), c.Count, c.Base)
	}
	first := chunks[0].Entry.Path
	d.step("open %s with github.com/hamba/avro", path.Base(first))
	data, err := fetch(ctx, base+first)
	if err != nil {
		return err
	}
	return d.showRecords(data)
}

func (d *demo) chunks(ctx context.Context) ([]segment.Chunk, error) {
	t, err := d.env.Store.Topic(ctx, topicName)
	if err != nil {
		return nil, err
	}
	segments, err := t.Segments(ctx)
	if err != nil {
		return nil, err
	}
	var chunks []segment.Chunk
	for _, s := range segments {
		for c, err := range s.Chunks(ctx, 0) {
			if err != nil {
				return nil, err
			}
			if !c.Sealed {
				chunks = append(chunks, c)
			}
		}
	}
	return chunks, nil
}

func fetch(ctx context.Context, url string) (_ []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("get a file from the filer: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxFile))
}

// showRecords prints the first records of an Avro file.
func (d *demo) showRecords(data []byte) error {
	dec, err := ocf.NewDecoder(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("open the file with a stock Avro reader: %w", err)
	}
	n := 0
	for ; n < showRecords && dec.HasNext(); n++ {
		var record map[string]any
		if err := dec.Decode(&record); err != nil {
			return fmt.Errorf("read the file with a stock Avro reader: %w", err)
		}
		d.say("ts %v  sequence %v  row %v  key %s  value %s", record["ts"], record["sequence"], record["row"], text(record["key"]), text(record["value"]))
	}
	if err := dec.Error(); err != nil {
		return fmt.Errorf("read the file with a stock Avro reader: %w", err)
	}
	if n == 0 {
		return errors.New("a stock Avro reader finds no record in the file")
	}
	return nil
}

// text shows bytes as what they are here: text. Of a union the reader may give
// the value as such or with its branch.
func text(v any) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case map[string]any:
		for _, branch := range v {
			return text(branch)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
