package functions

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/spillway-mq/spillway/internal/lane"
)

// bomb is a zstd frame that unpacks to n bytes: blocks of one repeated byte. A
// frame may tell its size first.
func bomb(n uint64, told bool) []byte {
	const block = 128 << 10
	frame := []byte{0x28, 0xB5, 0x2F, 0xFD} // magic number
	if told {
		frame = append(frame, 3<<6, 7<<3) // a size of 8 bytes; a window of 128 KiB
		frame = binary.LittleEndian.AppendUint64(frame, n)
	} else {
		frame = append(frame, 0, 7<<3)
	}
	for ; n > 0; n -= block {
		last := uint32(0)
		if n == block {
			last = 1
		}
		head := last | 1<<1 | block<<3 // a block of one repeated byte
		frame = append(frame, byte(head), byte(head>>8), byte(head>>16), 0)
	}
	return frame
}

// batchOf is a batch's payload: a number of rows and the data, which may lie.
func batchOf(rows int64, data []byte) []byte {
	b := binary.AppendVarint(nil, rows)
	return append(binary.AppendVarint(b, int64(len(data))), data...)
}

// TestHostileBatches: batches that claim far more than they hold are committed
// as rejected, with their bytes, in bounded memory, and the lane flows on. Not
// parallel: it measures what it allocates.
func TestHostileBatches(t *testing.T) {
	b := newBench(t, 0)
	const tenGiB = 10 << 30
	hostile := []struct {
		codec   string
		payload []byte
	}{
		{"null", batchOf(1<<60, []byte("x"))},
		{"zstandard", batchOf(1<<60, bomb(128<<10, false))},
		{"zstandard", batchOf(1, bomb(tenGiB, false))},
		{"zstandard", batchOf(1, bomb(tenGiB, true))},
		{"zstandard", batchOf(1<<16, bomb(tenGiB, true))},
		{"zstandard", binary.AppendVarint(binary.AppendVarint(nil, 1), 1<<60)}, // bytes that are not there
	}
	for i, h := range hostile {
		m := nats.NewMsg(laneID.Subject("t"))
		m.Data = h.payload
		for name, v := range map[string]string{
			lane.HeaderBatch: "1", lane.HeaderCodec: h.codec, lane.HeaderProducer: "hostile", lane.HeaderSequence: string(rune('1' + i)),
		} {
			m.Header.Set(name, v)
		}
		if _, err := b.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	b.publish(t, 10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sum, err := b.once(t, 0)
	runtime.ReadMemStats(&after)
	if err != nil || sum.Rejected != uint64(len(hostile)) || sum.Committed != sum.Rejected+10 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; grown > 128 {
		t.Errorf("%d MiB were allocated for it", grown)
	}
	items := b.read(t, "t")
	for i, item := range items {
		switch {
		case i >= len(hostile):
			if item.Rejected != "" || item.Value[0] != byte(i-len(hostile)) {
				t.Errorf("record %d after them: %q, %q", i, item.Value, item.Rejected)
			}
		case item.Rejected == "" || string(item.Value) != string(hostile[i].payload):
			t.Errorf("batch %d: rejected: %q, with %d bytes of %d", i, item.Rejected, len(item.Value), len(hostile[i].payload))
		default:
			t.Logf("batch %d: %s", i, strings.TrimSpace(item.Rejected))
		}
	}
	b.verify(t, "t")
}
