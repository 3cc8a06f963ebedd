package seaweed_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// FuzzTranslate: whatever a filer sends, what comes of it is of the scope, and the
// same again.
func FuzzTranslate(f *testing.F) {
	const bkt = "/buckets/bkt"
	f.Add(bkt, "", "k", uint16(0b10_0010), int64(1), uint64(1), "2,01", "", "")
	f.Add(bkt+"/d", bkt+"/e", "k", uint16(0b11_0011), int64(1), uint64(0), "", "Seaweed-X-Amz-ETag", `"e"`)
	f.Add(bkt+"/k.versions", "", "v_null", uint16(0b10_0110), int64(-1), uint64(1<<63), "x", "Seaweed-X-Amz-Delete-Marker", "true")
	f.Add(bkt+"/k.versions", "", "v_1", uint16(0b11_0100), int64(1<<62), uint64(3), "2,01", "Seaweed-X-Amz-Version-Id", "1")
	f.Add(bkt, bkt, "dir", uint16(0b11_1111), int64(0), uint64(0), "", "x-seaweedfs-prefix-object", "true")
	f.Add("/buckets", "", "bkt", uint16(0b10_1010), int64(0), uint64(0), "", "", "")
	f.Fuzz(func(t *testing.T, dir, to, name string, shape uint16, mtime int64, size uint64, fid, key, value string) {
		has := func(bit int) bool { return shape>>bit&1 == 1 }
		entry := func(n int64) *filer_pb.Entry {
			e := &filer_pb.Entry{Name: name, IsDirectory: has(3), CommitTsNs: mtime + n, Extended: map[string][]byte{key: []byte(value)}}
			if has(1) {
				e.Attributes = &filer_pb.FuseAttributes{Mtime: mtime, MtimeNs: int32(mtime), FileSize: size, Mime: value, Md5: []byte(key)}
			}
			if has(2) {
				e.Chunks = []*filer_pb.FileChunk{{FileId: fid, Size: size, Offset: mtime, ETag: value}, {Size: size}}
			}
			if has(6) {
				e.Content = []byte(value)
			}
			return e
		}
		m := &filer_pb.SubscribeMetadataResponse{Directory: dir, TsNs: mtime, EventNotification: &filer_pb.EventNotification{NewParentPath: to}}
		if has(4) {
			m.EventNotification.OldEntry = entry(0)
		}
		if has(5) {
			m.EventNotification.NewEntry = entry(int64(shape & 1))
		}
		s := seaweed.Scope{Bucket: "bkt", Prefix: strings.Trim(fid, "/")}
		events := seaweed.Translate(s, m)
		if len(events) > 2 {
			t.Errorf("%d events", len(events))
		}
		for _, e := range events {
			if e.Object.Bucket != "bkt" || e.Object.Key == "" || !strings.HasPrefix(e.Object.Key, s.Prefix) ||
				e.Kind == 0 || (e.Kind == seaweed.Touched) != (e.Name == "") {
				t.Errorf("%+v", e)
			}
		}
		if again := seaweed.Translate(s, m); !reflect.DeepEqual(events, again) {
			t.Errorf("%+v, and then %+v", events, again)
		}
	})
}
