// Package trainer is the worker of a training job: it reads the stream, steps the model, and pushes gradients to the parameter servers,
// so that each record is trained once (EXACTLY_ONCE.md, the worker's side).
//
//	grants ─► source ─► chunker ─► shuffle unit ─ keep ─► local queue ─► batch: decode, pull ─► step ─► push ─► servers
//	           repairs ─┘               └ forward ─► a peer's local queue                                 │
//	chief ◄── beat: leases, outstanding spans, metrics ◄── ledger ◄───────────────────────────────────────┘
//
// Input: a [rpc.TrainSpec], the chief's directives (desired state, reconciled on every beat) and the topic. Output: pushes to tablets, and
// the worker's reports. A span that the worker has read stays in its ledger, and so in every report, until the chief has confirmed
// that every tablet applied it: acknowledgements of pushes are hints (rule 10), and a parameter server that comes back with an older
// snapshot makes the worker read again what it had been told was done.
//
// One mutex (worker.mu) guards ledger, leases and shuffle unit; everything that blocks (Kafka, gRPC, ONNX Runtime) happens outside it.
// Goroutines, all started and awaited by RunWorker: the beat loop (beat.go, reconcile.go), the source (source.go), the repair reader (repair.go), the feeder
// (batch.go), the stepper (step.go), the pusher (push.go), one per peer (forward.go), and the Peer server.
package trainer
