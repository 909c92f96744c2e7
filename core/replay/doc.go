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
// Two limits stand beside the policies. The oracle knows the trace and every draw. The blind oracle knows, at each moment, the mean rate of the hour around it
// and the mean of every draw: its schedule is planned once on these by the same programme and carried out against the trace itself, where it answers to
// the lag as it goes. What lies between the two is the price of not knowing the noise, which no policy can save.
//
// A sweep chooses settings on the first half of the days and measures on the second.
//
// The metrics are those of Kale §4.1 (SoCC 2024): lag is the age of the oldest untrained record at the end of each minute, accumulated lag its sum,
// violation the share of minutes with a lag over the objective, GPU-hours count every GPU from the moment it is asked for until it is released.
package replay
