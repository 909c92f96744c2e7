package e2e_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kale-sched/kale/cmd/kale/audit"
	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/stream"
)

// stores are where the job's log and state lie.
func (r *rig) stores() audit.Stores { return audit.Stores{Kafka: r.kafka.Client(), Spec: r.spec} }

// audit holds every tablet's sums against the broker's log.
func (r *rig) audit() audit.Counts {
	r.t.Helper()
	c, err := audit.Check(r.t.Context(), r.stores())
	if err != nil {
		r.fatalf("%v", err)
	}
	return c
}

// exact checks that every record in the log, and there are at least least of them, is trained exactly once in every tablet.
func (r *rig) exact(least int64) {
	r.t.Helper()
	c := r.audit()
	r.t.Logf("audit: %+v", c)
	if !c.Exact() || c.Trained+c.Dead != c.Produced {
		r.fatalf("training is not exact: %d lost, %d repeated of %d (%s)", c.Lost, c.Repeated, c.Produced, c.Mismatch)
	}
	if c.Produced < least {
		r.fatalf("only %d records were trained, less than the %d that make this test worth something", c.Produced, least)
	}
	if r.job.Model.Kind == job.ModelCounting {
		r.counters()
	}
}

// verdict is what kale audit says.
func (r *rig) verdict() audit.Verdict {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(r.bins.dir, "kale"), "-state-dir", filepath.Join(r.dir, "s"), "audit", r.name(), "-json")
	cmd.Dir, cmd.Env = r.dir, r.env()
	out, err := cmd.Output() // an error where it is not exact
	var p audit.Proof
	if e := json.Unmarshal(out, &p); e != nil {
		r.fatalf("kale audit: %v: %v: %s", err, e, out)
	}
	if (err == nil) != (p.Verdict == audit.Exact) {
		r.t.Errorf("kale audit says %q, and ends with %v", p.Verdict, err)
	}
	return p.Verdict
}

// counters reads the counting model back from the snapshots alone (EXACTLY_ONCE rule 20): in every tablet each record of the log has a counter of its own
// that is 1, there is no other counter, and the dense counter is the number of records.
func (r *rig) counters() {
	r.t.Helper()
	frozen, pinned, err := audit.Frozen(r.stores())
	if err != nil {
		r.fatalf("%v", err)
	}
	log := map[uint64]bool{}
	err = stream.Scan(r.t.Context(), r.kafka.Client(), r.topic, pinned.Starts, nil, func(rec *kgo.Record) error {
		log[stream.RecordHash(r.topic, rec.Partition, rec.Offset)] = true
		return nil
	})
	if err != nil {
		r.fatalf("%v", err)
	}
	for tablet := range pinned.Tablets {
		byID, total := frozen.Counts(tablet)
		if total != int64(len(log)) || len(byID) != len(log) {
			r.t.Errorf("tablet %d has counted %d records under %d counters, the log has %d", tablet, total, len(byID), len(log))
		}
		for id, n := range byID {
			if n != 1 || !log[id] {
				r.t.Errorf("tablet %d has counted record %016x %d times; in the log: %v", tablet, id, n, log[id])
				break
			}
		}
	}
}

// gone checks that nothing of the job is left: no process, nobody who answers on an address or the socket of it.
func (r *rig) gone() {
	r.t.Helper()
	r.await("no process is left", func() string {
		for _, cmdline := range processes(r.dir) {
			return cmdline
		}
		return ""
	})
	for address := range r.addresses {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			continue
		}
		conn.Close() // somebody has the port: another program, unless it knows the job's token
		if _, err := r.askChief(address); err == nil {
			r.t.Errorf("somebody still answers for the job on %s", address)
		}
	}
	if c, err := r.api(); !errors.Is(err, api.ErrNoScheduler) {
		r.t.Errorf("somebody still answers on the scheduler's socket (%v)", err)
		if err == nil {
			c.Close()
		}
	}
}

// An attribute of a line of a log, once what is quoted is left out.
var (
	quotedValue = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	attribute   = regexp.MustCompile(`(?:^| )([a-z_]+)=`)
)

// logsAreClear wants that no line of the logs of the scheduler, its plugin and this machine's processes has an attribute twice.
func (r *rig) logsAreClear() {
	r.t.Helper()
	logs := []string{r.logFile()}
	for _, name := range []string{"output.log", "supervisor.log"} {
		found, err := filepath.Glob(filepath.Join(r.stateDir(), "local", "backend-local", "jobs", r.name(), "*", name))
		if err != nil {
			r.t.Fatal(err)
		}
		logs = append(logs, found...)
	}
	for _, path := range logs {
		raw, err := os.ReadFile(path)
		if err != nil {
			r.fatalf("%v", err)
		}
		for line := range strings.Lines(string(raw)) {
			seen := map[string]bool{}
			for _, a := range attribute.FindAllStringSubmatch(quotedValue.ReplaceAllString(line, ""), -1) {
				if seen[a[1]] && strings.HasPrefix(line, "time=") {
					r.t.Errorf("%s has %s twice in one line: %s", path, a[1], line)
				}
				seen[a[1]] = true
			}
		}
	}
}

// repeatedCounters is the number of records that some tablet of the counting model has counted more than once.
func (r *rig) repeatedCounters() int {
	r.t.Helper()
	frozen, pinned, err := audit.Frozen(r.stores())
	if err != nil {
		r.fatalf("%v", err)
	}
	repeated := map[uint64]bool{}
	for tablet := range pinned.Tablets {
		byID, _ := frozen.Counts(tablet)
		for id, n := range byID {
			if n > 1 {
				repeated[id] = true
			}
		}
	}
	return len(repeated)
}
