package kafkatest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Options change how real Kafka is run. The zero value will do.
type Options struct {
	Properties map[string]string // added to server.properties, or in place of what it has
	HeapMB     int               // 0 means 512
	Proxy      string            // what clients are told to connect to, where that is not the broker itself
}

const (
	installWithin = 5 * time.Minute
	formatWithin  = time.Minute
)

// Start starts one node of real Apache Kafka (broker and controller), with its log in a folder of the test's. It ends
// with the test. It is up in two to three seconds, and again within five after Kill9; it takes some 370 MB of memory.
// Where the machine cannot run it, the test is skipped with what to install.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), installWithin)
	defer cancel()
	libs, err := Install(ctx, t.Output())
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("kafkatest: %v", err)
	}
	c := &Cluster{t: t, kind: "kafka", proxy: o.Proxy}
	if o.Proxy != "" {
		o.Properties = maps.Clone(o.Properties)
		if o.Properties == nil {
			o.Properties = map[string]string{}
		}
		o.Properties["advertised.listeners"] = "PLAINTEXT://" + o.Proxy
	}
	heap := o.HeapMB
	if heap == 0 {
		heap = 512
	}
	dir := t.TempDir()
	properties := filepath.Join(dir, "server.properties")
	c.launch = func() *exec.Cmd {
		vm := []string{"-Xms256m", fmt.Sprintf("-Xmx%dm", heap), "-Djava.awt.headless=true"}
		cmd := exec.Command("java", append(vm, java(libs, "kafka.Kafka", properties)...)...)
		cmd.Dir = dir
		return cmd
	}
	t.Cleanup(c.stop)
	c.startAnywhere(func() error {
		controller, err := freeAddr()
		if err != nil {
			return err
		}
		data := filepath.Join(dir, "data-"+strings.ReplaceAll(c.addr, ":", "-"))
		if err := os.WriteFile(properties, serverProperties(c.addr, controller, data, o.Properties), 0o644); err != nil {
			return err
		}
		return format(libs, properties)
	})
	return c
}

// java is how one of Kafka's programs is run. What lives for seconds is not worth the better of the two compilers, nor threads
// that collect garbage: a broker's start takes a third of the CPU without them.
func java(libs, main string, args ...string) []string {
	return append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", filepath.Join(libs, "*"), main}, args...)
}

// format prepares the data folder for a new cluster.
func format(libs, properties string) error {
	var id [16]byte
	rand.Read(id[:])
	id[0] &= 0x7f // an id that begins with a dash is taken for an option
	if err := tool(libs, "format", "-t", base64.RawURLEncoding.EncodeToString(id[:]), "-c", properties); err != nil {
		return fmt.Errorf("format the data folder: %w", err)
	}
	return nil
}

// tool runs Kafka's StorageTool.
func tool(libs string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), formatWithin)
	defer cancel()
	if said, err := exec.CommandContext(ctx, "java", java(libs, "kafka.tools.StorageTool", args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// serverProperties is the configuration of one node that is broker and controller. The two broker.* times make it answer
// within 5 s after kill -9, where it would be 12 s: the dead broker's session has to expire first.
func serverProperties(broker, controller, data string, extra map[string]string) []byte {
	p := [][2]string{
		{"process.roles", "broker,controller"},
		{"node.id", "1"},
		{"controller.quorum.voters", "1@" + controller},
		{"listeners", "PLAINTEXT://" + broker + ",CONTROLLER://" + controller},
		{"advertised.listeners", "PLAINTEXT://" + broker},
		{"controller.listener.names", "CONTROLLER"},
		{"inter.broker.listener.name", "PLAINTEXT"},
		{"log.dirs", data},
		{"offsets.topic.replication.factor", "1"},
		{"offsets.topic.num.partitions", "1"},
		{"transaction.state.log.replication.factor", "1"},
		{"transaction.state.log.min.isr", "1"},
		{"transaction.state.log.num.partitions", "1"},
		{"share.coordinator.state.topic.replication.factor", "1"},
		{"share.coordinator.state.topic.min.isr", "1"},
		{"group.initial.rebalance.delay.ms", "0"},
		{"auto.create.topics.enable", "false"},
		{"num.network.threads", "2"},
		{"num.io.threads", "2"},
		{"broker.session.timeout.ms", "2000"},
		{"broker.heartbeat.interval.ms", "500"},
	}
	var out bytes.Buffer
	for _, kv := range p {
		if _, ok := extra[kv[0]]; !ok {
			fmt.Fprintf(&out, "%s=%s\n", kv[0], kv[1])
		}
	}
	for k, v := range extra {
		fmt.Fprintf(&out, "%s=%s\n", k, v)
	}
	return out.Bytes()
}
