// Package nomad is the backend for a Nomad cluster. Input: workloads, by the contract of core/backend. Output: Nomad
// jobs, one batch job for each workload, through Nomad's HTTP API (1.8 or newer) and nothing else.
//
// One job for each workload is the only layout. One group with a count for all workers was tried on Nomad 1.11 and cannot
// keep who is who. As long as all nodes answer it nearly can: of a batch job's group a worker that was drained ends well, the
// count may follow it down, nobody else is stopped, and the next one up takes the lowest index that is free. But:
//   - a client is lost and the count is lowered by its workers: when it is back Nomad goes by indexes, stops a worker that
//     was never lost and never drained, and keeps one that was given up (TestWhyNotOneGroup). A job of its own that was
//     told to end is ended by the client itself when it is back;
//   - Nomad chooses the index of a new worker, and with it whose rank and generation that is: who writes down which index
//     is whom must foresee the choice, and one "nomad job scale" by a person makes that wrong;
//   - a higher generation in the same place takes a change of the count (or a new version of the job) for each, which
//     touches all other workers' allocations too, and of the six versions that Nomad keeps none is what was submitted;
//   - all members have one specification: no Avoid and no Resources of a workload's own, and the Files of all of them share
//     the three variables that a task may read;
//   - of a service's group none may end by itself: it fails, or is started again, and a deployment blocks the scaling.
//
// A job of its own gives a workload an identity (kale-JOB-worker-3-g2), lets the caller choose who goes, and leaves Nomad
// nothing to replace; to claim it is a compare-and-set (JobModifyIndex 0), as every change of it is. How it does so:
//   - type batch: what ended with code 0 is over;
//   - reschedule off and disconnect { replace = false }: a client that is lost keeps its one allocation, which is
//     unknown until it is back; only a higher generation takes its place;
//   - an allocation that people stop, or that is preempted, is started anew, once the one before it has ended; one whose
//     node was lost and is purged is started anew at once, and goes on when that node is back after all (bind.go);
//   - a node's drain leaves batch jobs alone until its deadline, which shows as the workload's Deadline: the scheduler
//     starts a successor elsewhere in time (a drain without a deadline is met within an hour). What is still there then
//     ends, and has failed: Nomad moves no batch job that ends well;
//   - a second copy (somebody raised the count) ends itself before it starts anything, and is drift: never taken for the workload.
//
// What is kept, and where:
//
//	variable kale/JOB            the ledger: the highest generation of each role and rank, and whether it was released.
//	                             Every claim is a compare-and-set on it, so two schedulers by mistake start one process.
//	job kale-JOB-worker-3-g2     what runs; deregistered without purge, so that its logs stay readable until Nomad's
//	                             garbage collection; what that would never take is purged (list.go, lingering). The
//	                             ledger remembers what was released when the job is gone.
//	                             Forget purges it, and the ledger with the last of them.
//	variable nomad/jobs/THAT     the workload's Files and environment, rendered into the task's secrets folder with mode
//	                             0600: they are in no job specification, argument or allocation. Deleted on release, and
//	                             when a higher generation has replaced what people or Nomad had ended.
//	                             Three such variables of 64 KiB are a task's to read: 130 KB, and more only as far as it
//	                             can be compressed; the rest is refused, and belongs on the shared folder.
//
// A node's files (logs, how a workload ended) are read through the servers; the nodes' own addresses need not be reachable.
//
// On the node a small shell (start.sh, written into the task's folder as local/kale-start.sh) starts the program: it
// gives it its devices and files, merges its output, passes on the request to stop, keeps the grace to the second (Nomad
// itself caps it at the client's max_kill_timeout), and says how the process before it ended. It needs /bin/sh on the
// node or in the image.
//
// Drivers: raw_exec sees the node as it is. exec and docker show a task a file system of its own: the shared folder is a host
// volume of the clients (volume blocks), and the program comes in an artifact, in the image or in the clients' chroot. In a
// container the shell takes the place of the image's entry point, and the network is the node's, where servers are looked
// for. The suites run on real tasks of each of the three.
//
// The policy that a token of the plugin needs, with ACLs on; the job's namespace for NS:
//
//	namespace "NS" {
//	  capabilities = ["submit-job", "read-job", "list-jobs", "alloc-lifecycle", "read-logs", "read-fs"]
//	  variables {
//	    path "kale/*"            { capabilities = ["read", "write", "list", "destroy"] }
//	    path "nomad/jobs/kale-*" { capabilities = ["read", "write", "list", "destroy"] }
//	  }
//	}
//	node { policy = "read" }
//
// and host_volume "NAME" { policy = "write" } for each volume.
package nomad
