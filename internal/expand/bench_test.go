package expand_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/expand"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

// BenchmarkRows reads the rows of an object of 64 MiB through the S3 gateway, without
// a digest and with one.
func BenchmarkRows(b *testing.B) {
	s3 := devtest.Weed(b).Info.S3
	store, err := object.Open(b.Context(), object.Config{Endpoint: s3.URL, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	var data []byte
	for n := 0; len(data) < 64<<20; n++ {
		data = fmt.Appendf(data, "{\"flight\":%d,\"origin\":\"SAN\",\"dest\":\"ABQ\",\"delay\":-3,\"distance\":628.5}\n", n)
	}
	name := object.Name{Bucket: "spillway", Key: "expand/" + rand.Text()}
	info, err := store.Put(b.Context(), name, bytes.NewReader(data), int64(len(data)), object.PutOptions{})
	if err != nil {
		b.Fatal(err)
	}
	f := ref.From(name, info)
	whole := f
	whole.SHA256 = digest(data)
	for name, f := range map[string]record.Ref{"plain": f, "digest": whole} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(f.Size)
			b.ReportAllocs()
			rows := uint64(0)
			for b.Loop() {
				var c expand.Count
				if err := c.Read(b.Context(), store, f, ref.Batch{Format: "ndjson"}); err != nil {
					b.Fatal(err)
				}
				rows += c.Rows
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
