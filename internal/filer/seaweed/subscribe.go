package seaweed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path"
	"strings"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

	"github.com/spillway-mq/spillway/internal/filer"
)

// What the filer does with its log of metadata (weed/server), as far as it matters:
//   - Each change of an entry is an event, whose stamp the entry keeps as its commit
//     time. The place of the event in the log, by which one reads on, can be a
//     little later than its stamp, and is never earlier.
//   - The log is in memory first, and written every minute, or when it is full. A
//     filer that is killed loses the rest, while the entries stay.
//   - Read from memory, the log begins with the place that one asks for; from disk,
//     with the next.
//   - An end that one asks for makes it end where nothing more is there now.

// Scope is a bucket, or the objects of it whose keys begin with Prefix.
type Scope struct{ Bucket, Prefix string }

// Check tells whether there can be objects in it. The error is a [filer.ErrInvalid].
func (s Scope) Check() error {
	if strings.HasPrefix(s.Bucket, ".") || strings.Contains(s.Bucket, "/") {
		return fmt.Errorf("%w: no bucket can have the name %.80q", filer.ErrInvalid, s.Bucket)
	}
	if err := filer.CheckPath(s.dir()); err != nil {
		return err
	}
	switch clean := path.Clean("/" + s.Prefix); {
	case s.Prefix == "":
		return nil
	case "/"+strings.TrimSuffix(s.Prefix, "/") != clean, strings.Contains(s.Prefix, `\`), clean == "/":
		return fmt.Errorf("%w: SeaweedFS has no keys that begin with %.80q", filer.ErrInvalid, s.Prefix)
	default:
		return filer.CheckPath(s.dir() + clean)
	}
}

func (s Scope) String() string { return "s3://" + s.Bucket + "/" + s.Prefix }

func (s Scope) dir() string { return "/buckets/" + s.Bucket }

// path begins the paths of all its objects' entries, and of some others.
func (s Scope) path() string { return s.dir() + "/" + strings.TrimSuffix(s.Prefix, "/") }

// Step is what a part of the log tells.
type Step struct {
	Events []ObjectEvent
	// Upto is the place in the log, in nanoseconds since 1970, up to which
	// everything has been told; 0: as before.
	Upto int64
	// Idle: nothing more is there now.
	Idle bool
}

// Subscribe tells what happened to the objects of a scope, by the filer's log after
// the place since, in its order. With follow it goes on until ctx ends, or the
// filer does, and says now and then that it is idle; without, it returns nil when
// it has told all that is there now. An error of tell ends it. While tell does not
// return the filer waits, and keeps nothing for this but what the connection holds.
// What is told can be told again when since is the place of an event.
func (c *Client) Subscribe(ctx context.Context, s Scope, since int64, follow bool, tell func(Step) error) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("subscribe to %s: %w", s, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := &filer_pb.SubscribeMetadataRequest{
		ClientName: "spillway", ClientId: rand.Int32N(math.MaxInt32-1) + 1, PathPrefix: s.path(), SinceNs: since,
		ClientSupportsBatching: true, ClientSupportsIdleHeartbeat: follow,
	}
	if !follow {
		req.UntilNs = math.MaxInt64
	}
	stream, err := c.rpc.SubscribeMetadata(ctx, req)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", s, callError(ctx, err))
	}
	for r := (logReader{scope: s}); ; {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && !follow:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("subscribe to %s: the filer ended it", s)
		case err != nil:
			return fmt.Errorf("subscribe to %s: %w", s, callError(ctx, err))
		}
		if err := tell(r.step(m)); err != nil {
			return err
		}
	}
}

// logReader makes steps of a stream's messages.
//
// A filer that knows of no others has one log, and its claims that it has nothing
// more hold. One that merges the logs of several makes such claims too, and then
// places before them can still come to be told. What tells the two apart is that the
// first also reports how far its log is written, with the claim itself or right
// after it.
type logReader struct {
	scope Scope
	alone bool  // it has one log
	claim int64 // that waits for such a report; 0: none
}

// step reads a message, which can be a batch.
func (r *logReader) step(m *filer_pb.SubscribeMetadataResponse) Step {
	if m.EventNotification != nil {
		r.claim = 0
		out := Step{Events: translate(r.scope, m), Upto: m.TsNs}
		for _, e := range m.Events {
			out.Events = append(out.Events, translate(r.scope, e)...)
			out.Upto = max(out.Upto, e.TsNs)
		}
		return out
	}
	waited := r.claim > 0
	if m.TsNs > 0 {
		r.claim = m.TsNs
	}
	r.alone = r.alone || m.FlushedTsNs > 0 || m.TsNs == 0
	switch claim := r.claim; {
	case claim == 0 || !r.alone && !waited:
		return Step{}
	case !r.alone:
		return Step{Idle: true}
	default:
		r.claim = 0
		return Step{Upto: claim, Idle: true}
	}
}
