// Package planner decides how many segments a topic has, and where its key space
// is cut: it splits segments that take in more than they should, merges
// neighbours that take in little, and rolls those that are large or old enough to
// be compacted.
//
// [Plan] decides. It is a pure function of a [Situation] and a [Policy], and gives
// a reason for everything that it does and does not do. [Planner] reads situations
// from the filer, plans, and makes the edits; package planner/sim does the same in
// virtual time with a load from a file.
package planner
