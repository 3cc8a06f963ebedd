package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
)

// JetStream is the real NATS.
type JetStream struct {
	Conn *nats.Conn
	JS   jetstream.JetStream
	// Monitor is the URL of the server's monitoring port, "" if there is none.
	// Without it the sync interval is only seen by a system account.
	Monitor string
}

var _ Lanes = (*JetStream)(nil)

// Version implements [Lanes].
func (j *JetStream) Version() string { return j.Conn.ConnectedServerVersion() }

// JetStream implements [Lanes].
func (j *JetStream) JetStream(ctx context.Context) error {
	if _, err := j.JS.AccountInfo(ctx); err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	return nil
}

// Lanes implements [Lanes].
func (j *JetStream) Lanes(ctx context.Context) ([]Lane, error) {
	ids, err := lane.List(ctx, j.JS, "")
	if err != nil {
		return nil, err
	}
	lanes := make([]Lane, 0, len(ids))
	for _, id := range ids {
		l, err := j.lane(ctx, id)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // deleted just now
		}
		if err != nil {
			return nil, fmt.Errorf("lane %s: %w", id, err)
		}
		lanes = append(lanes, l)
	}
	return lanes, nil
}

func (j *JetStream) lane(ctx context.Context, id lane.ID) (Lane, error) {
	s, err := j.JS.Stream(ctx, id.Stream())
	if err != nil {
		return Lane{}, err
	}
	i := s.CachedInfo() // fetched by JS.Stream just now
	l := Lane{Replicas: i.Config.Replicas}
	if i.Cluster != nil {
		for _, r := range i.Cluster.Replicas {
			if r.Offline {
				l.Missing++
			}
		}
	}
	l.Closed = slices.ContainsFunc(i.Config.Subjects, func(s string) bool { return strings.HasPrefix(s, closedPrefix) })
	l.Info, err = lane.Open(ctx, j.JS, id)
	var unfit *lane.MismatchError
	if errors.As(err, &unfit) {
		l.Err = err
		l.Info, err = lane.Look(ctx, j.JS, id)
	}
	return l, err
}

// closedPrefix starts the subject of a lane that was closed.
const closedPrefix = "spillway.closed."

// Others implements [Lanes].
func (j *JetStream) Others(ctx context.Context) ([]Stream, error) {
	list := j.JS.ListStreams(ctx)
	var found []Stream
	for i := range list.Info() {
		name := strings.TrimPrefix(i.Config.Name, "KV_")
		if strings.HasPrefix(name, "spillway-") && !strings.HasPrefix(name, "spillway-lane-") {
			found = append(found, Stream{i.Config.Name, i.Config.Replicas})
		}
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	return found, nil
}

// TimeOf implements [Lanes].
func (j *JetStream) TimeOf(ctx context.Context, id lane.ID, sequence uint64) (time.Time, error) {
	s, err := j.JS.Stream(ctx, id.Stream())
	if err != nil {
		return time.Time{}, fmt.Errorf("lane %s: %w", id, err)
	}
	m, err := s.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return time.Time{}, fmt.Errorf("message %d of lane %s: %w", sequence, id, ErrNoMessage)
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("message %d of lane %s: %w", sequence, id, err)
	}
	return m.Time, nil
}

// Clock implements [Clock]: the time at which the server describes a stream.
func (j *JetStream) Clock(ctx context.Context) (time.Time, error) {
	names := []string{lane.CommitStream}
	ids, err := lane.List(ctx, j.JS, "")
	if err != nil {
		return time.Time{}, err
	}
	for _, id := range ids {
		names = append(names, id.Stream())
	}
	for _, name := range names {
		s, err := j.JS.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return time.Time{}, fmt.Errorf("ask for NATS's time: %w", err)
		}
		if i, err := s.Info(ctx); err == nil && !i.TimeStamp.IsZero() {
			return i.TimeStamp, nil
		}
	}
	return time.Time{}, ErrNoClock
}

const (
	// askJetStream is answered in the system account only.
	askJetStream = "$SYS.REQ.SERVER.PING.JSZ"
	askLimit     = 2 * time.Second
	maxReply     = 1 << 20
)

// Sync implements [Lanes]. What cannot be asked is not known, which is no error:
// most accounts must not see it.
func (j *JetStream) Sync(ctx context.Context) Sync {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	var data []byte
	var err error
	if j.Monitor != "" {
		data, err = j.monitor(ctx)
	} else {
		var m *nats.Msg
		if m, err = j.Conn.RequestWithContext(ctx, askJetStream, nil); err == nil {
			data = m.Data
		}
	}
	if err != nil {
		return Sync{}
	}
	return parseSync(data)
}

// parseSync reads a description of JetStream: as such, or wrapped in a reply.
func parseSync(data []byte) Sync {
	type config struct {
		Interval time.Duration `json:"sync_interval"`
		Always   bool          `json:"sync_always"`
	}
	var reply struct {
		Config *config `json:"config"`
		Data   struct {
			Config *config `json:"config"`
		} `json:"data"`
	}
	if json.Unmarshal(data, &reply) != nil {
		return Sync{}
	}
	c := reply.Config
	if c == nil {
		c = reply.Data.Config
	}
	if c == nil || c.Interval <= 0 && !c.Always {
		return Sync{}
	}
	return Sync{Known: true, Always: c.Always, Interval: c.Interval}
}

func (j *JetStream) monitor(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(j.Monitor, "/")+"/jsz?config=true", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read-only
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", req.URL, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxReply))
}
