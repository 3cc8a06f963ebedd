package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// Lane is a lane as NATS shows it.
type Lane struct {
	lane.Info
	Replicas int
	Missing  int   // replicas that are offline
	Closed   bool  // its subjects were taken away, as lanes are before they are reset or deleted
	Err      error // why it is not fit: a *lane.MismatchError
}

// Stream is a stream of ours that is no lane: announcements, leases, bindings.
type Stream struct {
	Name     string
	Replicas int
}

// Sync is how a nats-server brings acknowledged messages to disk. The zero Sync
// is one that cannot be seen from here.
type Sync struct {
	Known    bool
	Always   bool          // before it acknowledges
	Interval time.Duration // else, so often
}

// ErrNoMessage says that a lane does not hold the message that was asked for.
var ErrNoMessage = errors.New("no such message in the lane")

// Lanes is what is asked of NATS.
type Lanes interface {
	Clock
	// Version is the server's. JetStream fails if it is off.
	Version() string
	JetStream(ctx context.Context) error
	// Lanes lists all lanes, fit or not. Sync is zero if it is not visible.
	Lanes(ctx context.Context) ([]Lane, error)
	Sync(ctx context.Context) Sync
	// Others lists our streams that are no lanes.
	Others(ctx context.Context) ([]Stream, error)
	Witness
}

// Witness tells when a message of a lane was stored, or ErrNoMessage.
type Witness interface {
	TimeOf(ctx context.Context, id lane.ID, sequence uint64) (time.Time, error)
}

// oldestNATS is the first version whose streams keep metadata, where a lane's
// incarnation is.
var oldestNATS = [2]int{2, 10}

// server looks at the NATS server and what it has.
func (v *view) server(ctx context.Context, s Lanes) []Finding {
	const check = "nats"
	if err := s.JetStream(ctx); err != nil {
		if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
			return []Finding{fail(check, "start nats-server with -js, and give the account JetStream", "version %s, %s", s.Version(), oneLine(err))}
		}
		return []Finding{away(check, err)}
	}
	var got [2]int
	if _, err := fmt.Sscanf(s.Version(), "%d.%d", &got[0], &got[1]); err != nil || slices.Compare(got[:], oldestNATS[:]) < 0 {
		return []Finding{fail(check, "run a nats-server of a newer version", "version %q, at least %d.%d is needed", s.Version(), oldestNATS[0], oldestNATS[1])}
	}
	lanes, err := s.Lanes(ctx)
	if err != nil {
		return []Finding{away(check, err)}
	}
	others, err := s.Others(ctx)
	if err != nil {
		return []Finding{away(check, err)}
	}
	v.lanes, v.lanesKnown, v.sync = lanes, true, s.Sync(ctx)
	return append([]Finding{ok(check, "version %s, JetStream is on, %s", s.Version(), v.sync)}, besides(lanes, others)...)
}

// besides finds streams with fewer replicas than the lanes that need them: when
// a server is lost they stop, and with them workers and announcements, although
// the lanes go on.
func besides(lanes []Lane, others []Stream) []Finding {
	most := 0
	for _, l := range lanes {
		most = max(most, l.Replicas)
	}
	var found []Finding
	for _, s := range others {
		if s.Replicas < most {
			found = append(found, warn("nats", fmt.Sprintf("nats stream edit %s --replicas %d", s.Name, most),
				"stream %s has %d replicas and lanes have %d: without it workers stop, and nobody hears what is stored", s.Name, s.Replicas, most))
		}
	}
	return found
}

func (s Sync) String() string {
	switch {
	case !s.Known:
		return "its sync interval is not visible from here"
	case s.Always:
		return "it syncs before it acknowledges"
	}
	return fmt.Sprintf("it syncs every %s", s.Interval)
}

// buffered says what an acknowledgement by a lane survives.
func buffered(lanes []Lane, sync Sync) []Finding {
	const check = "buffered"
	power := "a power failure can lose the last 2m0s, unless its sync interval was changed"
	switch {
	case sync.Always:
		power = "and power failures"
	case sync.Known:
		power = fmt.Sprintf("a power failure can lose the last %s", sync.Interval)
	}
	var found []Finding
	for _, l := range lanes {
		stream := l.ID.Stream()
		switch {
		case l.Err != nil:
			// laneStates tells about it.
		case l.Missing > 0:
			found = append(found, warn(check, "bring the servers back: another loss stops the lane",
				"lane %s: %d of %d replicas are offline", l.ID, l.Missing, l.Replicas))
		case l.Replicas > 1:
			found = append(found, ok(check, "lane %s: %d replicas: survives the loss of %d of the servers; if all lose power at once, %s",
				l.ID, l.Replicas, (l.Replicas-1)/2, strings.TrimPrefix(power, "a power failure ")))
		case sync.Always:
			found = append(found, ok(check, "lane %s: 1 replica, synced: survives crashes %s, not the loss of the disk", l.ID, power))
		default:
			found = append(found, warn(check, fmt.Sprintf("nats stream edit %s --replicas 3 (in a cluster), or jetstream { sync_interval: always }", stream),
				"lane %s: 1 replica: survives crashes of nats-server, not the loss of its disk; %s", l.ID, power))
		}
	}
	return found
}

// nearlyFull is where a lane's fill becomes something to know.
const nearlyFull = 0.7

// laneStates compares each lane with its checkpoint.
func laneStates(ctx context.Context, w Witness, store *segment.Store, lanes []Lane) []Finding {
	if len(lanes) == 0 {
		return []Finding{ok("lane", "none yet; the first worker makes it")}
	}
	var found []Finding
	sizes, have := map[string]int{}, map[string]int{}
	for _, l := range lanes {
		found = append(found, laneState(ctx, w, store, l))
		sizes[l.ID.Group] = max(sizes[l.ID.Group], l.Lanes)
		have[l.ID.Group]++
	}
	for _, l := range lanes {
		if n := sizes[l.ID.Group]; l.ID.N == 0 && have[l.ID.Group] < n {
			found = append(found, fail("lane", fmt.Sprintf("spillway lanes create %s --lanes %d makes what is missing", l.ID.Group, n),
				"group %s has %d of its %d lanes", l.ID.Group, have[l.ID.Group], n))
		}
	}
	return found
}

// wentBack tells how a lane shows that it is not what was committed from it. The
// witness decides: the lane's last message, as l has it, may be older than the
// checkpoint of a busy lane.
func wentBack(ctx context.Context, w Witness, l Lane, c segment.Checkpoint) (string, error) {
	if c.Sequence == 0 || c.Gap { // after an accepted gap there is no witness yet
		return "", nil
	}
	at, err := w.TimeOf(ctx, l.ID, c.Sequence)
	switch {
	case errors.Is(err, ErrNoMessage) && l.Last < c.Sequence:
		return fmt.Sprintf("its last message is %d, but %d is committed", l.Last, c.Sequence), nil
	case errors.Is(err, ErrNoMessage):
		return fmt.Sprintf("message %d, the last committed one, is gone", c.Sequence), nil
	case err != nil:
		return "", err
	case !at.Equal(c.Witness):
		return fmt.Sprintf("message %d is of %s, the committed one was of %s",
			c.Sequence, at.UTC().Format(time.RFC3339Nano), c.Witness.Format(time.RFC3339Nano)), nil
	}
	return "", nil
}

// laneState is one lane: fit, its checkpoint there, its witness in place.
func laneState(ctx context.Context, w Witness, store *segment.Store, l Lane) Finding {
	const check = "lane"
	see := fmt.Sprintf("stop its workers and see OPERATIONS, “When it stops”; spillway lanes reset %s takes it into use again", l.ID)
	switch {
	case l.Closed:
		return warn(check, "finish the spillway lanes reset or delete that closed it, by calling it again", "lane %s is closed: nothing can be published to it", l.ID)
	case l.Err != nil:
		return fail(check, "nats stream edit "+l.ID.Stream()+" puts the settings back", "%s", oneLine(l.Err))
	}
	file := store.CheckpointFile(l.ID.Source(l.Incarnation))
	var c segment.Checkpoint
	for {
		var err error
		c, _, err = file.Load(ctx)
		switch {
		case errors.Is(err, filer.ErrNotFound):
			return fail(check, "check --bucket and --filer first; else restore it from a backup", "lane %s: its checkpoint %s is missing", l.ID, file.Path())
		case err != nil:
			return asked(check, "restore it from a backup", err)
		case l.First > c.Sequence+1:
			return fail(check, fmt.Sprintf("see OPERATIONS, “When it stops”; spillway lanes accept-gap %s goes on without what is lost", l.ID), "lane %s has a gap: its first message is %d, but only %d is committed", l.ID, l.First, c.Sequence)
		}
		back, err := wentBack(ctx, w, l, c)
		if err != nil {
			return away(check, err)
		}
		if back == "" {
			break
		}
		// A worker may have committed and trimmed since the checkpoint was read.
		if now, _, err := file.Load(ctx); err != nil || now.Sequence == c.Sequence {
			return fail(check, see, "lane %s went back: %s", l.ID, back)
		}
	}
	text := fmt.Sprintf("lane %s: %d messages above the checkpoint, holds %s of %s, its witness is in place", l.ID, max(l.Last, c.Sequence)-c.Sequence,
		humanize.IBytes(uint64(max(l.Bytes, 0))), humanize.IBytes(uint64(max(l.MaxBytes, 0))))
	if l.MaxBytes > 0 && float64(l.Bytes) > nearlyFull*float64(l.MaxBytes) {
		return warn(check, "see that a worker runs and can write; nats stream edit "+l.ID.Stream()+" --max-bytes makes room", "%s", text)
	}
	return ok(check, "%s", text)
}
