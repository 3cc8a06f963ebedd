// Package tabletest tests what is built on catalogs: [Server] is a catalog in
// memory whose clients inject faults, [Proxy] injects them into calls of any other,
// and [Run] is the suite that all of them pass, with the tables of package table on top.
package tabletest
