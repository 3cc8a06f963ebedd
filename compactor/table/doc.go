// Package table keeps the Iceberg tables of topics: one table per topic, which
// names the data files of its compacted segments, each segment once.
//
// The files belong to the log: they lie in the topic's folder and are named by
// the segment's manifest, table or not. A table names them a second time. So
// nothing here ever deletes a data file, and dropping a table deletes no record.
//
// # Exactly once
//
// [Table.Commit] adds segments to a table. Which segments are in a table is said
// at two places: by the segment's own record (table.json, not of this package),
// and, until somebody has seen that record, by the table's property
// spillway.segments. The property changes in the same transaction as the files,
// and only if the table's head is still the one that was loaded; so whoever
// decides from a load has to load again after anybody else's commit. What became
// of a commit is never concluded from its answer: the table is loaded again, and
// the commit is done when there is nothing left to add.
//
// # Memory and time
//
// A commit reads the footers of the files that it adds, and writes one manifest
// and one manifest list. Manifests are merged by tens, and snapshots beyond the
// last [MaxSnapshots] are taken out of the table's metadata, so that both stay
// flat however many segments there are.
package table
