package client

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
)

func packed(t *testing.T, q *queue, data []byte) *batch {
	t.Helper()
	raw, err := record.AppendMessage(nil, &record.Record{Value: data})
	if err != nil {
		t.Fatal(err)
	}
	b := &batch{queue: q, topic: q.topic, raw: raw, rows: 1}
	b.pack(Zstandard)
	if b.packErr != nil {
		t.Fatal(b.packErr)
	}
	recs, err := record.DecodeBatch(record.Meta{Time: time.Unix(1, 0), Sequence: 1}, b.codec, b.payload)
	if err != nil || !bytes.Equal(recs[0].Value, data) {
		t.Fatalf("the batch does not decode: %v", err)
	}
	return b
}

func TestCompressionIsTriedWhereItHelps(t *testing.T) {
	noise := make([]byte, 100<<10)
	_, _ = rand.Read(noise)
	text := []byte(strings.Repeat("all work and no play ", 5000))
	q := &queue{topic: "t"}
	if b := packed(t, q, text); b.codec != Zstandard || len(b.payload) > len(text)/10 {
		t.Errorf("text: %s, %d bytes", b.codec, len(b.payload))
	}
	if b := packed(t, q, []byte("tiny")); b.codec != Null {
		t.Errorf("tiny: %s", b.codec)
	}
	if b := packed(t, q, noise); b.codec != Null || len(b.payload) > len(noise)+64 {
		t.Errorf("noise: %s, %d bytes", b.codec, len(b.payload))
	}
	skipped := 0
	for packed(t, q, text).codec == Null {
		skipped++
	}
	if skipped != notTried {
		t.Errorf("%d batches were not tried after one that did not shrink, want %d", skipped, notTried)
	}
	if b := packed(t, q, text); b.codec != Zstandard {
		t.Errorf("text after text: %s", b.codec)
	}
}

func TestBuffers(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 256 << 10, 1 << 20, 1<<20 + 1, 3 << 20} {
		b := getBuffer(n)
		if len(b) != 0 || cap(b) < n {
			t.Errorf("getBuffer(%d): %d of %d", n, len(b), cap(b))
		}
		putBuffer(b)
	}
	for _, odd := range []int{0, 100, 700, 5 << 20} { // what append made of them
		putBuffer(make([]byte, odd))
	}
	for range 100 {
		if b := getBuffer(600); cap(b) < 600 {
			t.Fatalf("a buffer of %d for 600 bytes", cap(b))
		}
	}
}

func TestFIFO(t *testing.T) {
	var f fifo[int]
	next, want := 0, 0
	for round := range 500 {
		for range round % 7 {
			f.push(next)
			next++
		}
		for range min(round%5, f.len()) {
			if f.peek() != want || f.pop() != want {
				t.Fatalf("round %d: not %d", round, want)
			}
			want++
		}
	}
	if f.len() != next-want {
		t.Errorf("len %d, want %d", f.len(), next-want)
	}
}
