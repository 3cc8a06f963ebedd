package client

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
)

// noise is incompressible, so that nothing is gained by what real data allows.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// text compresses like flight records do.
func text(n int) []byte {
	var b []byte
	for i := 0; len(b) < n; i++ {
		b = fmt.Appendf(b, `{"date":"2001-%02d-%02d","delay":%d,"distance":%d,"origin":"ABQ"},`, i%12, i%31, i*7%97, i*13%2500)
	}
	return b[:n]
}

// records gives many different values of one size.
func records(size int, of func(int) []byte) []Record {
	const n = 1000
	all := of(size * n)
	rs := make([]Record, n)
	for i := range rs {
		rs[i] = Record{Key: fmt.Appendf(nil, "key-%d", i%100), Value: all[i*size : (i+1)*size]}
	}
	return rs
}

var kinds = map[string]func(int) []byte{"random": noise, "text": text}

// BenchmarkBatching puts records into batches and drops the batches, packed.
func BenchmarkBatching(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for kind, of := range kinds {
			b.Run(fmt.Sprintf("%dB/%s", size, kind), func(b *testing.B) {
				rs := records(size, of)
				x := newBatcher(time.Hour, DefaultBatchBytes, maxBatchBytes)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					a, err := x.add("flights", &rs[i%len(rs)], callOptions{}, 1)
					if err != nil {
						b.Fatal(err)
					}
					if a.sealed[0] == nil && a.sealed[1] == nil {
						continue
					}
					for full, _ := x.take(time.Time{}); full != nil; full, _ = x.take(time.Time{}) {
						full.pack(Zstandard)
						putBuffer(full.payload)
						x.forget(full)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

// BenchmarkPublish publishes through a loopback server that stores to disk.
func BenchmarkPublish(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for kind, of := range kinds {
			for _, compression := range []string{Zstandard, Null} {
				b.Run(fmt.Sprintf("%dB/%s/%s", size, kind, compression), func(b *testing.B) {
					w := newWorld(b, lane.Settings{MaxBytes: 16 << 30})
					p := w.producer(Options{Compression: compression})
					rs := records(size, of)
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if _, err := p.Publish(b.Context(), "flights", rs[i%len(rs)]); err != nil {
							b.Fatal(err)
						}
					}
					if err := p.Flush(b.Context()); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
				})
			}
		}
	}
}
