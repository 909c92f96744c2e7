// Package pool divides a pool of GPUs among jobs.
//
// Input: the size of the pool, by type of GPU where it has types, and, for each job, its type, priority, weight, guarantee and limit, how many workers it asks for (what its policy wants), how many it
// holds, and what each worker is worth to it (core/plan's Worth: the lag and the violations that it would be without). Output: for each job, how many
// workers it shall have in the end (Goal), how many it may have now (May), how many it must give back (Gives), and the arithmetic in words.
//
// The rules, in this order:
//
//   - Never above the pool. What a job holds counts until it has been released, that of workers that drain too: who is to have more waits for that.
//     Nobody is cut off: who must give back drains first.
//   - Guarantees. A job that asks for its guarantee gets it. What it does not ask for is lent to others, and returned when it does.
//   - Types. A job runs on one type of GPU, and shares it with the jobs of that type alone: each type is divided by the rules below, all in one round.
//   - Turns. Who asks for more than its guarantee, and has had no more for as long as the pool's patience, less the time that a worker takes to come, gets one worker beyond it for a turn; see below.
//   - Priorities. Beyond the guarantees, a job of higher priority gets what it asks for before one of lower priority gets anything.
//   - Worth. Among jobs of one priority a worker goes to where it is worth most per GPU, so that what is missing is missed least. What a worker of a job of
//     weight 2 is worth counts twice; no weight is anything to another priority.
//   - Calm. Among these a worker that a job holds counts for more, by what a change costs: Move for the GPUs, which are paid while they do not train, and as
//     large a part of what the worker is worth, which nobody has meanwhile. Of what a job holds nothing is taken for another of its priority, while it was given some of it no longer ago than it takes to move a worker. And
//     nobody drains for what a job asks for in one moment: only for what it has asked for as long as moving a worker takes, a quarter of the patience at most (an Asked says so), or is owed. What nobody else wants it has at once.
//     Nor does a worker move because of what it is worth in one moment: one that a job holds counts for the most that it was worth in that time, one that it lacks for the least.
//   - Whim. A job whose traffic jumps asks of others no more than a calm reading of that traffic says (core/plan's CalmOf: what it needs on the whole, as far as that is more than chance), whatever it asks
//     for in the jump and whatever its priority; the rest is Whim, and it has that of what nobody else wants. And what it needs calmly it must have needed for as long as anything else, to be firm. One that this leaves over its objective for
//     as long as a move takes, and as the objective is long, asks for all that it wants. A worker that was given to a job and taken again lately, or the other way round, is harder to move: each such reversal doubles what taking one away costs, and
//     for how long the job must ask for what others have; half of them are forgotten after each sixteen moves without one.
//   - Kept. A job without a forecast that it trusts lets nobody go by itself. What it holds so beyond what it needs by its recent traffic (by the most that it may need on the whole, where that traffic jumps) is, whatever its priority,
//     for those who have asked for more long enough, and stays with it while there are none, and until it has not needed it for as long as two moves take: there and back.
//   - Fairness. Where all this is equal, in proportion to weights, of what is beyond the guarantees, rounded to workers (Webster's method); where that is
//     equal too, to who holds the worker. Where no worker that jobs of a priority still want is worth anything (a twentieth of its GPUs at least), or nobody
//     knows its worth, the proportion decides alone, whoever holds what, but for what was given a moment ago (see Calm).
//   - Nothing lies idle: a GPU is left over only when nobody asks for it, or when it is too few for one more worker.
//   - Unknown is never zero. What a job holds that could not be looked at yet counts as its limit; while that does not leave room for what the others
//     hold, nobody gets more and nobody gives back.
//
// What is promised of starvation: never below a guarantee that is asked for. Above it, jobs of higher priority, or of more worth, may keep one that asks for
// more from having it for the patience (a Wait says since when); then it is due a turn. Of each type one job has a turn at a time, the longest waiting first,
// for a quarter of the patience and at least four times as long as moving a worker takes; then it waits anew. So of n jobs that wait each has a worker after
// the patience and n turns at most, with what the moves take; the others miss the GPUs of one worker, and of no guarantee any. Where what is not guaranteed is
// too little for one of its workers, or the patience is 0, nothing is promised above the guarantee. That a job gets its fair part in the long run is not.
//
// Everything here is pure: no clock, no I/O, no randomness, no order of a map or of the input. Nothing is remembered from one call to the next: what must
// survive a restart is what the jobs hold, which is seen, and their Waits and Askeds, which their schedulers keep with their own states.
package pool
