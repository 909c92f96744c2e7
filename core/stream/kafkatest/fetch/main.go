// Command fetch fills the cache of package kafkatest with Apache Kafka's jars, so that tests need not wait for them. It
// exits 0 also where this machine lacks Java or Maven, saying so: the tests are skipped there.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/kale-sched/kale/core/stream/kafkatest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	libs, err := kafkatest.Install(ctx, os.Stderr)
	switch {
	case errors.Is(err, kafkatest.ErrMissing):
		fmt.Fprintln(os.Stderr, err)
	case err != nil:
		fmt.Fprintln(os.Stderr, "fetch Kafka for the tests:", err)
		os.Exit(1)
	default:
		fmt.Println(libs)
	}
}
