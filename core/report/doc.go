// Package report turns what a scheduler recorded into one HTML file that a person opens from disk.
//
// In: samples, rescales and decisions of one job, from its state ([FromStore]) or from the caller, and a list of facts to be shown first.
// Out: a self-contained page ([Write]). Its charts are uPlot's, which is embedded; its data are embedded JSON; it loads nothing, and a
// content security policy says so to the browser. What a job names itself, and every reason and message, is text and never markup.
//
// The four charts share one time axis: traffic with its forecast and the capacity that met it, workers by state, lag against its objective,
// and the share of time that accelerators were busy. Times are those of its reader's zone, which is
// named, and UTC without a script. Accelerators that are emulated are named so.
package report
