// Package ps is the parameter server: tablets of embedding rows and dense weights with their optimisers, the offsets that each has been
// trained with, and their snapshots; and the client with which workers pull and push.
//
// In: pushes (gradients of named Kafka offsets), pulls, the chief's word on pinned starts. Out: weights, progress, snapshots, and sums that
// prove what was trained. The promise, and the reason for everything that looks complicated here: each record's gradient enters each
// tablet's optimiser exactly once, though any process may be killed, stopped or cut off at any moment. It is not promised that a run with
// faults takes the same steps in the same order as one without: training is asynchronous, and there is no such order. (The rules, with the
// interleavings that break simpler designs and the tests that play them, are in trainer/EXACTLY_ONCE.md.)
//
// # The tablet
//
// The model is cut into a fixed number of tablets (Layout): embedding rows by a hash of their id, the dense vector into equal blocks. A
// tablet is the unit of state. It holds
//
//	rows      weights and optimiser state per row, in slabs of 128 rows        (table)
//	dense     its block of the dense vector, likewise                          (slab)
//	steps     its own count of optimiser steps
//	ledgers   per Kafka partition: the set of offsets that it has been trained with, and (n, Σ hash) of the records  (ledger)
//
// and all of it changes together under one lock and is written together into one snapshot file. That is the whole trick: whatever moment
// of a tablet is restored, its weights and its ledgers are of the same moment, so it knows what it lacks, and replaying too much is harmless.
// A server is just a process that serves some tablets; nothing that matters is kept per server.
//
// # A push
//
// A worker computes a batch, and pushes it to all servers with all of its spans, whether or not a tablet has rows in it: every tablet must
// move its watermark (rule 6). Per tablet, under its lock, Push compares the spans with the ledger, and then
//
//	none applied → claim the spans, count the records, apply the gradients       "applied"
//	all applied  → nothing: a repeated push, or a replay after a restore         "already"
//	some applied → nothing; the answer names what is missing                     "partial"
//
// The third happens when tablets were restored from different moments, or after a worker died in mid-push and another has its records in other
// batches. Gradients of a batch are sums over its records and cannot be split afterwards, so the worker computes the missing records again and
// pushes them to those tablets only. Since the loss is a sum over the nominal batch, a part of a batch weighs what it weighed in the whole.
//
// Everything that could be refused (shape, ownership, finiteness, fences) is checked before the first claim; after a claim nothing can
// fail. The lock is held from the claim to the last weight, so a duplicate that comes meanwhile waits, and its "already" is true.
//
// # A snapshot
//
// Tablets are written on their own, a few at a time, while pushes go on; there is no barrier and no moment that all tablets share. cut holds a tablet's
// lock only to copy one pointer per slab and the ledgers; from then on whoever writes to a slab of that moment copies it first (epoch and
// frozen), until the file is written. So a snapshot never holds half of a push, and never holds pushes up.
//
// The file lands under a name that begins with the server's incarnation, a number from the checkpoint store that no two processes share, after it was
// synced and read back. A server that was stopped and replaced may wake and write; what it writes sorts below its successor's, and it is
// told to exit (checkpoint.ErrSuperseded). Restore takes the newest file that verifies, and reports those that do not. Which snapshots there are is noted
// beside the tablets' folders (checkpoint.Manifest), so that a tablet whose files are lost is not taken for one that never had any (ErrUnrestorable).
//
// Three offsets come out of this per partition, and are never mixed (Progress): touched, what some tablet has; applied, what every tablet has; durable, what the
// oldest file that is kept has in every tablet. Durable is the one that is committed to Kafka.
//
// # Proof
//
// A set of offsets cannot show that a record was trained twice. So each ledger also counts records and sums their hashes at the moment of
// the claim, from what was really in the tensor; Sums and ReadCheckpoint (from files alone) give them out, to be compared with the broker's
// log. With Options.UnsafeNoDedup the check fails, as it must (TestRule19…). The counting model counts records in integers, per id and in all.
//
// # Where to read on
//
//	layout.go     which tablet, which server
//	tablet.go     the state, claims, the cut
//	push.go       the rules of a push
//	server.go     options, fences, pulls
//	table.go      rows in slabs, shared with snapshots by copy on write
//	snapshot.go, format.go, restore.go    to files and back; fallback.go has the words for what was lost
//	progress.go   offsets, sums, metrics
//	client.go, calls.go    the workers' side: fan-out, repetition, newest incarnation
//	frozen.go     a checkpoint read without servers
package ps
