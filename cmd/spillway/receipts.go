package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
)

// receiptLine is one line of a receipt log.
type receiptLine struct {
	N       uint64 `json:"n"`
	Receipt string `json:"receipt"`
	SHA256  string `json:"sha256,omitempty"` // of the payload; not known of every object
	URL     string `json:"url,omitempty"`    // of the object that is the payload
}

// maxUnanswered bounds how many records wait for their receipt at a time.
const maxUnanswered = 100_000

type unanswered struct {
	n       uint64
	pending *client.Pending
	digest  []byte
	url     string
}

// receiptLog waits for the outcome of every record, in order, and writes the
// receipts down if there is a file for them. Of records that fail it keeps the
// first of each exit code, and how many there were.
type receiptLog struct {
	file *os.File
	out  *bufio.Writer
	next chan unanswered
	work errgroup.Group
	bad  chan struct{} // closed at the first failure

	patience time.Duration // with one record
	stalled  func()

	// Owned by collect until it ends.
	failures map[int]*failures
	writeErr error
}

// failures are those of one exit code.
type failures struct {
	count uint64
	first error
}

// newReceiptLog writes to a file at path, if it is not empty. stalled is called
// when the next record in order has got no outcome for so long; it must see to
// it that the producer ends.
func newReceiptLog(path string, patience time.Duration, stalled func()) (*receiptLog, error) {
	l := &receiptLog{
		next: make(chan unanswered, maxUnanswered), bad: make(chan struct{}), failures: map[int]*failures{},
		patience: patience, stalled: stalled,
	}
	if path != "" {
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		l.file, l.out = f, bufio.NewWriter(f)
	}
	l.work.Go(func() error { l.collect(); return nil })
	return l, nil
}

// add hands a record over. It blocks while too many are unanswered. It returns
// false when no more should be published: a record has failed, which close will
// tell, or ctx ended. The record was handed over unless there is an error.
func (l *receiptLog) add(ctx context.Context, u unanswered) (more bool, err error) {
	select {
	case l.next <- u:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	select {
	case <-l.bad:
		return false, nil
	default:
		return true, nil
	}
}

// digest is that of a value, if it is written down.
func (l *receiptLog) digest(value []byte) []byte {
	if l.out == nil {
		return nil
	}
	sum := sha256.Sum256(value)
	return sum[:]
}

func (l *receiptLog) collect() {
	timer := time.AfterFunc(l.patience, l.stalled)
	timer.Stop()
	for u := range l.next {
		timer.Reset(l.patience)
		receipt, err := u.pending.Wait(context.Background()) // ends with the producer
		timer.Stop()
		switch {
		case err != nil:
			l.fail(fmt.Errorf("record %d: %w", u.n, err))
		case l.out != nil && l.writeErr == nil:
			l.write(u, receipt)
		}
	}
}

func (l *receiptLog) fail(err error) {
	err = explain(err)
	code := functions.ExitCode(err)
	if len(l.failures) == 0 && l.writeErr == nil {
		close(l.bad)
	}
	if l.failures[code] == nil {
		l.failures[code] = &failures{first: err}
	}
	l.failures[code].count++
}

func (l *receiptLog) write(u unanswered, receipt client.Receipt) {
	line, err := json.Marshal(receiptLine{u.n, receipt.String(), hex.EncodeToString(u.digest), u.url})
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if err != nil && len(l.failures) == 0 {
		close(l.bad)
	}
	l.writeErr = err
}

// close waits for the outcome of all records. What was answered is on disk then.
// It returns how many failed, and the worst failure with the others.
func (l *receiptLog) close() (failed uint64, err error) {
	close(l.next)
	_ = l.work.Wait() // always nil
	var errs []error
	for _, code := range slices.Sorted(maps.Keys(l.failures)) {
		f := l.failures[code]
		failed += f.count
		if f.count > 1 {
			f.first = fmt.Errorf("%d records failed, the first was %w", f.count, f.first)
		}
		errs = append(errs, f.first)
	}
	if l.file != nil {
		errs = append(errs, errors.Join(l.writeErr, l.out.Flush(), l.file.Sync(), l.file.Close()))
	}
	return failed, functions.Worst(errs...)
}

// progress shows a running count on a terminal.
type progress struct {
	w     io.Writer
	start time.Time
	last  time.Time
}

func newProgress(w io.Writer, always bool) *progress {
	p := &progress{start: time.Now()}
	f, ok := w.(*os.File)
	if ok && !always {
		info, err := f.Stat()
		always = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	if always {
		p.w = w
	}
	return p
}

func (p *progress) at(records, size uint64) {
	if p.w == nil || records%256 != 0 || time.Since(p.last) < 200*time.Millisecond {
		return
	}
	p.last = time.Now()
	seconds := p.last.Sub(p.start).Seconds()
	fmt.Fprintf(p.w, "\r%s records, %s, %.0f/s ", humanize.Comma(int64(records)), humanize.IBytes(size), float64(records)/seconds)
}

func (p *progress) end() {
	if p.w != nil && !p.last.IsZero() {
		fmt.Fprintln(p.w)
	}
}
