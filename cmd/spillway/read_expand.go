package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/expand"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
)

// expander reads the rows of batch references, one at a time.
type expander struct {
	store *object.Store
	rules rules
	bad   tally
}

func (a *app) newExpander(ctx context.Context, look func(context.Context) (*segment.Topic, error)) (*expander, error) {
	store, err := a.s3(ctx)
	if err != nil {
		return nil, err
	}
	return &expander{store: store, rules: rules{endpoint: a.cfg.S3, look: look}}, nil
}

// open begins to read a batch reference. no says why it is not to be read, and err ends
// the reading.
func (e *expander) open(ctx context.Context, f record.Ref, b ref.Batch) (r *expand.Rows, no, err error) {
	if no, err = e.rules.refusal(ctx, f); no != nil || err != nil {
		return nil, no, err
	}
	r, no = expand.Open(ctx, e.store, f, b)
	return r, no, nil
}

// unexpanded is what is said of a batch reference whose rows could not all be read.
type unexpanded struct {
	State    string `json:"state,omitempty"` // of the object, where it was looked at
	Rows     uint64 `json:"rows"`            // that were read before
	Rejected uint64 `json:"rejected"`        // of them
	Error    string `json:"error"`
}

// batchOf tells whether a record is to be replaced by rows. Where they become records
// of the topic by themselves, it is not.
func (p *printer) batchOf(item *segment.Item) (b ref.Batch, is bool, err error) {
	if p.expander == nil {
		return b, false, nil
	}
	b, is, err = ref.BatchOf(&item.Record)
	return b, is && !b.Expand, err
}

// expand prints the rows of a batch reference in its place, and the reference itself if
// they cannot all be read. Its error ends the reading.
func (p *printer) expand(ctx context.Context, item segment.Item, b ref.Batch, wrong error) error {
	p.within = &item
	count := expand.Count{}
	if wrong == nil {
		r, no, err := p.expander.open(ctx, *item.Ref, b)
		if err != nil {
			return err
		}
		wrong = no
		if r != nil {
			wrong, err = p.rows(item, r, &count)
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if wrong != nil {
		if err := p.notExpanded(item, count, wrong); err != nil {
			return err
		}
	}
	p.within = nil
	if p.o.limit > 0 && p.shown >= p.o.limit {
		return errEnough
	}
	return nil
}

// rows prints rows to the end of their object. wrong is what is the matter with it; err
// ends the reading.
func (p *printer) rows(item segment.Item, r *expand.Rows, count *expand.Count) (wrong, err error) {
	url, of := item.Ref.URL, item.Clone()
	of.Ref, of.Pending = nil, false
	of.Headers = slices.DeleteFunc(of.Headers, func(h record.Header) bool { return ref.IsBatchHeader(h.Name) })
	for {
		row, err := r.Next()
		switch {
		case err == io.EOF: //nolint:errorlint // the contract is io.EOF itself
			return nil, nil
		case err != nil:
			return err, nil
		}
		count.Add(row)
		of.Value, of.Rejected = row.Value, strings.ToValidUTF8(row.Rejected, "\ufffd")
		if !p.shows(row.Rejected) {
			continue
		}
		if p.o.limit > 0 && p.shown == p.o.limit {
			return nil, errEnough
		}
		if err := p.row(item.Offset, &of, url, row.N); err != nil {
			return nil, err
		}
		p.shown++
	}
}

// row prints row n of a batch reference.
func (p *printer) row(offset uint64, r *record.Record, url string, n uint64) error {
	switch p.o.output {
	case "raw":
		p.buf = append(append(p.buf[:0], r.Value...), '\n')
	case "table":
		at := fmt.Sprintf("%d/%d", offset, n)
		p.buf = fmt.Appendf(p.buf[:0], "%-10s %-27s %-20.40q %.200s\n", at, r.Time.Format("2006-01-02T15:04:05.000000Z"), r.Key, shownValue(segment.Item{Record: *r}, nil))
	default:
		p.buf = r.AppendJSON(p.buf[:0], offset, record.JSONOptions{})
		place, err := json.Marshal(url)
		if err != nil {
			return err
		}
		p.buf = append(append(p.buf[:len(p.buf)-1], `,"batch":{"url":`...), place...)
		p.buf = append(strconv.AppendUint(append(p.buf, `,"row":`...), n, 10), "}}\n"...)
	}
	_, err := p.out.Write(p.buf)
	return err
}

// notExpanded notes why a batch reference has not all of its rows, and shows it.
func (p *printer) notExpanded(item segment.Item, count expand.Count, wrong error) error {
	p.expander.bad.add(expandError(item, wrong))
	u := unexpanded{State: batchState(wrong), Rows: count.Rows, Rejected: count.Rejected, Error: wrong.Error()}
	if p.o.onlyRejected || p.o.limit > 0 && p.shown >= p.o.limit {
		return nil
	}
	p.shown++
	switch p.o.output {
	case "raw":
		return nil
	case "table":
		said := fmt.Sprintf("%q (%d bytes), after %d rows: %s: %q", item.Ref.URL, item.Ref.Size, u.Rows, u.State, u.Error)
		p.buf = fmt.Appendf(p.buf[:0], "%-10d %-27s %-20.40q %.400s\n", item.Offset, item.Time.Format("2006-01-02T15:04:05.000000Z"), item.Key, said)
	default:
		text, err := json.Marshal(u)
		if err != nil {
			return err
		}
		p.buf = item.AppendJSON(p.buf[:0], item.Offset, record.JSONOptions{})
		p.buf = append(append(p.buf[:len(p.buf)-1], `,"expanded":`...), text...)
		p.buf = append(p.buf, "}\n"...)
	}
	_, err := p.out.Write(p.buf)
	return err
}

// batchState is the state of a reference that could not be expanded; none is known if
// nobody has looked, for it does not say how.
func batchState(err error) string {
	switch {
	case is[*ref.BatchError](err):
		return ""
	case is[*rows.FileError](err), is[*expand.CountError](err):
		return string(ref.Changed) // it is not as its reference says
	}
	return string(ref.StateOf(err))
}

// expandError gives an error its exit code, as fetchError does.
func expandError(item segment.Item, err error) error {
	if expand.Definite(err) {
		return &notValidError{fmt.Errorf("segment %v, offset %d: %w", item.Segment, item.Offset, err)}
	}
	return fetchError(item, err)
}
