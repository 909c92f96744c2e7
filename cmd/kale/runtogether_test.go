package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// twoFiles are the files of two jobs that are right, and of a pool.
func twoFiles(t *testing.T, pool string) (a, b, file string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	job := func(name string) string {
		return fmt.Sprintf(`job %q {
  stream "kafka" {
    brokers = ["127.0.0.1:1"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
`, name)
	}
	return write("a.hcl", job("a")), write("b.hcl", job("b")), write("pool.hcl", pool)
}

// What is wrong with jobs that are to run together is said before a broker is asked.
func TestRunTogetherRefuses(t *testing.T) {
	a, b, pool := twoFiles(t, "pool \"main\" {\n  gpus = 4\n  job \"c\" {\n  }\n}\n")
	s := newShell(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", a, b, "-live"}, exitUsage, "kale status -watch JOB"},
		{[]string{"run", "-pool", pool}, exitUsage, "JOB.hcl is missing"},
		{[]string{"run", a, a}, exitFailed, `are both of job "a"`},
		{[]string{"plan", a, a}, exitFailed, `are both of job "a"`},
		{[]string{"run", a, b, "-pool", pool}, exitFailed, `pool.hcl:3:7: error: Job "c" is not among the jobs`},
		{[]string{"plan", a, b, "-pool", pool}, exitFailed, `pool.hcl:3:7: error: Job "c" is not among the jobs`},
		{[]string{"run", a, "-pool", a}, exitFailed, "Is this a job file?"},
		{[]string{"run", a, "-pool", filepath.Join(filepath.Dir(a), "no.hcl")}, exitFailed, "Cannot read the pool file"},
	} {
		r := s.run(c.args...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("kale %s: code %d, %s", strings.Join(c.args, " "), r.code, r.err)
		}
	}
}

// Lines of several jobs are never mixed, and each begins with its job's name.
func TestLinesOfJobs(t *testing.T) {
	var out bytes.Buffer
	var mu sync.Mutex
	shared := &lines{mu: &mu, w: &out}
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		wg.Go(func() {
			l := shared.of(name)
			for i := range 100 {
				fmt.Fprintf(l, "one %d ", i)
				fmt.Fprintf(l, "two\nthree %s\n", name)
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		name, rest, _ := strings.Cut(line, "  ")
		switch {
		case rest == "three "+name:
		case rest == fmt.Sprintf("one %d two", seen[name]):
			seen[name]++
		default:
			t.Fatalf("line %q", line)
		}
	}
	if seen["a"] != 100 || seen["b"] != 100 {
		t.Errorf("lines: %v", seen)
	}
}
