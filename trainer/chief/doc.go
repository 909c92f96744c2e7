// Package chief is the membership and progress authority of one training job. It runs inside parameter server 0 and leases the
// stream's partitions to workers, so that each record is trained once and scaling never stops training (README, "How it works").
//
// Input: joins and beats of workers, progress reports of parameter servers, end offsets of the topic, requests of the scheduler.
// Output: for each worker its desired state (rpc.Directive), for the scheduler one consistent view (rpc.JobStatus), for Kafka the
// committed durable offsets.
//
// The one invariant to keep in mind, per partition:
//
//	every offset below `position` is applied in all tablets, or a live member answers for it, or it is about to be granted again.
//
// position is where reading goes on endlessly. Progress is only what tablets report (rule 10 of EXACTLY_ONCE.md): when a server is
// restored from an older snapshot its applied set shrinks, the invariant is broken for what was lost, and the next assignment grants those
// spans as repair. A span that a member answers for (its "outstanding") stays with it until the chief has told it that the span is applied, so the
// two views can lag behind each other without a record falling between them. Doubling is not the chief's concern: tablets refuse what they have.
//
// The machine holds all decisions, without clock, lock or I/O: member.go those about who takes part, partition.go about leases, assign.go about
// their distribution, progress.go takes in what servers have applied. chief.go is the shell with the gRPC service; watch.go looks at Kafka.
package chief
