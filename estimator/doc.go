// Package estimator models the training throughput of a job: how many samples
// per second w workers and p parameter servers can train.
//
// Input: measured intervals (workers, servers, samples/s) in which the job was
// saturated, and a stated prior. Output: a [Model] F(w, p), and from it the
// smallest number of workers that is sufficient for a load.
//
// The forms are those of Kale §3.3 (Liu, Yang et al., SoCC 2024): Eq. 6 and
// Eq. 9 with the ratio of workers to servers fixed, Eq. 5 and Eq. 8 with both
// free. Beside them stand those of Optimus, Ernest and Pollux, the universal scalability law,
// and one of ours; [Form] is the list, and [Select] chooses by leaving one out.
// All but Pollux's are linear in the time of a step, so a fit is one non-negative
// least-squares problem ([NNLS]) and needs no iteration over starting points.
//
// Two facts shape the API:
//
//   - F is not monotone. With contention, more workers can train less, so
//     "the smallest w with F(w) > load" may not exist. [Model.Smallest] then
//     answers with the peak and says that the job is saturated.
//   - Only saturated intervals teach F. While there is no backlog, the measured
//     rate is the arrival rate and says nothing about capacity; [Fit] ignores
//     such intervals. Only where a rate is above what the model says can be
//     trained, it contradicts the model: [Online] then takes it for a lower
//     bound on F at that count. Where it is surely above what was measured there, it
//     contradicts the measurement, which is of a time that is past ([Recovery]). A full
//     load too short to be measured by is an upper bound for a while ([Online.Strained]).
//
// The package is pure: no clock, no randomness, no I/O, and no iteration over
// maps. It imports the standard library and gonum only.
package estimator
