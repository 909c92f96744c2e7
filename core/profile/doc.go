// Package profile measures what a job trains at several numbers of workers, and of servers, before it must be known.
//
// In: a [Bench], which is a job of its own beside the real one that can be given any number of workers and be looked at. Out: a [Profile], the points
// with their spread, the throughput form that tells points that it was not shown best (Kale §3.3 and its rivals, package estimator), how sure it is, and
// where it only extrapolates.
//
// Only saturated intervals count: all workers have joined, every look found each with full batches waiting, and every step trained a full batch. A rate
// that was measured while somebody waited for records is the rate of the stream and no capacity (Kale §3.3).
//
// The files: points.go which numbers of workers; meter.go when an interval counts; run.go the course of it; fit.go and profile.go what comes of it; chart.go
// draws it.
package profile
