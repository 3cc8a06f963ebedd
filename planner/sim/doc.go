// Package sim runs the planner in virtual time: load comes from a [Trace], a
// recorded one or a pattern, and [Run] tells what [planner.Plan] makes of it under
// a policy: the layouts, every edit with its reason, how long a segment was above
// its target, whether a merge undid a split.
//
// What is decided and what is edited is real: Plan, the averages, the layouts. What
// is simulated is the worker, which flushes once per flush age, and tells of each
// flush as little as the attributes of a chunk do.
package sim
