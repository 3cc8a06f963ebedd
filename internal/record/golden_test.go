package record

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

var update = flag.Bool("update", false, "write the golden files anew (never for a released format)")

const formatDoc = "../../docs/FORMAT.md"

// The records of FORMAT's examples: a batch of two messages, and after it a
// plain message that was refused.
func goldenRecords() (meta Meta, batch []Record, plain Record) {
	n := int64(40)
	meta = Meta{Time: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC), Sequence: 812, ID: &ID{"p7", 9}}
	batch = []Record{{
		EventTime: time.Date(2001, 1, 1, 0, 12, 0, 0, time.UTC), Key: []byte("SAN"),
		Headers: []Header{{"h", []byte("1")}, {"h", []byte("2")}}, Value: []byte(`{"delay":-3}`),
	}, {
		Ref: &Ref{URL: "s3://b/k", Size: 1000, ETag: "e1", ContentType: "text/csv", Records: &n},
	}}
	plain = Record{Time: meta.Time.Add(time.Second), Position: topic.Position{Sequence: 813}, Rejected: "no", Value: []byte("\xff")}
	return meta, batch, plain
}

func goldenChunk(t *testing.T, codec string) (file []byte, recs []Record) {
	meta, msgs, last := goldenRecords()
	var s Set
	if _, err := s.AppendBatch(meta, CodecNull, batchOf(t, CodecNull, msgs...), slotOf); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&last, 0); err != nil {
		t.Fatal(err)
	}
	for i := range msgs {
		meta.fill(&msgs[i], uint32(i))
	}
	return chunkOf(t, &s, codec), append(msgs, last)
}

// marked gives a reference as it is where its object was not verified, and where
// it was refused for its object.
func marked(r Record) []Record {
	r.Time = r.Time.Add(2 * time.Second)
	pending, refused := r, r
	pending.Position, pending.ID, pending.Pending = topic.Position{Sequence: 814}, nil, true
	refused.Position, refused.ID, refused.Rejected = topic.Position{Sequence: 815}, nil, "the object is another one: its size is 999, not 1000"
	return []Record{pending, refused}
}

func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return want
}

func TestGoldenBatch(t *testing.T) {
	_, msgs, _ := goldenRecords()
	got := batchOf(t, CodecNull, msgs...)
	if want := golden(t, "batch.bin", got); !bytes.Equal(got, want) {
		t.Errorf("the batch is now\n%swas\n%s", hex.Dump(got), hex.Dump(want))
	}
}

func TestGoldenChunk(t *testing.T) {
	got, recs := goldenChunk(t, CodecNull)
	want := golden(t, "chunk.avro", got)
	if !bytes.Equal(got, want) {
		t.Errorf("the chunk is now\n%swas\n%s", hex.Dump(got), hex.Dump(want))
	}
	read, err := readChunk(want)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(recs, read); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A packed chunk may pack differently with another version of the compressor,
// but has to be readable for ever.
func TestGoldenPackedChunk(t *testing.T) {
	got, recs := goldenChunk(t, CodecZstd)
	read, err := readChunk(golden(t, "chunk.zst.avro", got))
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(recs, read); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// FORMAT shows the schema, the golden bytes and the lines of JSON as they are.
func TestFormatDocIsTrue(t *testing.T) {
	text, err := os.ReadFile(formatDoc)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(text)
	if !strings.Contains(doc, "```json\n"+string(recordSource)+"```\n") {
		t.Errorf("FORMAT does not show record.avsc as it is")
	}
	if fp := fmt.Sprintf("`%016x`", Fingerprint()); !strings.Contains(doc, fp) {
		t.Errorf("FORMAT does not give the fingerprint %s", fp)
	}
	for _, name := range []string{"batch.bin", "chunk.avro"} {
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := dump(t, doc, name); !bytes.Equal(got, want) {
			t.Errorf("FORMAT's dump of %s is\n%sthe file is\n%s", name, hex.Dump(got), hex.Dump(want))
		}
	}
	_, recs := goldenChunk(t, CodecNull)
	for i, r := range append(recs, marked(recs[1])...) {
		if line := string(r.AppendJSON(nil, 4711+uint64(i), JSONOptions{Embed: true})); !strings.Contains(doc, line+"\n") {
			t.Errorf("FORMAT does not show the line\n%s", line)
		}
	}
	limits := map[string]int{
		"records in a batch": MaxBatchRows, "bytes of an unpacked batch": MaxBatchBytes, "bytes of a value that the client sends inline": MaxInline,
		"headers of a record": MaxHeaders, "bytes of a text": MaxText, "bytes of a record in a chunk": MaxRecord,
		"bytes of a block of a chunk file, packed or unpacked": maxBlock, "bytes of a chunk file's header": maxHeader,
	}
	for what, n := range limits {
		if row := fmt.Sprintf("| %s | %d |", what, n); !strings.Contains(doc, row) {
			t.Errorf("FORMAT has no row %s", row)
		}
	}
}

var hexLine = regexp.MustCompile(`^((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  .*)?$`)

// dump gives the bytes of the annotated dump of a golden file in FORMAT: lines
// that begin with hex bytes, and one that stands for the schema.
func dump(t *testing.T, doc, name string) []byte {
	t.Helper()
	_, rest, found := strings.Cut(doc, "```text "+name+"\n")
	if !found {
		t.Fatalf("FORMAT has no dump of %s", name)
	}
	block, _, _ := strings.Cut(rest, "```")
	var b []byte
	for line := range strings.Lines(block) {
		line = strings.TrimRight(line, "\n ")
		m := hexLine.FindStringSubmatch(line)
		switch {
		case m != nil:
			part, err := hex.DecodeString(strings.ReplaceAll(m[1], " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, part...)
		case strings.HasPrefix(line, "(schema)"):
			b = append(b, Schema()...)
		case line != "" && !strings.HasPrefix(line, "   "):
			t.Fatalf("FORMAT, dump of %s: what is %q?", name, line)
		}
	}
	return b
}
