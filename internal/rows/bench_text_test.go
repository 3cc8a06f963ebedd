package rows_test

import (
	"bufio"
	"bytes"
	stdcsv "encoding/csv"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/spillway-mq/spillway/internal/rows"
)

// flights makes lines like those of the flights data, in both formats.
func flights() (ndjson, csv []byte) {
	csv = append(csv, "date,delay,distance,origin,destination\n"...)
	for i := range 200_000 {
		day, delay, distance, from := 1+i/7200, i*7919%200-30, i*104_729%2500, i*31%26
		ndjson = fmt.Appendf(ndjson, `{"date":"2001-01-%02dT%02d:%02d:00Z","delay":%d,"distance":%d,"origin":"A%cL","destination":"O%cD"}`+"\n",
			day, i/60%24, i%60, delay, distance, 'A'+from, 'Z'-from)
		csv = fmt.Appendf(csv, "2001-01-%02dT%02d:%02d:00Z,%d,%d,A%cL,\"O%cD, \"\"X\"\"\"\n", day, i/60%24, i%60, delay, distance, 'A'+from, 'Z'-from)
	}
	return ndjson, csv
}

// What reading costs beside the least that one could do with the same bytes.
func BenchmarkText(b *testing.B) {
	ndjson, csv := flights()
	plain := bytes.ReplaceAll(csv, []byte{'"'}, nil)
	plain = bytes.ReplaceAll(plain, []byte(", X"), nil)
	for _, c := range []struct {
		name string
		data []byte
		run  func(*testing.B, []byte)
	}{
		{"ndjson/rows", ndjson, func(b *testing.B, d []byte) { benchRows(b, d, len(d), rows.Options{Format: rows.NDJSON}) }},
		{"ndjson/gzip", ndjson, func(b *testing.B, d []byte) {
			benchRows(b, gzipped(b, string(d)), len(d), rows.Options{Format: rows.NDJSON, Compression: rows.Gzip})
		}},
		{"ndjson/zstd", ndjson, func(b *testing.B, d []byte) {
			benchRows(b, zstded(b, string(d)), len(d), rows.Options{Format: rows.NDJSON, Compression: rows.Zstd})
		}},
		{"ndjson/bufio.Scanner", ndjson, benchScanner},
		{"csv/rows", plain, func(b *testing.B, d []byte) { benchRows(b, d, len(d), rows.Options{Format: rows.CSV}) }},
		{"csv/encoding", plain, benchEncodingCSV},
		{"quoted/rows", csv, func(b *testing.B, d []byte) { benchRows(b, d, len(d), rows.Options{Format: rows.CSV}) }},
		{"quoted/encoding", csv, benchEncodingCSV},
	} {
		b.Run(c.name, func(b *testing.B) { c.run(b, c.data) })
	}
}

func benchRows(b *testing.B, data []byte, size int, o rows.Options) {
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		n, good := count(b, bytes.NewReader(data), o)
		if n != good || n != 200_000 {
			b.Fatal(n, good)
		}
	}
}

func benchScanner(b *testing.B, data []byte) {
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		n := 0
		for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
			n++
		}
		if n != 200_000 {
			b.Fatal(n)
		}
	}
}

func benchEncodingCSV(b *testing.B, data []byte) {
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r := stdcsv.NewReader(bytes.NewReader(data))
		r.ReuseRecord = true
		n := -1
		for {
			_, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 200_000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkPick(b *testing.B) {
	k := picker(b, rows.Pick{Key: "/origin", Time: "/date", Headers: map[string]string{"to": "/destination"}})
	row := []byte(`{"date":"2001-01-02T03:04:00Z","delay":5,"distance":2500,"origin":"ATL","destination":"ORD"}`)
	b.SetBytes(int64(len(row)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Pick(row); err != nil {
			b.Fatal(err)
		}
	}
}
