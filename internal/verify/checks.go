package verify

import "slices"

// Kind names a check and the violations that it finds. Kinds are stable: scripts
// may decide by them.
type Kind string

// check is one thing that must hold. find tells what is wrong with a subject,
// or "" if nothing is.
type check[T any] struct {
	kind Kind
	find func(T) string
}

// run applies checks to a subject and tells whether all hold.
func run[T any](v *verifier, list []check[T], at place, subject T) bool {
	ok := true
	for _, c := range list {
		if detail := c.find(subject); detail != "" {
			v.add(c.kind, at, detail)
			ok = false
		}
	}
	return ok
}

// checks are all checks, by what they look at.
type checks struct {
	topic       []check[error]
	log         []check[logState]
	link        []check[link]
	layout      []check[layoutStep]
	history     []check[*history]
	stray       []check[stray]
	early       []check[early]
	segment     []check[segmentFile]
	attributes  []check[error]
	chunk       []check[*chunkStep]
	stored      []check[stored]
	decoded     []check[error]
	record      []check[*recordStep]
	content     []check[*content]
	batch       []check[batchStep]
	manifest    []check[manifestStep]
	dataFile    []check[dataFile]
	dataDecoded []check[error]
	dataRow     []check[dataRow]
	dataCount   []check[dataCount]
	dataEnd     []check[dataEnd]
	recorded    []check[error]
	table       []check[tableStep]
	tableFile   []check[tableFileStep]
	end         []check[segmentEnd]
	source      []check[*source]
	rows        []check[rowStep]
	lane        []check[laneStep]
	message     []check[messageStep]
}

func allChecks() checks {
	return checks{
		topic: []check[error]{{"topic.file", describe}},
		log:   []check[logState]{{"log.head", checkHead}},
		link:  []check[link]{{"log.gap", checkGap}, {"log.fork", checkFork}},
		layout: []check[layoutStep]{
			{"layout.invalid", checkLayout}, {"layout.epoch", checkEpoch}, {"layout.order", checkTurns},
			{"layout.edit", checkEdit}, {"layout.cover", checkCover},
		},
		history: []check[*history]{{"layout.missing", checkInForce}},
		stray:   []check[stray]{{"segment.stray", checkStray}},
		early:   []check[early]{{"segment.early", checkEarly}},
		segment: []check[segmentFile]{
			{"segment.file", checkSegmentFile}, {"segment.epoch", checkBirth}, {"segment.parents", checkParents},
			{"segment.created", checkCreated}, {"segment.floors", checkFloors},
		},
		attributes: []check[error]{{"chunk.attributes", describe}},
		chunk: []check[*chunkStep]{
			{"offsets.gap", checkBase}, {"bytes.gap", checkByteBase}, {"chunk.empty", checkEmpty}, {"chunk.times", checkTimes},
			{"positions.back", checkBack}, {"positions.foreign", checkForeign},
			{"seal.last", checkNothingAfter}, {"seal.content", checkSealContent}, {"seal.positions", checkSealPositions},
			{"seal.time", checkSealTime}, {"seal.floors", checkSealFloors},
		},
		stored:  []check[stored]{{"chunk.lost", checkLost}, {"chunk.digest", checkDigest}},
		decoded: []check[error]{{"chunk.decode", describe}},
		record: []check[*recordStep]{
			{"records.order", checkOrder}, {"records.from", checkFrom},
			{"records.late", checkLate}, {"records.lineage", checkLineage}, {"records.range", checkRange},
		},
		content: []check[*content]{
			{"chunk.count", checkCount}, {"chunk.bytes", checkBytes}, {"chunk.load", checkLoad}, {"chunk.hot", checkHot},
			{"chunk.refs", checkRefs}, {"chunk.pending", checkPending},
			{"positions.record", checkLastRecord}, {"positions.time", checkPositionTime}, {"records.times", checkRecordTimes},
		},
		batch: []check[batchStep]{
			{"batch.header", checkBatchHeader}, {"batch.object", checkBatchObject}, {"batch.count", checkBatchCount},
		},
		manifest: []check[manifestStep]{
			{"manifest.file", checkManifestFile}, {"manifest.seal", checkManifestSeal},
			{"manifest.ranges", checkManifestRanges}, {"manifest.sums", checkManifestSums},
		},
		dataFile:    []check[dataFile]{{"data.lost", checkDataLost}, {"data.digest", checkDataDigest}},
		dataDecoded: []check[error]{{"data.decode", describe}},
		dataRow:     []check[dataRow]{{"data.rows", checkDataRow}},
		dataCount:   []check[dataCount]{{"data.count", checkDataCount}},
		dataEnd:     []check[dataEnd]{{"data.positions", checkDataPositions}, {"data.differs", checkDataDiffers}},
		recorded:    []check[error]{{"table.file", describe}},
		table:       []check[tableStep]{{"table.missing", checkTableMissing}},
		tableFile:   []check[tableFileStep]{{"table.stray", checkTableStray}, {"table.twice", checkTableTwice}, {"table.rows", checkTableRows}},
		end:         []check[segmentEnd]{{"seal.live", checkSealLive}, {"seal.missing", checkSealMissing}},
		source:      []check[*source]{{"checkpoint.file", checkCheckpoint}, {"checkpoint.back", checkCheckpointBack}, {"backfill.count", checkTally}},
		rows:        []check[rowStep]{{"rows.twice", checkTwice}, {"rows.missing", checkMissing}},
		lane: []check[laneStep]{
			{"lane.stream", checkStream}, {"lane.incarnation", checkIncarnation},
			{"lane.back", checkLaneBack}, {"lane.witness", checkWitness},
		},
		message: []check[messageStep]{{"lane.uncommitted", checkCommitted}, {"lane.rows", checkRowCount}},
	}
}

// describe is the check of what either works or fails with an error.
func describe(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// remove leaves out the check of a kind.
func (c *checks) remove(kind Kind) {
	c.topic, c.log, c.link = drop(c.topic, kind), drop(c.log, kind), drop(c.link, kind)
	c.layout, c.history, c.segment = drop(c.layout, kind), drop(c.history, kind), drop(c.segment, kind)
	c.stray, c.early = drop(c.stray, kind), drop(c.early, kind)
	c.attributes, c.chunk, c.stored = drop(c.attributes, kind), drop(c.chunk, kind), drop(c.stored, kind)
	c.decoded, c.record, c.content = drop(c.decoded, kind), drop(c.record, kind), drop(c.content, kind)
	c.batch, c.manifest = drop(c.batch, kind), drop(c.manifest, kind)
	c.dataFile, c.dataDecoded, c.dataRow = drop(c.dataFile, kind), drop(c.dataDecoded, kind), drop(c.dataRow, kind)
	c.dataCount, c.dataEnd = drop(c.dataCount, kind), drop(c.dataEnd, kind)
	c.recorded, c.table, c.tableFile = drop(c.recorded, kind), drop(c.table, kind), drop(c.tableFile, kind)
	c.end, c.source, c.rows = drop(c.end, kind), drop(c.source, kind), drop(c.rows, kind)
	c.lane, c.message = drop(c.lane, kind), drop(c.message, kind)
}

func drop[T any](list []check[T], kind Kind) []check[T] {
	return slices.DeleteFunc(list, func(c check[T]) bool { return c.kind == kind })
}

// Kinds lists the kinds of all checks.
func Kinds() []Kind {
	c := allChecks()
	return slices.Concat(kinds(c.topic), kinds(c.log), kinds(c.link), kinds(c.layout), kinds(c.history),
		kinds(c.stray), kinds(c.early), kinds(c.segment), kinds(c.attributes), kinds(c.chunk), kinds(c.stored), kinds(c.decoded), kinds(c.record), kinds(c.content),
		kinds(c.batch), kinds(c.manifest), kinds(c.dataFile), kinds(c.dataDecoded), kinds(c.dataRow), kinds(c.dataCount), kinds(c.dataEnd),
		kinds(c.recorded), kinds(c.table), kinds(c.tableFile), kinds(c.end), kinds(c.source), kinds(c.rows), kinds(c.lane), kinds(c.message))
}

func kinds[T any](list []check[T]) []Kind {
	names := make([]Kind, len(list))
	for i, c := range list {
		names[i] = c.kind
	}
	return names
}
