// Package e2e tests the whole product as its users run it: real processes (kale, its backend plugin, kale-trainer) on a real broker, the embedded
// one and Apache Kafka, through kill -9, SIGSTOP, rescales and what brokers do to topics.
//
// It has tests only. What they hold against each other in the end is never what the product says of itself, but what lies in the stores: the broker's
// log on one side, every tablet's snapshot on the other (package audit, and for the counting model each record's own counter: EXACTLY_ONCE
// rules 19 and 20). TestWithoutDeduplicationTheCheckFails shows that this comparison can fail.
//
// The files: programs_test.go builds what is run; rig_test.go is one job on one broker; look_test.go what is seen of it and how it is waited for;
// traffic_test.go the records; proof_test.go the comparison; site_test.go is where processes run, one site for each backend. chaos_test.go sends a job
// through faults that a seed has drawn (package chaos): storm_test.go applies them, slurmfaults_test.go and nomadfaults_test.go those that only a cluster can bring about; observe_test.go
// watches from beside. crowd_test.go (make crowd) joins hundreds of workers and prints figures. The others are the tests.
//
// A backend of another kind becomes a site: a line in sites, with what it can bring about that other sites cannot (site.faults, site.shares).
package e2e
