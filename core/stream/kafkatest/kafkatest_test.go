package kafkatest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/core/stream"
	"github.com/kale-sched/kale/core/stream/kafkatest"
)

func each(t *testing.T, fn func(t *testing.T, c *kafkatest.Cluster)) {
	t.Run("embedded", func(t *testing.T) { fn(t, kafkatest.Embedded(t)) })
	t.Run("kafka", func(t *testing.T) { fn(t, kafkatest.Start(t, kafkatest.Options{})) })
}

func TestKill9KeepsWhatWasAcknowledged(t *testing.T) {
	each(t, func(t *testing.T, c *kafkatest.Cluster) {
		c.CreateTopics(stream.TopicSpec{Name: "clicks", Partitions: 3})
		cl, err := kgo.NewClient(append(c.Client(), kgo.DefaultProduceTopic("clicks"))...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for range 2000 {
			cl.Produce(t.Context(), kgo.StringRecord("x"), nil)
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, err := stream.LogSum(t.Context(), c.Client(), "clicks", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		pid, addr := c.Pid(), c.Brokers()[0]
		c.Kill9()
		if err := syscall.Kill(pid, 0); err == nil {
			t.Errorf("process %d is still there after Kill9", pid)
		}
		began := time.Now()
		c.Restart()
		t.Logf("answers again %v after its start", time.Since(began).Round(time.Millisecond))
		if c.Brokers()[0] != addr {
			t.Errorf("after a restart it is at %s, before it was at %s", c.Brokers()[0], addr)
		}
		after, err := stream.LogSum(t.Context(), c.Client(), "clicks", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the log changed through kill -9: %s", diff)
		}
		n := int64(0)
		for _, s := range after {
			n += s.N
		}
		if n != 2000 {
			t.Errorf("%d records, want the 2000 that were acknowledged", n)
		}
	})
}

func TestSuspend(t *testing.T) {
	c := kafkatest.Embedded(t)
	ping := func(within time.Duration) error {
		cl, err := kgo.NewClient(c.Client()...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return cl.Ping(ctx)
	}
	c.Suspend()
	if err := ping(200 * time.Millisecond); err == nil {
		t.Error("a suspended broker answered")
	}
	c.Resume()
	if err := ping(time.Minute); err != nil {
		t.Errorf("a resumed broker does not answer: %v", err)
	}
}

// A damaged or foreign jar in the cache is not run.
func TestInstallChecksTheJars(t *testing.T) {
	libs, err := kafkatest.Install(t.Context(), t.Output())
	if err != nil {
		t.Skip(err)
	}
	cache := t.TempDir()
	t.Setenv("KALE_CACHE", cache)
	t.Setenv("PATH", onlyJava(t)) // no Maven to repair it
	copied := filepath.Join(cache, "kafka-"+kafkatest.Version, "libs")
	if err := os.MkdirAll(filepath.Dir(copied), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(copied, os.DirFS(libs)); err != nil {
		t.Fatal(err)
	}
	if got, err := kafkatest.Install(t.Context(), nil); err != nil || got != copied {
		t.Fatalf("a good cache gives %q, %v; want %q", got, err, copied)
	}
	for name, harm := range map[string]func() error{
		"a foreign jar": func() error { return os.WriteFile(filepath.Join(copied, "evil.jar"), nil, 0o644) },
		"a damaged jar": func() error { return os.Truncate(filepath.Join(copied, "kafka_2.13-4.3.0.jar"), 1000) },
		"a missing jar": func() error { return os.Remove(filepath.Join(copied, "kafka-clients-4.3.0.jar")) },
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		_, err := kafkatest.Install(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "install maven") {
			t.Errorf("with %s: error %v, want that Maven is needed to fetch the jars again", name, err)
		}
		if err := os.RemoveAll(copied); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(copied, os.DirFS(libs)); err != nil {
			t.Fatal(err)
		}
	}
}

// onlyJava makes a folder for PATH in which there is Java and nothing else.
func onlyJava(t *testing.T) string {
	t.Helper()
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skip("java is not installed")
	}
	dir := t.TempDir()
	if err := os.Symlink(java, filepath.Join(dir, "java")); err != nil {
		t.Fatal(err)
	}
	return dir
}
