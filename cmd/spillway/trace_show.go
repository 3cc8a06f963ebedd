package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spillway-mq/spillway/internal/inspect"
)

// showTrace prints what became of a message, for people.
func (a *app) showTrace(t inspect.Trace) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	row("message", "%s", t.Name())
	if t.Topic != "" {
		row("topic", "%s", t.Topic)
	}
	row("fate", "%s", fateText(t))
	for _, f := range byFile(t.Places) {
		first, last := f[0], f[len(f)-1]
		row("", "")
		row("segment", "%s %s", first.Segment, first.Range)
		row("rows", "%s", numbers(f, func(p inspect.Place) uint64 { return uint64(p.Position.Row) }))
		row("offsets", "%s", numbers(f, func(p inspect.Place) uint64 { return p.Offset }))
		row("appended", "%s", first.Time.Format("2006-01-02T15:04:05.000000Z"))
		if first.Chunk.Entry.ID != "" {
			row("chunk", "%d: records %d to %d of %d", first.Chunk.Entry.N, first.Index+1, last.Index+1, first.Chunk.Count)
		} else {
			row("data file", "records %d to %d; the segment is compacted", first.Index+1, last.Index+1)
		}
		row("file", "%s", a.fileURL(first.File))
		row("", "%s", s3Name(first.File))
		for _, p := range f {
			if p.Rejected != "" {
				row("rejected", "row %d: %s", p.Position.Row, oneLine(p.Rejected))
			}
			if p.Pending {
				row("pending", "row %d: its object was not found, or not looked at, in time: %s", p.Position.Row, oneLine(p.Ref.URL))
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if t.Original == nil {
		return nil
	}
	if err := a.printf("\nthe original:\n"); err != nil {
		return err
	}
	return a.showTrace(*t.Original)
}

func fateText(t inspect.Trace) string {
	text := string(t.Fate)
	switch {
	case t.Fate == inspect.FateControl:
		text += ": workers sent it to each other; it holds no record"
	case t.Fate == inspect.FateNoRecord:
		text += ": an S3 event notification that leaves none, for being sent again, say, or telling of a removal"
	case t.Fate == inspect.FateDuplicate:
		text = fmt.Sprintf("dropped as a duplicate: producer %.80q had sent its batch %d before", t.Producer.ID, t.Producer.Sequence)
	case t.Partial:
		text += fmt.Sprintf(", perhaps in part: the checkpoint is %d, so rows of it may be on their way", t.Checkpoint)
	}
	return text
}

// oneLine makes a short line of a text that a producer may have had a hand in.
func oneLine(s string) string {
	const most = 400
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return s
}

// byFile groups places, which are sorted by row, by the file they are in.
func byFile(places []inspect.Place) (files [][]inspect.Place) {
	at := map[string]int{}
	for _, p := range places {
		i, ok := at[p.File]
		if !ok {
			i = len(files)
			at[p.File] = i
			files = append(files, nil)
		}
		files[i] = append(files[i], p)
	}
	return files
}

// numbers lists ascending numbers: "0-3, 7".
func numbers(places []inspect.Place, of func(inspect.Place) uint64) string {
	const most = 20
	var runs []string
	for i := 0; i < len(places); {
		from, to := of(places[i]), of(places[i])
		for i++; i < len(places) && of(places[i]) == to+1; i++ {
			to++
		}
		switch {
		case len(runs) == most:
			return strings.Join(runs, ", ") + fmt.Sprintf(", … (%d in all)", len(places))
		case from == to:
			runs = append(runs, fmt.Sprint(from))
		default:
			runs = append(runs, fmt.Sprintf("%d-%d", from, to))
		}
	}
	return strings.Join(runs, ", ")
}
