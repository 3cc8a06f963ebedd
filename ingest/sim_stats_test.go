package ingest

import "sync/atomic"

// simStats counts what a suite of simulations went through. A suite in which
// one of these is zero proves less than it claims.
type simStats struct {
	conflicts, lostReplies, late, takeovers, partialDrops, duplicates, rejected, unrouted, back, backStops, trims, awake atomic.Int64

	// Of references.
	refused, pending, verified, disputed atomic.Int64

	// Of backfills.
	backfillDrops, backfillRejected, backfillRegrouped, backfillWithin, backfillFiltered, backfillInTime, backfillCut atomic.Int64

	// With edits.
	edits, halfDone, races, regrouped, seals, floors, leftOut, rested atomic.Int64
}

func (s *simStats) all() map[string]*atomic.Int64 {
	return map[string]*atomic.Int64{
		"conflicts": &s.conflicts, "lost replies": &s.lostReplies, "late": &s.late, "takeovers": &s.takeovers,
		"partial drops": &s.partialDrops, "duplicates": &s.duplicates, "rejected": &s.rejected, "unrouted": &s.unrouted,
		"lanes back": &s.back, "stops": &s.backStops, "trims": &s.trims, "topics awake": &s.awake,
		"references refused": &s.refused, "references pending": &s.pending, "references verified": &s.verified, "verdicts that differ": &s.disputed,
	}
}

// withEdits counts what only a world with edits goes through.
func (s *simStats) withEdits() map[string]*atomic.Int64 {
	all := s.all()
	for name, n := range map[string]*atomic.Int64{
		"edits": &s.edits, "half-done edits": &s.halfDone, "planners lost": &s.races, "regrouped": &s.regrouped,
		"parents sealed": &s.seals, "floors": &s.floors, "floors left out": &s.leftOut, "topics rested": &s.rested,
	} {
		all[name] = n
	}
	return all
}

// withBackfills counts what only a world with edits and backfills goes through.
func (s *simStats) withBackfills() map[string]*atomic.Int64 {
	all := s.withEdits()
	for name, n := range map[string]*atomic.Int64{
		"rows dropped in part": &s.backfillDrops, "rows rejected": &s.backfillRejected, "rows regrouped": &s.backfillRegrouped,
		"checkpoints within objects": &s.backfillWithin, "rows left out": &s.backfillFiltered,
		"objects read in time": &s.backfillInTime, "objects cut short": &s.backfillCut,
	} {
		all[name] = n
	}
	return all
}
