// Package api is how commands speak with a running scheduler: HTTP with JSON, on a unix socket in the job's state folder.
//
//	GET  /v1/status                              the scheduler's picture of its job (core.View)
//	GET  /v1/decisions?n=5&changes=true          the last decisions, oldest first (core.Record)
//	GET  /v1/samples?since=2026-01-31T06:00:00Z  what was observed since (core.Sample)
//	GET  /v1/rescales?n=20                       finished rescales, oldest first (core.Rescale)
//	GET  /v1/hindsight?from=2026-01-31T06:00:00Z&leads=5m,30m&bins=10    how past forecasts came out (hindsight.Review)
//	GET  /v1/wanted                              what it wants to run, as it wrote it down (core.Wanted); null: nothing yet
//	GET  /v1/workloads/worker-3/logs?tail=100&follow=true    what a process wrote, as text
//	POST /v1/orders                              an order (core.Order)
//	GET  /v1/report                              the report, HTML, where the program has one
//
// What is not known is left out, or a zero beside which a field says so (lag and lag_known).
//
// Every answer has the header Kale-Api-Version. An error has a status of 400 and above and the body {"error": "…"}, whose text is for
// people. The handlers know nothing of the socket, so that they can be served elsewhere; whoever may open the socket may do everything, so it
// belongs to its user alone (mode 0600 in a folder of mode 0700).
package api

// Version is the version of the API, and VersionHeader where requests and answers name theirs. Within a version, fields and endpoints are only
// added.
const (
	Version       = "1"
	VersionHeader = "Kale-Api-Version"
)

// errorBody is the body of every error.
type errorBody struct {
	Error string `json:"error"`
}
