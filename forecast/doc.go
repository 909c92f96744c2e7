// Package forecast predicts the arrival rate of a stream: the workload
// forecaster of Kale §3.2, made pluggable.
//
// Input is a [Series]: samples per second in bins of equal length, the past of
// one job. Output is a [Forecast]: the same quantity for the bins that follow,
// with a point forecast and quantiles, the 10 % and the 90 % at least. Everything that turns
// one into the other is a [Forecaster]:
//
//   - [NewSeasonal]: level-corrected seasonal naive in pure Go, stacked with what
//     the last bins tell. It needs no model and no training of its own, and is what
//     every other forecaster has to beat.
//   - [OpenONNX]: any model file that keeps the contract of contract.go, run by
//     ONNX Runtime. [TrainLinear] makes a small one from history,
//     [TrainWindowModel] NLinear, DLinear and SparseTSF, and [TrainFEDformer] the
//     paper's.
//   - [NewSeasonalEnsemble]: the mean of the seasonal forecaster and of an NLinear that
//     is learnt as traffic comes; no file either.
//   - [NewNaive], [TrainWindow] (the three without a file)
//     and [NewEnsemble]: what these are measured beside.
//   - [Gate]: one forecaster guarded by another. It scores both against what
//     arrived, falls back when the first does worse, comes back when it is good
//     again, and says which it used, why, and whether either is to be trusted.
//
// The first forecast of a model file runs it at some hundred moments of the past (calibrate.go), which takes a large one seconds; ONNXOptions.Progress tells how far it is.
// A scheduler that runs does not wait for that (core/beside.go): until then the gate has a primary that answers [ErrNotReady]. What is learnt is the same.
//
// [Backtest] measures a forecaster by rolling origin; kale forecast eval prints it.
//
// No forecaster reads a clock, a random source or anything but its arguments:
// the same history gives the same forecast, and a change of the history after a
// moment changes no forecast made at that moment. Bins are counted in elapsed
// time, so a change to or from summer time does not exist for them: a [Calendar] with
// a zone shows them each bin at the hour that it had on the clock (clock.go).
//
// What people know and no past tells, a [Calendar] has: events with an uplift, which are taken as they come (events.go), and holidays, which are a kind
// of day of their own (holiday.go), of which it is measured as they go on whether they are kept (kept.go). It stands before any forecaster: that reads a history without them,
// and what it says is multiplied. So the weekdays on which they fell stay as they are, and a model file needs to know nothing of them.
//
// A bin without a measurement is NaN. It is unknown, which is never zero: no
// forecaster reads it as absence of traffic, and no score counts it.
// A bin that is far beyond whatever lasted is no traffic either: forecasters go by what
// is around it, and no score counts it ([Series.Faults]).
package forecast
