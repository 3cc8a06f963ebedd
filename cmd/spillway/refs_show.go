package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/refcheck"
)

// shownOfKind is how many findings of a kind are shown without --all.
const shownOfKind = 100

// findings shows what a check finds.
type findings struct {
	*app
	all     bool
	seen    map[refcheck.Kind]uint64
	listed  []refcheck.Finding // for JSON without --all
	leftOut map[refcheck.Kind]uint64
	pending tally
}

// checkedRefs is what `refs check --json` shows.
type checkedRefs struct {
	refcheck.Report
	Findings []refcheck.Finding       `json:"findings,omitempty"`
	LeftOut  map[refcheck.Kind]uint64 `json:"findings_left_out,omitempty"`
}

func (s *findings) add(f refcheck.Finding) error {
	if f.Kind == refcheck.Pending {
		s.pending.add(explainRefs(fmt.Errorf("%s: %w", f.URL, f.Err)))
	}
	if s.seen == nil {
		s.seen = map[refcheck.Kind]uint64{}
	}
	if s.seen[f.Kind]++; s.seen[f.Kind] > shownOfKind && !s.all {
		s.leftOut[f.Kind]++
		return nil
	}
	switch {
	case s.cfg.JSON && s.all:
		return s.json(f)
	case s.cfg.JSON:
		s.listed = append(s.listed, f)
		return nil
	}
	return s.printf("%s\n", findingLine(f))
}

// end shows the sums.
func (s *findings) end(r refcheck.Report) error {
	if s.cfg.JSON {
		return s.json(checkedRefs{r, s.listed, s.leftOut})
	}
	for _, kind := range slices.Sorted(maps.Keys(s.leftOut)) {
		if err := s.printf("%s: %d more; --all shows them\n", kind, s.leftOut[kind]); err != nil {
			return err
		}
	}
	return s.printf("%s", reportText(r))
}

// findingLine is a finding for people: what it is, where, and why.
func findingLine(f refcheck.Finding) string {
	word := string(f.Kind)
	if f.Kind == refcheck.Dangling {
		word = string(f.State)
	}
	b := fmt.Appendf(nil, "%-8s  %s", word, f.URL)
	if f.Version != "" {
		b = fmt.Appendf(b, " (version %s)", f.Version)
	}
	if f.Offset != nil {
		b = fmt.Appendf(b, "  segment %s, offset %d", inspect.Short(f.Segment), *f.Offset)
	}
	if f.Key != nil {
		b = fmt.Appendf(b, ", key %.80q", []byte(*f.Key))
	}
	if f.Kind != refcheck.Dangling && f.Kind != refcheck.Pending {
		b = fmt.Appendf(b, "  %s", humanize.IBytes(uint64(max(f.Size, 0))))
		if !f.Modified.IsZero() {
			b = fmt.Appendf(b, ", of %s", f.Modified.Format(time.RFC3339))
		}
	}
	if len(f.Pins) > 0 {
		b = fmt.Appendf(b, ", pinned by %s", strings.Join(f.Pins, ", "))
	}
	if f.Unverified {
		b = append(b, ", committed unverified"...)
	}
	if f.Reason != "" {
		b = fmt.Appendf(b, ": %s", f.Reason)
	}
	return string(b)
}

// reportText is the sums for people.
func reportText(r refcheck.Report) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s: %d references, %d objects looked at, %d chunks read", r.Topic, r.References, r.Objects, r.Chunks)
	s := r.States
	line("  references: %d valid, %d pending, %d missing, %d changed, %d deleted", s[ref.Valid], s[ref.Pending], s[ref.Missing], s[ref.Changed], s[ref.Deleted])
	if r.Unverified > 0 {
		line("  %d of them were pending when they were committed", r.Unverified)
	}
	if r.Elsewhere > 0 {
		line("  %d valid objects are not on the filer, and cannot be pinned", r.Elsewhere)
	}
	if r.Unpinned > 0 {
		line("  %d valid objects are not pinned; `spillway refs adopt %s --unpinned` pins them", r.Unpinned, r.Topic)
	}
	line("  rejected: %s", rejectedText(r.Rejected))
	line("  uploads: %s", uploadsText(r))
	return b.String()
}

func rejectedText(r refcheck.Rejected) string {
	parts := []string{}
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		parts = append(parts, fmt.Sprintf("%d %s", r.Kinds[kind], kind))
	}
	text := fmt.Sprintf("%d", r.Records)
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	if !r.Complete {
		text += ", as far as chunks were read; --rejected reads all"
	}
	return text
}

func uploadsText(r refcheck.Report) string {
	u := r.Uploads
	switch {
	case !u.Judged:
		return "not looked at, because " + u.Why
	case len(u.Places) == 0:
		return "none, because the topic allows none of its own: nothing of spillway/" + r.Topic + "/ in any bucket"
	}
	text := fmt.Sprintf("%d in %s: %d named, %d young, %d orphaned, %d held, %d refused",
		u.Found, strings.Join(u.Places, " and "), u.Named, u.Young, u.Orphaned, u.Held, u.Refused)
	if u.Orphaned > 0 {
		text += fmt.Sprintf("\n  the orphans are %s; `spillway refs adopt %s --orphans` makes records of them, `refs drop` deletes them", humanize.IBytes(uint64(max(u.Bytes, 0))), r.Topic)
	}
	if u.LeftOut > 0 {
		text += fmt.Sprintf("\n  %d more were not judged; adopt or drop these first", u.LeftOut)
	}
	return text
}
