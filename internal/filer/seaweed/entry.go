package seaweed

import (
	"cmp"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"mime"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-mq/spillway/internal/filer"
)

const (
	idKey       = filer.AttrPrefix + "Entry-Id"
	fileMode    = 0o660
	octetStream = "application/octet-stream"
)

// placed is what Blob.Extra holds, immutable.
type placed struct {
	chunk *filer_pb.FileChunk // the chunk as it stands in entries
	path  string              // what it was uploaded for; "" when it was read from an entry
	auth  string              // the upload's credential, good for a few seconds
	odd   bool                // its file can only be read through the filer
}

func extra(b filer.Blob) placed {
	p, _ := b.Extra.(placed)
	return p
}

// toPb makes the filer's entry of a file.
func toPb(name string, f filer.File) *filer_pb.Entry {
	mtime := f.MTime
	if mtime.IsZero() {
		mtime = time.Now()
	}
	e := &filer_pb.Entry{
		Name:     name,
		Content:  f.Content,
		Extended: map[string][]byte{idKey: []byte(f.ID)},
		Attributes: &filer_pb.FuseAttributes{
			FileMode: fileMode,
			Mime:     mimeOf(name),
			Mtime:    mtime.Unix(), MtimeNs: int32(mtime.Nanosecond()),
			Crtime: mtime.Unix(), CrtimeNs: int32(mtime.Nanosecond()),
		},
	}
	for k, v := range f.Attrs {
		e.Extended[filer.AttrPrefix+k] = []byte(v)
	}
	size := int64(len(f.Content))
	for _, b := range f.Blobs {
		e.Chunks = append(e.Chunks, toChunk(b, size, mtime))
		size += b.Size
	}
	if len(f.Blobs) == 0 {
		// The ETag of inline content, over HTTP and S3, is its MD5.
		sum := md5.Sum(f.Content)
		e.Attributes.Md5 = sum[:]
	}
	e.Attributes.FileSize = uint64(size)
	return e
}

func toChunk(b filer.Blob, offset int64, mtime time.Time) *filer_pb.FileChunk {
	chunk := &filer_pb.FileChunk{ModifiedTsNs: mtime.UnixNano()}
	if known := extra(b).chunk; known != nil {
		chunk = proto.CloneOf(known)
	}
	chunk.FileId, chunk.Fid = b.ID, nil
	chunk.Offset = offset
	chunk.Size = uint64(b.Size)
	return chunk
}

// fromPb describes an entry as found, by whomever it was written.
func fromPb(full string, e *filer_pb.Entry) filer.Entry {
	if e.IsDirectory {
		return filer.Entry{Path: full, IsDir: true, MTime: mtimeOf(e)}
	}
	out := filer.Entry{
		Path:  full,
		ID:    string(e.Extended[idKey]),
		Attrs: filer.Attrs{},
		MTime: mtimeOf(e),
		Size:  max(int64(e.GetAttributes().GetFileSize()), int64(len(e.Content))),
	}
	for k, v := range e.Extended {
		if name, ours := strings.CutPrefix(k, filer.AttrPrefix); ours && k != idKey {
			out.Attrs[name] = string(v)
		}
	}
	chunks := slices.Clone(e.Chunks)
	slices.SortStableFunc(chunks, func(a, b *filer_pb.FileChunk) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, chunk := range chunks {
		out.Size = max(out.Size, chunk.Offset+int64(chunk.Size))
	}
	odd := !plain(chunks, out.Size)
	for _, chunk := range chunks {
		out.Blobs = append(out.Blobs, filer.Blob{ID: fileID(chunk), Size: int64(chunk.Size), Extra: placed{chunk: chunk, odd: odd}})
	}
	if len(out.Blobs) == 0 && int64(len(e.Content)) == out.Size {
		out.Content = append([]byte{}, e.Content...)
	}
	return out
}

func mtimeOf(e *filer_pb.Entry) time.Time {
	a := e.GetAttributes()
	return time.Unix(a.GetMtime(), int64(a.GetMtimeNs()))
}

// fileID is the chunk's id as text. Entries are stored with its parts only.
func fileID(chunk *filer_pb.FileChunk) string { return chunk.GetFileIdString() }

// plain tells whether chunks can be read one after the other from volume
// servers and give a file's bytes: they follow each other without gaps to its
// end, and are neither lists of chunks nor encrypted. All files written by us
// are plain.
func plain(chunks []*filer_pb.FileChunk, size int64) bool {
	offset := int64(0)
	for _, chunk := range chunks {
		if chunk.Offset != offset || chunk.IsChunkManifest || len(chunk.CipherKey) > 0 || chunk.SseType != filer_pb.SSEType_NONE {
			return false
		}
		offset += int64(chunk.Size)
	}
	return offset == size
}

// The ETag of a chunk that we upload is the CRC-32C of its bytes, in base64 as
// the filer wants it. An MD5 would cost as much time as the whole upload; this
// one is what the volume server computes and checks anyway, and its 8 digits in
// an S3 ETag cannot be taken for an MD5.
func etagOf(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

// crcOf is the CRC-32C in a chunk's ETag, if it holds one.
func crcOf(chunk *filer_pb.FileChunk) (uint32, bool) {
	if chunk == nil {
		return 0, false
	}
	sum, err := base64.StdEncoding.DecodeString(chunk.ETag)
	if err != nil || len(sum) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(sum), true
}

// mimes are types that the system's table may not know.
var mimes = map[string]string{
	".avro":    "application/avro",
	".parquet": "application/vnd.apache.parquet",
	".json":    "application/json",
}

func mimeOf(name string) string {
	ext := strings.ToLower(path.Ext(name))
	if t := mimes[ext]; t != "" {
		return t
	}
	if t := mime.TypeByExtension(ext); t != "" {
		return t
	}
	return octetStream
}
