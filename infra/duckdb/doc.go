// Package duckdb runs SQL with DuckDB, as a node program of its own: an engine that
// shares no code with Spillway, for the tests, the demo and the bench to read Spillway's
// tables with. It is no part of Spillway itself.
//
// DuckDB reads Parquet files of the file system. To read those of a filer, [Fetch] makes
// copies of them, since the extensions by which DuckDB reads S3 and Iceberg are
// downloaded separately.
package duckdb
