// Package traffic turns Kafka's offsets into what a scheduler needs to know of a stream: how fast records arrive, and
// how far behind training is, in records and in seconds.
//
// Input: the end offsets of a topic, observed as time goes by or asked of the broker for past times, and the offsets up
// to which each partition has been trained. Output: arrival rates as a series over time, and lag.
//
//   - [Client] asks a Kafka cluster: what the topic is, where its partitions start and end, where they ended in the past.
//   - [Arrivals] is the history of end offsets, pure and bounded: it is told the time and calls no clock.
//   - [Backfill] fills an Arrivals with the past days from the broker itself (offsets by timestamp), so that a scheduler
//     that has just started has a history, and with what a scheduler missed while it was suspended or the brokers away.
//
// Lag is what the paper measures (Kale §4.1): the time from a sample's entry into the queue to its training. Ends are
// last stable offsets, what a reader of committed records can reach. Lag in records and arrival rates count offsets: in
// a topic written by transactions each transaction adds one offset per partition, its marker, that is no record, and
// aborted records count too.
//
// Unknown is never zero: what the history does not reach is NaN, or reported as not known. So is what arrived across a clock that was set back or ahead, and
// across ends that went down: of neither do offsets say when it did.
package traffic
