// Package chaos draws the faults of a run from a seed, and judges what a job did through them. It touches no process itself.
//
// Input: a seed, a number of faults and the kinds that a site (one machine, a Slurm, a Nomad) can bring about. Output: a [Schedule], the same for the same
// input wherever it is drawn; a [Journal] of what was done and when; from samples of progress, the longest stop that no fault explains ([LongestStop]);
// and, for faults of the network, a [Proxy] and a [Relay].
//
// The runs themselves are among the end-to-end tests (cmd/kale/e2e, chaos_test.go), which own the processes:
//
//	make chaos                                                  # 100 faults on each site of this machine
//	go test ./cmd/kale/e2e -run TestChaos -faults 50 -seed 7    # a longer run, or one again
//	go test ./cmd/kale/e2e -run TestChaos/slurm -kinds preempt,lose-node
package chaos
