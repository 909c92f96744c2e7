// Package pool divides a pool of GPUs among jobs.
//
// Input: the size of the pool and, for each job, its priority, guarantee and limit, how many workers it asks for (what its policy wants), how many it
// holds, and what each worker is worth to it (core/plan's Worth: the lag and the violations that it would be without). Output: for each job, how many
// workers it shall have in the end (Goal), how many it may have now (May), how many it must give back (Gives), and the arithmetic in words.
//
// The rules, in this order:
//
//   - Never above the pool. What a job holds counts until it has been released, that of workers that drain too: who is to have more waits for that.
//     Nobody is cut off: who must give back drains first.
//   - Guarantees. A job that asks for its guarantee gets it. What it does not ask for is lent to others, and returned when it does.
//   - Priorities. Beyond the guarantees, a job of higher priority gets what it asks for before one of lower priority gets anything.
//   - Worth. Among jobs of one priority a worker goes to where it is worth most per GPU, so that what is missing is missed least.
//   - Calm. Among these a worker that a job holds counts for Move more: it does not change hands for less than the change costs.
//   - Fairness. Where all this is equal, to the job that has fewer GPUs beyond its guarantee.
//   - Nothing lies idle: a GPU is left over only when nobody asks for it, or when it is too few for one more worker.
//   - Unknown is never zero. What a job holds that could not be looked at yet counts as its limit; while that does not leave room for what the others
//     hold, nobody gets more and nobody gives back.
//
// Everything here is pure: no clock, no I/O, no randomness, no order of a map or of the input. Nothing is remembered from one call to the next: what
// must survive a restart is what the jobs hold, and that is seen. Guarantees bound how long a job can be starved: not at all below them, for ever above.
package pool
