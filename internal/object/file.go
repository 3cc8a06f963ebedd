package object

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"
)

const (
	// A piece that is fetched has firstPiece bytes, as long as nothing else is known.
	// Parquet is read as one stream for each column, 16 KiB or a page at a time: with
	// fewer columns pieces grow, and shrink with more than have room in fileHeld.
	leastPiece = 16 << 10
	firstPiece = 256 << 10
	mostPiece  = 1 << 20
	mostBegun  = 4 << 10 // places that are remembered
	// fileTail is fetched of an object's end at least: Parquet's footer.
	fileTail = 64 << 10
	// fileHeld bounds the memory that a File keeps bytes in.
	fileHeld = 8 << 20
	// fileGap is how far the stream that is read from the start is read on, to get to
	// bytes behind it.
	fileGap = 64 << 10
)

// File is an object whose bytes are read like those of a file: an io.ReaderAt, for
// package rows. It asks for one version of the object alone, by its ETag, so that
// bytes of two versions are never mixed.
//
// Reading from the start to the end takes two requests, and one up to 256 KiB.
// Reading in several places in turn, each of them forwards, as Parquet is read,
// takes a request for each MiB with a few places, and for each 256 KiB with 32 of
// them; more take smaller pieces. Up to then no byte is fetched twice.
//
// A body that breaks off is asked for again at the byte where it did, [FileTries]
// times without progress; the error is then an *[UnavailableError], as when
// requests get no answer. Definite errors are *[ChangedError], which is ErrChanged,
// and the others of this package. After any of them ReadAt may be called again.
//
// Its methods may be called concurrently; they wait for each other.
type File struct {
	store  *Store
	name   Name
	size   int64
	cancel context.CancelFunc
	wait   time.Duration // before the first try again; doubled for each one more

	mu     sync.Mutex
	ctx    context.Context
	etag   string  // that all bytes have; empty before the first answer, if nobody knew
	spans  []*span // the one used last is the last
	held   int64   // bytes of spans
	piece  int64   // bytes to fetch at a time
	begun  []int64 // where places began that are read forwards
	shrunk bool    // pieces were too large once: they grow no more
	spare  []byte  // of a span that is gone
	front  int64   // up to where was fetched in order; -1: something else was too
	tape   *stream // nil: none is open
	closed bool
}

// span is a piece of the object that is kept until it has been read.
type span struct {
	from int64
	data []byte
	read int // how many bytes have been read, each of them once
}

func (s *span) end() int64 { return s.from + int64(len(s.data)) }

// File makes a file of an object of this size and ETag. It sends no request. An
// ETag of "" stands for that of the first answer. ctx ends what is under way, and
// [File.Close] gives back what the file holds.
func (s *Store) File(ctx context.Context, n Name, size int64, etag string) *File {
	f := &File{store: s, name: n, size: size, etag: unquote(&etag), piece: firstPiece, wait: fileWait}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// Size is the size that the object has to have.
func (f *File) Size() int64 { return f.size }

// Close ends reads that are under way.
func (f *File) Close() error {
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.spans, f.held, f.spare = nil, 0, nil
	f.dropTape()
	return nil
}

// ReadAt is as io.ReaderAt has it: fewer bytes than p has come with an error, which
// is io.EOF at the end.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return 0, &fs.PathError{Op: "read", Path: quote(f.name), Err: fs.ErrClosed}
	case off < 0:
		return 0, failed("get", f.name, ErrInvalid, "the offset is negative")
	}
	for n < len(p) && off < f.size {
		m, err := f.some(p[n:min(int64(len(p)), int64(n)+f.size-off)], off)
		n, off = n+m, off+int64(m)
		if err != nil {
			return n, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// some reads at least one of the bytes at off, which there are, or fails.
func (f *File) some(p []byte, off int64) (int, error) {
	if s := f.spanAt(off); s != nil {
		n := copy(p, s.data[off-s.from:])
		s.read += n
		return n, nil
	}
	if f.onTape(off) {
		return f.fromTape(p, off)
	}
	f.dropTape()
	if !f.clear(off) {
		f.begun = append(f.begun[max(0, len(f.begun)-mostBegun):], off)
	}
	from, to := f.around(off)
	if int64(len(p)) >= f.piece { // it need not be kept
		return f.fetch(p[:min(int64(len(p)), f.freeUpTo(off)-off)], off)
	}
	s, err := f.load(from, to)
	if err != nil {
		return 0, err
	}
	n := copy(p, s.data[off-from:])
	s.read = n
	return n, nil
}

// spanAt gives the span that has a byte, and notes its use.
func (f *File) spanAt(off int64) *span {
	for i, s := range slices.Backward(f.spans) {
		if off >= s.from && off < s.end() {
			f.spans = append(slices.Delete(f.spans, i, i+1), s)
			return s
		}
	}
	return nil
}

// around is what to fetch for a byte that is not here: what comes after it, but
// nothing that is here, and at the object's end what comes before it too.
func (f *File) around(off int64) (from, to int64) {
	to = min(off+f.piece, f.freeUpTo(off))
	if from = off; to < f.size || to-from >= fileTail {
		return from, to
	}
	from = max(0, f.size-fileTail)
	for _, s := range f.spans {
		if s.from <= off {
			from = max(from, s.end())
		}
	}
	return from, to
}

// freeUpTo is where, after a byte, a span begins or something that was read already,
// or the object's end.
func (f *File) freeUpTo(off int64) int64 {
	to := f.size
	for _, begun := range f.begun {
		if begun > off {
			to = min(to, begun)
		}
	}
	for _, s := range f.spans {
		if s.from > off {
			to = min(to, s.from)
		}
	}
	return to
}

// load fetches a span.
func (f *File) load(from, to int64) (*span, error) {
	f.makeRoom(to - from)
	data := f.spare
	if f.spare = nil; int64(cap(data)) < to-from {
		data = make([]byte, to-from)
	}
	s := &span{from: from, data: data[:to-from]}
	if _, err := f.fetch(s.data, from); err != nil {
		return nil, err
	}
	f.spans, f.held = append(f.spans, s), f.held+to-from
	return s, nil
}

// clear drops what has been read to its end, and tells whether reading goes on there.
// If so, and there is room, more is fetched at a time.
func (f *File) clear(off int64) (goesOn bool) {
	for i := len(f.spans) - 1; i >= 0; i-- {
		if s := f.spans[i]; s.read >= len(s.data) {
			goesOn = goesOn || s.end() == off
			f.drop(i)
		}
	}
	if goesOn && !f.shrunk && f.held+2*f.piece <= fileHeld/2 {
		f.piece = min(2*f.piece, mostPiece)
	}
	return goesOn
}

// makeRoom drops the spans that have not been used for longest. They are missed soon
// if each is one of many places that are read in turn: if one of the size that all
// have now has to go, less is fetched for each from then on.
func (f *File) makeRoom(n int64) {
	for f.held+n > fileHeld {
		if int64(len(f.spans[0].data)) <= f.piece {
			f.piece, f.shrunk = max(f.piece/2, leastPiece), true
		}
		f.drop(0)
	}
}

func (f *File) drop(i int) {
	s := f.spans[i]
	f.spans, f.held = slices.Delete(f.spans, i, i+1), f.held-int64(len(s.data))
	if cap(s.data) > cap(f.spare) {
		f.spare = s.data
	}
}

// onTape tells whether a byte comes soon on the tape: the stream of the rest of the
// object. It is begun for whoever reads on after the first piece, the object's
// start, and has read nothing else.
func (f *File) onTape(off int64) bool {
	if f.tape != nil {
		return off >= f.tape.pos && off <= f.tape.pos+fileGap
	}
	if off == 0 || off != f.front {
		return false
	}
	f.spans, f.held, f.spare = nil, 0, nil
	f.tape = &stream{file: f, pos: off, to: f.size}
	return true
}

// fromTape reads what comes at off.
func (f *File) fromTape(p []byte, off int64) (int, error) {
	if gap := off - f.tape.pos; gap > 0 {
		if _, err := io.CopyN(io.Discard, f.tape, gap); err != nil {
			return 0, err
		}
	}
	return f.tape.Read(p)
}

func (f *File) dropTape() {
	if f.tape != nil {
		f.tape.close()
	}
	f.tape = nil
}
