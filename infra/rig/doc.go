// Package rig is what the demo, the chaos runs and the benchmarks share: a stack
// with workers and planners of their own processes that can be killed, publishers
// that keep a ledger of what they sent and what was acknowledged, and the comparison
// of that ledger with what is read back.
//
// Each record carries its number in the ledger in the header [NumberHeader], so
// that it is known again whatever its value is.
package rig
