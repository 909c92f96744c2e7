// Package shuffler decides where a chunk of the stream is trained: on the worker that read it, or on another one whose queue has
// room (Kale §3.5, "Global data shuffling").
//
// Partitions are keyed by user attributes, so some run hot. Each worker has a [Unit]: what it reads goes to its local queue; when
// that is full, what follows goes to one available worker, chosen uniformly at random, into that worker's local queue, from where it
// is never forwarded again. A worker whose queue passes an upper bound refuses, and accepts again below a lower one; it tells its
// peers as this changes, without a coordinator.
//
// Input: chunks that were read ([Unit.Offer]) or received ([Unit.Receive]), and what peers say of themselves. Output: a [Decision]
// per chunk, and the local queue ([Unit.Take]). The origin of a forwarded chunk keeps it until [Unit.Settle]: when its receiver
// refuses or dies, the chunk is placed again, before what is younger. Only so much may be on its way to a peer that has not answered
// ([Unit.Accepted]), as all of it may come back.
//
// Where this differs from the paper: the paper puts overflow into a buffer of its own in front of the forwarding unit. Here a chunk
// for which there is neither room nor a receiver stays with the source ([Wait]), which stops reading: a stream can be read later, and
// nothing may be dropped. And receivers that hold no partitions are preferred, so that more workers than partitions is useful.
//
// The package is pure: no clock, no goroutine, no I/O; chance is a source that is passed in. A Unit is not safe for concurrent use.
package shuffler
