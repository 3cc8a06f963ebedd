// Package compactor makes data files of sealed segments: Parquet files that say the
// same as the segment's chunks, a manifest that names them, and a place in the topic's
// Iceberg table, if there is a catalog. The chunks go when a grace time is over.
//
// For each segment it does four things in this order, and each can be done again:
//
//	rewrite   chunks → data files, read back and compared → manifest.json, created exclusively
//	commit    the manifest's files → the table → table.json
//	trim      manifest, table.json and grace → the log's head moves to the seal, chunks go
//	sweep     files that the manifest does not name go
//
// A crash between any two leaves what the next run goes on from. Two compactors at once
// do the same work twice, and one of them in vain: the manifest's creation and the
// table's commit decide whose counts. The lease on a topic only spares that work.
//
// A segment that cannot be read is quarantined, with the reason, and the others go on.
package compactor
