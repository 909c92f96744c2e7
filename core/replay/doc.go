// Package replay runs scheduling policies over a recorded arrival rate and says what each would have cost.
//
// In: a [Trace] (arrival rate in bins), a job (limits, objective, throughput model, the numbers of its policy), and [Options] (how a rescale behaves, how many
// seeds). Out: a [Result] for each policy, which [WriteText], [WriteJSON] and [WriteHTML] show.
//
// What is replayed is the scheduler's own code: the observation is made by core.Sight, the forecasts by core.RollingForecasts, the decision by plan.Policy.
// What is simulated is the world, event by event: arrivals at a piecewise constant rate, a FIFO backlog of which every record's age is known exactly, workers
// that come after a lead and leave after a drain (live), or a pause in which nothing trains (restart), workers that are lost. Chance is a pure function of
// the seed and the minute of the decision, so that every policy, and the oracle, meets the same draws.
//
// The metrics are those of Kale §4.1 (SoCC 2024): lag is the age of the oldest untrained record at the end of each minute, accumulated lag its sum,
// violation the share of minutes with a lag over the objective, GPU-hours count every GPU from the moment it is asked for until it is released.
package replay
