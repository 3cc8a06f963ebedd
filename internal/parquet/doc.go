// Package parquet writes and reads data files: the Parquet files that the records of a
// sealed segment become, and that readers and query engines share from then on.
// docs/FORMAT.md, "Data files", is the specification. Like package record it is about
// bytes: it opens no files, reads no clock and knows no topics.
//
// A [Writer] takes rows in the order of their offsets. Equal rows give equal bytes,
// whoever writes them and however fast, so a file may be named by what is in it. A
// [Reader] gives them back, and reads of a file no more than it needs to: row groups
// and pages that cannot have what is asked for are passed over, and columns are read
// where a row needs them. Whatever the bytes are, it neither panics nor takes memory
// without bound; package guard stands between it and the library (arrow-go).
package parquet
