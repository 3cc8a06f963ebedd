package backfill

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/internal/filer"
)

// A ledger file is entries in order, in blocks that are compressed each by itself;
// then the index, compressed too: per block its first key, its place and its size;
// then the footer. Numbers in blocks and index are uvarints.
//
//	entry   shared with the key before, length of the rest, the rest, mark (8 bytes)
//	index   per block: length of the first key, the key, bytes, entries
//	footer  magic, entries, offset and size of the index, xxh64 of the 32 bytes before
//	        and the index as stored (5 x 8 bytes, big-endian)
const (
	takenMagic  = 0x5370776c546b6e31 // "SpwlTkn1"
	takenFooter = 40

	blockEntries = 8192
	blockBytes   = 256 << 10 // raw; one key more fits always
	maxBlock     = blockBytes + 4096
	maxIndex     = 256 << 20
	partBytes    = 4 << 20 // of a ledger file, per blob
	readBytes    = 1 << 20 // at a time, as long as blocks follow each other
)

// takenEntry is one object that was taken.
type takenEntry struct {
	key  string
	mark uint64 // of version and ETag
}

func (e takenEntry) compare(o takenEntry) int {
	if c := strings.Compare(e.key, o.key); c != 0 {
		return c
	}
	return cmp.Compare(e.mark, o.mark)
}

// entryOf is what the ledger keeps of an object. Its bucket is the schedule's.
func entryOf(o Object) takenEntry {
	return takenEntry{o.Key, xxhash.Sum64String(o.Version + "\x00" + o.ETag)}
}

// The coders are used by EncodeAll and DecodeAll only, which may run concurrently.
var (
	blockEncoder    = newBlockEncoder()
	blockDecoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxIndex))
)

func newBlockEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err)
	}
	e.EncodeAll([]byte{0}, nil) // it makes its channel at the first use
	return e
}

// takenWriter writes a ledger file for a path. What it has uploaded is named by
// nothing until create, and discarded by drop.
type takenWriter struct {
	store filer.Store
	path  string
	count uint64
	size  int64 // written before out
	blobs []filer.Blob

	last  takenEntry
	first string // key of the block
	block []byte // raw
	in    uint64 // entries of the block
	out   []byte // compressed, not uploaded yet
	index []byte // raw
}

func newTakenWriter(store filer.Store, path string) *takenWriter {
	return &takenWriter{store: store, path: path}
}

// add takes entries in order; one that is there already is left out.
func (w *takenWriter) add(ctx context.Context, e takenEntry) error {
	if w.count > 0 && e.compare(w.last) == 0 {
		return nil
	}
	shared := 0
	if w.in == 0 {
		w.first = e.key
	} else {
		for shared < min(len(e.key), len(w.last.key)) && e.key[shared] == w.last.key[shared] {
			shared++
		}
	}
	w.block = binary.AppendUvarint(w.block, uint64(shared))
	w.block = binary.AppendUvarint(w.block, uint64(len(e.key)-shared))
	w.block = append(w.block, e.key[shared:]...)
	w.block = binary.BigEndian.AppendUint64(w.block, e.mark)
	w.last, w.in, w.count = e, w.in+1, w.count+1
	if w.in < blockEntries && len(w.block) < blockBytes {
		return nil
	}
	return w.flush(ctx)
}

func (w *takenWriter) flush(ctx context.Context) error {
	if w.in == 0 {
		return nil
	}
	before := len(w.out)
	w.out = blockEncoder.EncodeAll(w.block, w.out)
	w.index = binary.AppendUvarint(w.index, uint64(len(w.first)))
	w.index = append(w.index, w.first...)
	w.index = binary.AppendUvarint(w.index, uint64(len(w.out)-before))
	w.index = binary.AppendUvarint(w.index, w.in)
	w.block, w.in = w.block[:0], 0
	if len(w.out) < partBytes {
		return nil
	}
	return w.upload(ctx)
}

func (w *takenWriter) upload(ctx context.Context) error {
	for len(w.out) > 0 {
		part := w.out[:min(len(w.out), partBytes)]
		var blob filer.Blob
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			blob, err = w.store.Upload(ctx, w.path, part)
			return err
		})
		if err != nil {
			return fmt.Errorf("upload for %s: %w", w.path, err)
		}
		w.blobs = append(w.blobs, blob)
		w.size += int64(len(part))
		w.out = w.out[len(part):]
	}
	w.out = nil
	return nil
}

// create makes the file. One that is there is as good: it holds the same entries.
func (w *takenWriter) create(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	at := w.size + int64(len(w.out))
	packed := blockEncoder.EncodeAll(w.index, nil)
	w.out = append(append(w.out, packed...), footerOf(w.count, uint64(at), packed)...)
	file := filer.File{ID: filer.NewID(), Attrs: filer.Attrs{}}
	if len(w.blobs) == 0 && len(w.out) <= filer.InlineLimit {
		file.Content = w.out
	} else if err := w.upload(ctx); err != nil {
		return err
	}
	file.Blobs = w.blobs
	_, err := filer.Create(ctx, w.store, w.path, file)
	switch {
	case errors.Is(err, filer.ErrExists) && !errors.Is(err, filer.ErrStray):
		w.drop(ctx)
		return nil
	case errors.Is(err, filer.ErrExists):
		return nil // its bytes may be named yet by the request that had no answer
	}
	w.blobs = nil // named now, or of unknown outcome
	return err
}

// drop gives up what was uploaded. What stays is lost room, and nothing else.
func (w *takenWriter) drop(ctx context.Context) {
	for _, b := range w.blobs {
		_ = w.store.Discard(ctx, b)
	}
	w.blobs = nil
}

func footerOf(count, at uint64, packed []byte) []byte {
	var b []byte
	for _, v := range []uint64{takenMagic, count, at, uint64(len(packed))} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return binary.BigEndian.AppendUint64(b, footerSum(b, packed))
}

func footerSum(b, packed []byte) uint64 {
	h := xxhash.New()
	_, _ = h.Write(b)
	_, _ = h.Write(packed)
	return h.Sum64()
}

// takenBlock is a line of the index.
type takenBlock struct {
	first   string
	at      int64
	size    int
	entries uint64
}

// takenFile is a ledger file that was opened: its index is in memory.
type takenFile struct {
	store  filer.Store
	entry  filer.Entry
	count  uint64
	blocks []takenBlock
}

// errMerged says that a ledger file is gone, since somebody has merged it: open again.
var errMerged = errors.New("a file of the ledger was merged meanwhile")

// openTaken opens a ledger file. errMerged and *takenError are typed, here and when
// blocks are read.
func openTaken(ctx context.Context, store filer.Store, path string) (*takenFile, error) {
	f := &takenFile{store: store}
	var err error
	if f.entry, err = openEntry(ctx, store, path); err != nil {
		return nil, err
	}
	if f.entry.Size < takenFooter {
		return nil, f.corrupt("it has no footer")
	}
	foot, err := f.read(ctx, f.entry.Size-takenFooter, takenFooter)
	if err != nil {
		return nil, err
	}
	at, size := binary.BigEndian.Uint64(foot[16:]), binary.BigEndian.Uint64(foot[24:])
	f.count = binary.BigEndian.Uint64(foot[8:])
	if binary.BigEndian.Uint64(foot) != takenMagic || size > maxIndex || at > uint64(f.entry.Size) ||
		at+size+takenFooter != uint64(f.entry.Size) {
		return nil, f.corrupt("its footer is none")
	}
	packed, err := f.read(ctx, int64(at), int(size))
	if err != nil {
		return nil, err
	}
	if footerSum(foot[:32], packed) != binary.BigEndian.Uint64(foot[32:]) {
		return nil, f.corrupt("its index does not match its digest")
	}
	raw, err := blockDecoder.DecodeAll(packed, nil)
	if err != nil {
		return nil, f.corrupt(err.Error())
	}
	if err := f.parseIndex(raw, int64(at)); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *takenFile) corrupt(why string) error {
	return &takenError{path: f.entry.Path, id: f.entry.ID, reason: why}
}

// takenError says that a ledger file is not what was written.
type takenError struct{ path, id, reason string }

func (e *takenError) Error() string        { return fmt.Sprintf("ledger %s: %s", e.path, e.reason) }
func (e *takenError) Is(target error) bool { return target == filer.ErrCorrupt }

func (f *takenFile) read(ctx context.Context, at int64, n int) ([]byte, error) {
	data := make([]byte, n)
	err := filer.Retry(ctx, func(ctx context.Context) error {
		r, err := f.store.Open(ctx, f.entry, at)
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // read-only
		_, err = io.ReadFull(r, data)
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it ends before it should", filer.ErrCorrupt)
		}
		return err
	})
	switch {
	case errors.Is(err, filer.ErrNotFound):
		return nil, f.vanished(ctx)
	case errors.Is(err, filer.ErrCorrupt):
		return nil, f.corrupt(err.Error())
	case err != nil:
		return nil, fmt.Errorf("ledger %s: %w", f.entry.Path, err)
	}
	return data, nil
}

// vanished tells why bytes are gone: with their file, or without it.
func (f *takenFile) vanished(ctx context.Context) error {
	now, err := openEntry(ctx, f.store, f.entry.Path)
	switch {
	case err != nil:
		return err
	case now.ID != f.entry.ID:
		return errMerged
	}
	return f.corrupt("its bytes are gone")
}

func openEntry(ctx context.Context, store filer.Store, path string) (e filer.Entry, err error) {
	err = filer.Retry(ctx, func(ctx context.Context) (err error) { e, err = store.Lookup(ctx, path); return err })
	if errors.Is(err, filer.ErrNotFound) {
		return e, errMerged
	}
	if err != nil {
		return e, fmt.Errorf("ledger %s: %w", path, err)
	}
	return e, nil
}

func (f *takenFile) parseIndex(b []byte, end int64) error {
	var at int64
	var sum uint64
	for len(b) > 0 {
		key, rest, ok := cutBytes(b)
		size, rest, ok2 := cutNumber(rest)
		n, rest, ok3 := cutNumber(rest)
		if !ok || !ok2 || !ok3 || size > uint64(end-at) || size > 2*maxBlock || n == 0 || n > blockEntries {
			return f.corrupt("its index cannot be read")
		}
		f.blocks = append(f.blocks, takenBlock{string(key), at, int(size), n})
		at, sum, b = at+int64(size), sum+n, rest
	}
	if at != end || sum != f.count {
		return f.corrupt("its index does not say what is there")
	}
	return nil
}

// decode gives the entries of a block, which share nothing with it.
func (f *takenFile) decode(b takenBlock, raw []byte) ([]takenEntry, error) {
	list := make([]takenEntry, 0, b.entries)
	var key []byte
	for len(raw) > 0 {
		shared, rest, ok := cutNumber(raw)
		tail, rest, ok2 := cutBytes(rest)
		if !ok || !ok2 || shared > uint64(len(key)) || len(rest) < 8 {
			return nil, f.corrupt("a block cannot be read")
		}
		key = append(key[:shared], tail...)
		list = append(list, takenEntry{string(key), binary.BigEndian.Uint64(rest)})
		raw = rest[8:]
	}
	if uint64(len(list)) != b.entries || list[0].key != b.first {
		return nil, f.corrupt("a block is not what the index says")
	}
	return list, nil
}

func cutNumber(b []byte) (uint64, []byte, bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > math.MaxInt64 {
		return 0, nil, false
	}
	return v, b[n:], true
}

func cutBytes(b []byte) ([]byte, []byte, bool) {
	n, rest, ok := cutNumber(b)
	if !ok || n > uint64(len(rest)) {
		return nil, nil, false
	}
	return rest[:n], rest[n:], true
}
