package planner

import (
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Policy says what segments should look like. A segment's level is its load as a
// multiple of the target: of bytes or of records, whichever is the higher. Factors
// are levels. docs/OPERATIONS.md justifies the defaults.
type Policy struct {
	// TargetBytes and TargetRecords, per second, are what one segment is to take
	// in at most. > 0.
	TargetBytes   float64 `json:"target_bytes"`
	TargetRecords float64 `json:"target_records"`

	// Short and Long are the windows of the two averages. An average has followed
	// a step of the load by 95 % after its window. Short is 1 s or more, Long at
	// least Short.
	Short time.Duration `json:"short"`
	Long  time.Duration `json:"long"`

	// A segment is split when its level is above Burst in the short window, or
	// above Sustained in the long one and has not fallen to Fill since, into pieces
	// of a level of at most Fill, and at most MaxWays of them at a time. 0 < Fill <
	// Sustained <= Burst.
	Burst     float64 `json:"burst"`
	Sustained float64 `json:"sustained"`
	Fill      float64 `json:"fill"`
	MaxWays   int     `json:"max_ways"`

	// Neighbours are merged when their combined level is below MergeBelow in both
	// windows, and none of them came out of a split less than CoolDown ago.
	// 0 <= MergeBelow < Sustained; 0 means never.
	MergeBelow float64       `json:"merge_below"`
	CoolDown   time.Duration `json:"cool_down"`

	// A topic has at least Floor live segments (0: as many as it was made with)
	// and at most Cap.
	Floor int `json:"floor"`
	Cap   int `json:"cap"`

	// A segment is rolled when it holds RollBytes (before compression), or when
	// its oldest record was committed RollAge ago. 0 means never.
	RollBytes uint64        `json:"roll_bytes"`
	RollAge   time.Duration `json:"roll_age"`
}

// DefaultPolicy is what applies where nothing else is said.
func DefaultPolicy() Policy {
	return Policy{
		TargetBytes: topic.TargetBytes, TargetRecords: topic.TargetRecords,
		Short: 10 * time.Second, Long: 2 * time.Minute,
		Burst: 1, Sustained: 0.8, Fill: 0.5, MaxWays: 32,
		MergeBelow: 0.5, CoolDown: 10 * time.Minute,
		Floor: 0, Cap: 64,
		RollBytes: 1 << 30, RollAge: time.Hour,
	}
}

// PolicyError lists all that is wrong with a policy.
type PolicyError struct{ Problems []error }

func (e *PolicyError) Error() string {
	return fmt.Sprintf("the policy makes no sense (%s):\n%s", plural(len(e.Problems), "problem"), errors.Join(e.Problems...))
}

// Unwrap gives the problems.
func (e *PolicyError) Unwrap() []error { return e.Problems }

// Validate reports everything that is wrong, as one *PolicyError.
func (p Policy) Validate() error {
	var bad []error
	want := func(ok bool, format string, a ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf(format, a...))
		}
	}
	finite := func(name string, v, most float64) {
		want(v > 0 && v <= most, "%s is %.15g: want more than 0 and at most %.15g", name, v, most)
	}
	finite("target_bytes", p.TargetBytes, 1<<40)
	finite("target_records", p.TargetRecords, 1e12)
	want(p.Short >= time.Second && p.Short <= 24*time.Hour, "short is %s: want 1s to 24h", p.Short)
	want(p.Long >= p.Short && p.Long <= 30*24*time.Hour, "long is %s: want at least short, %s, and at most 720h", p.Long, p.Short)
	finite("burst", p.Burst, 1000)
	finite("sustained", p.Sustained, 1000)
	finite("fill", p.Fill, 1000)
	want(!(p.Sustained > p.Burst), "sustained is %v: want at most burst, %v", p.Sustained, p.Burst)
	want(!(p.Fill >= p.Sustained), "fill is %v: want less than sustained, %v, or pieces are split again at once", p.Fill, p.Sustained)
	want(p.MaxWays >= 2 && p.MaxWays <= topic.MaxLive, "max_ways is %d: want 2 to %d", p.MaxWays, topic.MaxLive)
	want(p.MergeBelow >= 0, "merge_below is %v: want 0 or more", p.MergeBelow)
	want(!(p.MergeBelow >= p.Sustained), "merge_below is %v: want less than sustained, %v, or what is merged is split again", p.MergeBelow, p.Sustained)
	want(p.CoolDown >= p.Long && p.CoolDown <= 30*24*time.Hour, "cool_down is %s: want at least long, %s, and at most 720h", p.CoolDown, p.Long)
	want(p.Floor >= 0 && p.Floor <= topic.MaxLive, "floor is %d: want 0 to %d", p.Floor, topic.MaxLive)
	want(p.Cap >= 1 && p.Cap <= topic.MaxLive, "cap is %d: want 1 to %d", p.Cap, topic.MaxLive)
	want(p.Floor <= p.Cap, "floor is %d: want at most cap, %d", p.Floor, p.Cap)
	want(p.RollBytes == 0 || p.RollBytes >= 1<<20, "roll_bytes is %d: want 0 or at least 1 MiB", p.RollBytes)
	want(p.RollAge == 0 || p.RollAge >= p.Long, "roll_age is %s: want 0 or at least long, %s", p.RollAge, p.Long)
	if bad == nil {
		return nil
	}
	return &PolicyError{bad}
}

// level is a rate as a multiple of the target.
func (p Policy) level(r Rate) float64 {
	return max(r.Bytes/p.TargetBytes, r.Records/p.TargetRecords)
}

// byBytes tells whether bytes make the level, and not records.
func (p Policy) byBytes(r Rate) bool { return r.Bytes/p.TargetBytes >= r.Records/p.TargetRecords }

// show says a rate in what makes its level.
func (p Policy) show(r Rate) string {
	switch {
	case p.byBytes(r):
		return humanize.IBytes(uint64(min(r.Bytes, maxRate))) + "/s"
	case r.Records < 10:
		return fmt.Sprintf("%.1f records/s", r.Records)
	}
	return humanize.Comma(int64(min(r.Records, maxRate))) + " records/s"
}

// maxRate is more than any load can be.
const maxRate = 1e15

// target says the target that a rate is compared with.
func (p Policy) target(r Rate) string {
	if p.byBytes(r) {
		return p.show(Rate{Bytes: p.TargetBytes})
	}
	return p.show(Rate{Records: p.TargetRecords})
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
