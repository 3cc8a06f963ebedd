package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
)

// outlook is a lane, and how long it can go on taking what is published to it.
type outlook struct {
	laneStatus
	MessageRate float64 `json:"messages_per_second"`
	ByteRate    float64 `json:"bytes_per_second"`
	// Minutes until the lane is full if nothing is trimmed; nil: nothing comes in,
	// or the lane has no bound.
	Minutes *float64 `json:"minutes_left"`
}

// glance is a lane's stream at a time, by the server's clock.
type glance struct {
	at, published time.Time // now, and when the last message came
	last          uint64    // sequence
	messages      uint64
	bytes, most   int64
}

func glanceOf(i *jetstream.StreamInfo) glance {
	return glance{i.TimeStamp, i.State.LastTime, i.State.LastSeq, i.State.Msgs, int64(i.State.Bytes), i.Config.MaxBytes}
}

// idleFor is how old a lane's last message is when it is not worth a second look.
const idleFor = 10 * time.Second

func (g glance) idle() bool { return g.messages == 0 || g.at.Sub(g.published) > idleFor }

// rates is what came in between two glances.
func (g glance) rates(later glance) (messages, bytes float64) {
	seconds := later.at.Sub(g.at).Seconds()
	if seconds <= 0 || later.last <= g.last || later.messages == 0 {
		return 0, 0
	}
	messages = float64(later.last-g.last) / seconds
	return messages, messages * float64(later.bytes) / float64(later.messages)
}

// minutes is how long it takes to fill what is free, nil if it never does.
func (g glance) minutes(rate float64) *float64 {
	if rate <= 0 || g.most <= 0 {
		return nil
	}
	m := float64(max(0, g.most-g.bytes)) / rate / 60
	return &m
}

// outlooks looks at the lanes of a group, twice if anything is published to it.
func (e *env) outlooks(ctx context.Context, group string) (list []outlook, problem string, err error) {
	g, err := e.group(ctx, group)
	if err != nil {
		return nil, "", err
	}
	list = make([]outlook, len(g.Lanes))
	first := make([]glance, len(g.Lanes))
	idle := true
	for i, l := range g.Lanes {
		list[i].laneStatus = l
		if first[i], err = e.glance(ctx, l); err != nil {
			return nil, "", err
		}
		idle = idle && first[i].idle()
	}
	if idle {
		return list, g.Problem, nil
	}
	select {
	case <-ctx.Done():
		return nil, "", ctx.Err()
	case <-time.After(time.Second):
	}
	for i, l := range g.Lanes {
		now, err := e.glance(ctx, l)
		if err != nil {
			return nil, "", err
		}
		o := &list[i]
		o.MessageRate, o.ByteRate = first[i].rates(now)
		o.Minutes = now.minutes(o.ByteRate)
	}
	return list, g.Problem, nil
}

func (e *env) glance(ctx context.Context, l laneStatus) (glance, error) {
	id, err := lane.ParseID(l.Lane)
	if err != nil {
		return glance{}, err
	}
	s, err := e.js.Stream(ctx, id.Stream())
	if err != nil {
		return glance{}, fmt.Errorf("look at lane %s: %w", id, err)
	}
	return glanceOf(s.CachedInfo()), nil // fetched just now
}

func (a *app) showOutlooks(w io.Writer, d description) {
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	if len(d.Outlooks) == 0 {
		row("lanes\tgroup %s: none yet: run `spillway run ingest`", d.Lanes)
		return
	}
	row("lanes\tgroup %s", d.Lanes)
	for _, l := range d.Outlooks {
		size := humanize.IBytes(uint64(max(l.Bytes, 0)))
		if l.MaxBytes > 0 {
			size += " of " + humanize.IBytes(uint64(l.MaxBytes))
		}
		row("  %s\tlag %d messages; holds %s; %.1f messages/s, %s/s come in; buffer %s",
			l.Lane, l.Lag, size, l.MessageRate, humanize.IBytes(uint64(l.ByteRate)), bufferText(l.Minutes))
		if l.Problem != "" {
			row("\t%s", l.Problem)
		}
	}
	if d.LaneProblem != "" {
		row("\t%s", d.LaneProblem)
	}
}

// bufferText says for how long a lane can take what comes.
func bufferText(minutes *float64) string {
	switch {
	case minutes == nil:
		return "n/a"
	case *minutes < 1:
		return fmt.Sprintf("%.0f s", *minutes*60)
	case *minutes < 180:
		return fmt.Sprintf("%.1f min", *minutes)
	case *minutes < 60*24*365:
		return fmt.Sprintf("%.1f h", *minutes/60)
	}
	return "over a year"
}
