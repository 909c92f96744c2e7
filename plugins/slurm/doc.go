// Package slurm is where the Slurm backend will live. It is not built yet: the package holds no code, and a job file
// that says backend "slurm" is refused.
//
// It will implement core/backend.Backend with one single-node Slurm job per workload, submitted idempotently and
// watched by one batched poll, and will pass core/backend/conformance.
package slurm
