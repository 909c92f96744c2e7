// Package kafkatest gives tests a Kafka broker that they may kill: real Apache Kafka, one KRaft node started from its
// published jars ([Start]), or the embedded broker in a process of its own ([Embedded]). Both are a [Cluster], so that
// one test runs against both.
//
// Real Kafka needs Java 17 or newer, and Maven the first time: the jars go to a cache folder ($KALE_CACHE, else the
// user's cache folder under kale), each checked against a pinned SHA-256. `go run ./core/stream/kafkatest/fetch` fills
// the cache beforehand. A test on a machine that lacks them is skipped, saying what to install.
//
// Importing this package has a side effect, which is why only tests import it: a test binary that is started with
// KALE_KAFKATEST_BROKER set runs the embedded broker instead of its tests.
package kafkatest
