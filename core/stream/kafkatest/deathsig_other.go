//go:build !linux

package kafkatest

import "os/exec"

// dieWithParent does nothing here: a test binary that is killed leaves Apache Kafka running on systems without a death
// signal. The embedded broker watches its standard input.
func dieWithParent(*exec.Cmd) {}
