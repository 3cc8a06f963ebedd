// Package commitlog is the one commit primitive: a directory of files with
// dense numbers, in which creating the next number exclusively is the only
// commit there is. The rules named in comments are those of docs/PROTOCOL.md.
package commitlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/mutant"
)

// Errors of logs. ErrNoLog: the directory has no head file (never made, or
// being deleted). ErrVoid: an entry that was won lies below head and does not
// count; it has been removed, and the caller reloads. ErrWentBack: an entry
// that was known is gone, or the log is shorter than it was.
var (
	ErrNoLog    = errors.New("no commit log here")
	ErrVoid     = errors.New("the log was trimmed past this entry")
	ErrWentBack = errors.New("log went back")
)

// LostError says that somebody else created the number first. Stray: a request
// of ours had no answer, and may create the number yet, once the winner has been
// trimmed; a sweep then deletes that void entry with the bytes that it names. So
// those bytes must not be committed under another number.
type LostError struct {
	Winner Entry
	Stray  bool
}

func (e *LostError) Error() string {
	return fmt.Sprintf("entry %d was created by somebody else (%s)", e.Winner.N, e.Winner.ID)
}

// ChainError says that an entry does not continue the one before it. The log
// must not be appended to until somebody has looked at it.
type ChainError struct {
	Dir          string
	N            uint64
	Prev, Before string // what entry N names, and the ID of entry N-1
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("%s: entry %d continues %q, but entry %d is %q: the log has forked",
		e.Dir, e.N, e.Prev, int64(e.N)-1, e.Before)
}

// Attributes that the log itself writes.
const (
	attrPrev = "Prev"
	attrHead = "Head"
	headName = "head"
)

// Entry is one committed file of a log. The zero Entry stands for "before the
// first".
type Entry struct {
	N uint64
	filer.Entry
}

// Next is the number that follows.
func (e Entry) Next() uint64 {
	if e.ID == "" {
		return 0
	}
	return e.N + 1
}

// Prev is the ID of the entry before, "" for number 0.
func (e Entry) Prev() string { return e.Attrs[attrPrev] }

// Log is a commit log in a directory of the filer. It keeps no state, so it may
// be used concurrently and copied.
type Log struct {
	store  filer.Store
	dir    string
	ext    string
	Mutant mutant.Set
	Logger *slog.Logger
}

// New names the log in dir whose files end in ext (".avro"). It does no I/O.
func New(store filer.Store, dir, ext string) *Log {
	return &Log{store: store, dir: dir, ext: ext, Logger: slog.New(slog.DiscardHandler)}
}

// Dir is the log's directory.
func (l *Log) Dir() string { return l.dir }

// Name is the file name of entry n: 16 digits and the extension.
func (l *Log) Name(n uint64) string { return fmt.Sprintf("%016d%s", n, l.ext) }

// Path is the full path of entry n.
func (l *Log) Path(n uint64) string { return path.Join(l.dir, l.Name(n)) }

// number is the inverse of Name; ok is false for other files.
func (l *Log) number(name string) (n uint64, ok bool) {
	digits, found := strings.CutSuffix(name, l.ext)
	if !found || len(digits) != 16 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// Init makes the log: its head file at 0. Making it twice is no error.
func (l *Log) Init(ctx context.Context) error {
	_, err := filer.Create(ctx, l.store, l.headPath(), headFile(0))
	if errors.Is(err, filer.ErrExists) {
		return nil
	}
	return err
}

// Head is the number below which entries do not count, and the head file's ID.
func (l *Log) Head(ctx context.Context) (n uint64, id string, err error) {
	e, err := l.lookup(ctx, l.headPath())
	if errors.Is(err, filer.ErrNotFound) {
		return 0, "", fmt.Errorf("%s: %w", l.dir, ErrNoLog)
	}
	if err != nil {
		return 0, "", err
	}
	n, err = strconv.ParseUint(e.Attrs[attrHead], 10, 64)
	if err != nil {
		return 0, "", fmt.Errorf("%s: bad head %q: %w", l.dir, e.Attrs[attrHead], filer.ErrCorrupt)
	}
	return n, e.ID, nil
}

// At returns entry n, or filer.ErrNotFound.
func (l *Log) At(ctx context.Context, n uint64) (Entry, error) {
	e, err := l.lookup(ctx, l.Path(n))
	return Entry{N: n, Entry: e}, err
}

func (l *Log) headPath() string { return path.Join(l.dir, headName) }

func (l *Log) lookup(ctx context.Context, p string) (e filer.Entry, err error) {
	err = filer.Retry(ctx, func(ctx context.Context) error { e, err = l.store.Lookup(ctx, p); return err })
	if err != nil {
		err = fmt.Errorf("look up %s: %w", p, err)
	}
	return e, err
}

func headFile(n uint64) filer.File {
	s := strconv.FormatUint(n, 10)
	return filer.File{ID: filer.NewID(), Attrs: filer.Attrs{attrHead: s}, Content: []byte(s + "\n")}
}
