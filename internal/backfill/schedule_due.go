package backfill

import "time"

const (
	// Late is how much after its slot a run begins at most without the slot counting
	// as missed.
	Late = 5 * time.Minute
	// MaxMissed is up to where missed slots are counted.
	MaxMissed = 10_000
)

// The decisions about a schedule. They are pure; [Schedules.Update] and [Ticker] make
// them happen.

// Due tells whether a run is due by the clock, and for which slot: the last one that
// is not after now, whatever came before it. missed is how many slots had no run of
// their own, because nobody was there or the run before was still going: all from
// which on another slot or more than [Late] has passed. So after a down time of three
// periods one run is due, and 3 were missed.
//
// For which slot a run was begun is in Served. So when the clock goes back nothing is
// due until it is after Served again, and no slot is served twice.
func Due(s Schedule, now time.Time) (slot time.Time, due bool, missed int) {
	slots, err := s.Slots()
	if err != nil || s.Paused {
		return time.Time{}, false, 0
	}
	from := s.from()
	if slot, due = slots.last(from, now); !due {
		return time.Time{}, false, 0
	}
	missed = slots.count(from, now, MaxMissed)
	if missed < MaxMissed && now.Sub(slot) <= Late {
		missed--
	}
	return slot, true, missed
}

// from is the time after which slots are to be served.
func (s Schedule) from() time.Time {
	if s.Served.After(s.Created) {
		return s.Served
	}
	return s.Created
}

// Upcoming is the next slot after now that will be served, zero if there is none: the
// schedule is paused.
func (s Schedule) Upcoming(now time.Time) time.Time {
	slots, err := s.Slots()
	if err != nil || s.Paused {
		return time.Time{}
	}
	if from := s.from(); from.After(now) {
		now = from
	}
	return slots.Next(now)
}

// Pause has no more runs begun by the clock. A run that has a job goes on: that is
// paused by itself.
func (s *Schedule) Pause() { s.Paused = true }

// Resume goes on after a pause. Slots that passed meanwhile are not served: the next
// run takes what they would have taken. A Served that is ahead of the clock, because
// that was wrong for a while, comes back.
func (s *Schedule) Resume(now time.Time) {
	slots, err := s.Slots()
	if err != nil || !s.Paused {
		return
	}
	s.Paused = false
	if slot, ok := slots.last(s.Created, now); ok {
		s.Served = slot
	} else {
		s.Served = time.Time{}
	}
}

// RunNow asks for a run as soon as none is under way, even if the schedule is paused.
// Asking again before it has begun is the same as asking once; so is a slot that
// comes before.
func (s *Schedule) RunNow(now time.Time) {
	if s.Asked.IsZero() {
		s.Asked = now.UTC().Truncate(time.Microsecond)
	}
}

// begin begins a run if one is due.
func (s *Schedule) begin(now time.Time) bool {
	slot, due, missed := Due(*s, now)
	r := Run{Slot: slot, Missed: missed, Since: now.UTC().Truncate(time.Microsecond)}
	switch {
	case due:
		s.Served = slot
	case !s.Asked.IsZero():
	case s.Rest && !s.Paused:
		r.Slot, r.Rest = s.Served, true
	default:
		return false
	}
	s.Running, s.Asked, s.Rest = &r, time.Time{}, false
	return true
}

// held tells that the job of the run that was begun is not to be made now.
func (r Run) held(paused bool) bool { return paused && (r.Rest || !r.Slot.IsZero()) }

// found notes what the run has found: a job was made, or is there already.
func (s *Schedule) found(job string, h harvest) {
	r := *s.Running
	r.Job, r.Unfit, r.Example, r.Fault = job, h.unfit, clip(h.example), ""
	s.Running, s.Rest = &r, h.rest
	s.Runs++
}

// empty ends the run that found nothing new.
func (s *Schedule) empty(now time.Time, h harvest) {
	r := *s.Running
	r.Unfit, r.Example, r.Fault = h.unfit, clip(h.example), ""
	s.Running, s.Last = nil, &Result{Run: r, Ended: stamp(now)}
}

// collect ends the run whose job has ended.
func (s *Schedule) collect(st State, now time.Time) {
	r := Result{Run: *s.Running, Ended: stamp(now), Phase: st.Phase, Reason: st.Reason}
	if !st.Ended.IsZero() {
		r.Ended = st.Ended
	}
	if sum := st.Summary; sum != nil {
		r.Objects, r.Failed, r.Rows, r.Rejected = sum.Objects, sum.Failed, sum.Rows, sum.Rejected
	}
	s.Running, s.Last = nil, &r
}
