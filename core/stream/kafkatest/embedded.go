package kafkatest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/kale-sched/kale/core/stream"
)

// brokerEnv makes a test binary run an embedded broker instead of its tests; its value is a JSON childOptions.
const brokerEnv = "KALE_KAFKATEST_BROKER"

type childOptions struct {
	Addr      string
	DataDir   string
	Advertise string
}

func init() {
	if v, ok := os.LookupEnv(brokerEnv); ok {
		if err := runChild(v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// runChild serves until SIGTERM, or until the parent is gone.
func runChild(options string) error {
	var o childOptions
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return fmt.Errorf("kafkatest: %s=%q: %w", brokerEnv, options, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	b, err := stream.OpenBroker(ctx, nil, stream.BrokerOptions{Addr: o.Addr, DataDir: o.DataDir, Advertise: o.Advertise})
	if err != nil {
		return err
	}
	defer b.Close()
	gone := make(chan struct{})
	go func() { // ends with the process; the parent never writes
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(gone)
	}()
	select {
	case <-ctx.Done():
	case <-gone:
	}
	return nil
}

// Embedded starts the embedded broker in a process of its own, which is this test binary run anew, with its data in a
// folder of the test's. It ends with the test. It is up in some milliseconds.
func Embedded(t testing.TB) *Cluster {
	t.Helper()
	return EmbeddedBehind(t, "")
}

// EmbeddedBehind is Embedded for a broker that tells its clients to connect to another address, that of a proxy, which is to lead to [Cluster.Listens].
func EmbeddedBehind(t testing.TB, proxy string) *Cluster {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("kafkatest: find this test's binary, to run the embedded broker from it: %v", err)
	}
	c := &Cluster{t: t, kind: "embedded", proxy: proxy}
	dir := t.TempDir()
	c.launch = func() *exec.Cmd {
		o, err := json.Marshal(childOptions{Addr: c.addr, DataDir: dir, Advertise: proxy})
		if err != nil {
			panic("kafkatest: " + err.Error()) // two strings
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), brokerEnv+"="+string(o))
		return cmd
	}
	t.Cleanup(c.stop)
	c.startAnywhere(func() error { return nil })
	return c
}

// startAnywhere starts the broker at a free port; prepare is called once the port is chosen.
func (c *Cluster) startAnywhere(prepare func() error) {
	c.t.Helper()
	var err error
	for range startTries {
		if c.addr, err = freeAddr(); err != nil {
			continue
		}
		if err = prepare(); err != nil {
			continue
		}
		if err = c.start(); err == nil {
			return
		}
	}
	c.t.Fatalf("kafkatest: start the %s broker: %v", c.kind, err)
}
