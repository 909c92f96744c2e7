// Package stream makes the stream that a job trains on when there is no production Kafka at hand, and checks a stream
// that there is.
//
//   - [OpenBroker] runs an embedded Kafka broker in this process, with its log in a folder that survives kill -9.
//   - [Curve] is an arrival rate over time, read from a trace ([ReadCurve]) or made up in the shape that the paper
//     published ([SyntheticWeek], Kale §4.4).
//   - [Clicks] draws click records whose preferences drift, so that a model that stopped learning loses accuracy.
//   - [Produce] plays a curve of clicks into a topic, live or as history with past timestamps.
//   - [Scan] and [LogSum] read a range of a log back, to compare what a job trained with what the broker holds
//     (Σ [RecordHash], rule 19 of the exactly-once rules).
//
// It knows nothing of schedulers or trainers. Sub-package kafkatest starts real Apache Kafka and the embedded broker,
// each as a process that can be killed, for the tests of the other packages.
package stream
