package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
)

// drawn is what is printed of a picture in a file.
type drawn struct {
	File  string `json:"file"`
	Bytes int    `json:"bytes"`
	Edits int    `json:"edits"`
	Live  int    `json:"live"`
}

// segmentsSVG draws a topic's history into a file.
func (a *app) segmentsSVG(ctx context.Context, t *inspect.Topic, o segmentsOptions) error {
	policies, err := loadPolicy(o.policy)
	if err != nil {
		return err
	}
	layouts, p, err := t.History(ctx, time.Now(), a.historyNotes(2*time.Second))
	if err != nil {
		return err
	}
	policy := policies.For(t.Name)
	p.Target, p.TargetRecords = policy.TargetBytes, policy.TargetRecords
	p.Subtitle = "topic " + t.Name
	return a.writeSVG(o.svg, layouts, p)
}

// historyNotes tells how far the reading of a history is, now and then.
func (a *app) historyNotes(every time.Duration) func(inspect.Progress) {
	last, started := time.Now(), false
	return func(p inspect.Progress) {
		switch {
		case time.Since(last) >= every && p.Segments < p.Of:
			last, started = time.Now(), true
			a.note("reading the load from the files: %d of %d segments, %s chunks so far", p.Segments, p.Of, humanize.Comma(int64(p.Chunks)))
		case started && p.Segments == p.Of:
			a.note("reading the load from the files: all %d segments, %s chunks", p.Of, humanize.Comma(int64(p.Chunks)))
		}
	}
}

// writeSVG draws a picture into a file, "-" for standard output.
func (a *app) writeSVG(file string, layouts []topic.Layout, p inspect.Picture) error {
	var b bytes.Buffer
	if err := inspect.SVG(&b, layouts, p); err != nil {
		return err
	}
	if file == "-" {
		return a.printf("%s", b.Bytes())
	}
	if err := writeFile(file, b.Bytes()); err != nil {
		return &functions.UsageError{Err: fmt.Errorf("write the picture: %w", err)}
	}
	d := drawn{File: file, Bytes: b.Len(), Live: len(layouts[len(layouts)-1].Live)}
	for _, l := range layouts[1:] {
		if !l.Pending {
			d.Edits++
		}
	}
	if a.cfg.JSON {
		return a.json(d)
	}
	return a.printf("%s: %s, %d live segments, %s; open it in a browser\n", file, edits(d.Edits), d.Live, humanize.IBytes(uint64(d.Bytes)))
}

func edits(n int) string {
	if n == 1 {
		return "1 edit"
	}
	return fmt.Sprintf("%d edits", n)
}

func writeFile(file string, data []byte) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
