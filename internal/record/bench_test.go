package record

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
)

// textSet is a set of n records of JSON-like text.
func textSet(t tb, n int, seed uint64) *Set {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 7))
	airports := []string{"ATL", "ORD", "DFW", "LAX", "PHX", "STL", "DTW", "MSP", "LAS", "BOS"}
	recs := make([]Record, n)
	for i := range recs {
		value := fmt.Appendf(nil, `{"date":"2001-01-%02dT%02d:%02d:00Z","delay":%d,"distance":%d,"origin":%q,"destination":%q}`,
			1+i*28/n, rnd.IntN(24), rnd.IntN(60), rnd.IntN(200)-30, rnd.IntN(2500), airports[rnd.IntN(10)], airports[rnd.IntN(10)])
		recs[i] = plain(i, value)
	}
	return setOf(t, recs...)
}

// randomMessages is a batch of about 256 KiB of random values.
func randomMessages(size int) []Record {
	rnd := rand.NewChaCha8([32]byte{1})
	msgs := make([]Record, 256<<10/size)
	for i := range msgs {
		msgs[i] = Record{Key: fmt.Appendf(nil, "key-%06d", i*7919%100_000), Value: make([]byte, size-12)}
		rnd.Read(msgs[i].Value)
	}
	return msgs
}

func BenchmarkAppendMessage(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := randomMessages(size)[0]
			var dst []byte
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if dst, err = AppendMessage(dst[:0], &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendBatch(b *testing.B) {
	for _, codec := range []string{CodecNull, CodecZstd} {
		for _, size := range []int{100, 1024} {
			b.Run(fmt.Sprintf("%s/%d", codec, size), func(b *testing.B) {
				msgs := randomMessages(size)
				batch := batchOf(b, codec, msgs...)
				m := Meta{Time: t0, Sequence: 123456789, ID: &ID{"a1b2c3d4e5f6", 4711}}
				var s Set
				b.SetBytes(int64(len(msgs) * size))
				b.ReportAllocs()
				for b.Loop() {
					if len(s.Data) > MaxBatchBytes {
						s.Reset()
					}
					if _, err := s.AppendBatch(m, codec, batch, slotOf); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(msgs)), "ns/record")
			})
		}
	}
}

func benchSets(b *testing.B) map[string]*Set {
	var random Set
	batch := batchOf(b, CodecNull, randomMessages(1024)...)
	for seq := uint64(1); len(random.Data) < 8<<20; seq++ {
		if _, err := random.AppendBatch(Meta{Time: t0, Sequence: seq}, CodecNull, batch, slotOf); err != nil {
			b.Fatal(err)
		}
	}
	return map[string]*Set{"random": &random, "text": textSet(b, 70_000, 1)}
}

func BenchmarkEncodeChunk(b *testing.B) {
	for name, s := range benchSets(b) {
		for _, codec := range []string{CodecNull, CodecZstd} {
			b.Run(codec+"/"+name, func(b *testing.B) {
				var dst []byte
				b.SetBytes(int64(len(s.Data)))
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if dst, err = EncodeChunk(dst[:0], s, codec); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(len(s.Data))/float64(len(dst)), "ratio")
			})
		}
	}
}

func BenchmarkReader(b *testing.B) {
	for name, s := range benchSets(b) {
		for _, codec := range []string{CodecNull, CodecZstd} {
			file := chunkOf(b, s, codec)
			b.Run(codec+"/"+name+"/Read", func(b *testing.B) { benchRead(b, file, s, (*Reader).Read) })
			b.Run(codec+"/"+name+"/Next", func(b *testing.B) {
				benchRead(b, file, s, func(rd *Reader, r *Record) (err error) {
					*r, err = rd.Next()
					return err
				})
			})
		}
	}
}

func benchRead(b *testing.B, file []byte, s *Set, read func(*Reader, *Record) error) {
	b.SetBytes(int64(len(s.Data)))
	b.ReportAllocs()
	for b.Loop() {
		rd, err := NewReader(bytes.NewReader(file))
		if err != nil {
			b.Fatal(err)
		}
		var r Record
		n := 0
		for ; ; n++ {
			if err := read(rd, &r); err == io.EOF { //nolint:errorlint // the contract is io.EOF itself
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		if n != len(s.Recs) {
			b.Fatalf("%d records of %d", n, len(s.Recs))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(s.Recs)), "ns/record")
}

func BenchmarkAppendJSON(b *testing.B) {
	r := plain(1, []byte(`{"date":"2001-01-01T00:12:00Z","delay":-3,"distance":480,"origin":"SAN","destination":"PHX"}`))
	for name, o := range map[string]JSONOptions{"string": {}, "embed": {Embed: true}} {
		b.Run(name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst = r.AppendJSON(dst[:0], 1, o)
			}
		})
	}
}
