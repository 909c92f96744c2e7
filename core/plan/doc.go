// Package plan decides how many workers a job should have.
//
// Input: one [Observation], a value that holds everything a decision may
// depend on (the time, measured rates, the forecast, backlog, workers by state,
// the throughput model, limits, and the policy's own state of last time).
// Output: one [Decision], with the target, the arithmetic that led to it and the
// next state. [New] makes a [Policy] by name.
//
// The method is Kale §3.4 (SoCC 2024): [Eq10] turns a forecast into workers per
// step, [Stabilise] is Algorithm 1, and the "kale" policy adds limits,
// cooldowns and the fallback of §3.4.3 on lag and utilisation; whether workers that
// were added for the lag are any use is in bottleneck.go. What every
// policy must obey whatever it wants is in guard.go, once.
//
// Everything here is pure: no clock, no I/O, no randomness, no iteration over a
// map. The same observation gives the same decision, byte for byte, so the live
// scheduler, `kale plan`, `kale explain` and a replay agree, and a restart
// changes no decision. Time has no natural unit here either: a job may tick
// every minute with τ = 10 min, or every second with τ = 5 s.
package plan
