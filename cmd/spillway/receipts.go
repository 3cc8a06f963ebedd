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
	"os"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/client"
)

// receiptLine is one line of a receipt log.
type receiptLine struct {
	N       uint64 `json:"n"`
	Receipt string `json:"receipt"`
	SHA256  string `json:"sha256"`
}

// maxUnanswered bounds how many records wait for their receipt at a time.
const maxUnanswered = 100_000

type unanswered struct {
	n       uint64
	pending *client.Pending
	digest  [sha256.Size]byte
}

// receiptLog waits for the outcome of every record, in order, and writes the
// receipts down if there is a file for them. The first failure ends it.
type receiptLog struct {
	file *os.File
	out  *bufio.Writer
	next chan unanswered
	done chan error
}

func newReceiptLog(path string) (*receiptLog, error) {
	l := &receiptLog{next: make(chan unanswered, maxUnanswered), done: make(chan error, 1)}
	if path != "" {
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		l.file, l.out = f, bufio.NewWriter(f)
	}
	go func() { l.done <- l.collect() }()
	return l, nil
}

// add hands a record over. It blocks while too many are unanswered.
func (l *receiptLog) add(ctx context.Context, n uint64, p *client.Pending, value []byte) error {
	u := unanswered{n: n, pending: p}
	if l.out != nil {
		u.digest = sha256.Sum256(value)
	}
	select {
	case l.next <- u:
		return nil
	case err := <-l.done:
		l.done <- err
		return errors.Join(errors.New("publishing failed"), err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *receiptLog) collect() error {
	for u := range l.next {
		receipt, err := u.pending.Wait(context.Background()) // the producer bounds it
		if err != nil {
			return fmt.Errorf("record %d: %w", u.n, err)
		}
		if l.out == nil {
			continue
		}
		line, err := json.Marshal(receiptLine{u.n, receipt.String(), hex.EncodeToString(u.digest[:])})
		if err != nil {
			return err
		}
		if _, err := l.out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// close waits for the outcome of all records. What was answered is on disk then.
func (l *receiptLog) close() error {
	close(l.next)
	err := <-l.done
	if l.file == nil {
		return err
	}
	return errors.Join(err, l.out.Flush(), l.file.Sync(), l.file.Close())
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
