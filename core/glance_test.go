package core

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/rpc"
)

// What is said of a model is what is in its folder.
func TestModelWords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a[b]*") // no pattern
	folder := filepath.Join(dir, "ctr")
	says := func(dir, want string) {
		t.Helper()
		if got := ModelWords(dir, "ctr"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	says("", "what it trained is in its checkpoint")
	says(dir, "there is no model of it: no snapshot is in "+folder)
	tablet := filepath.Join(folder, "tablets", "000001")
	if err := os.MkdirAll(tablet, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".1-1.snap.tmp", ".1-1.snap"} {
		if err := os.WriteFile(filepath.Join(tablet, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says(dir, "there is no model of it: no snapshot is in "+folder)
	if err := os.WriteFile(filepath.Join(tablet, "1-2.snap"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	says(dir, "its model is in "+folder)
	says(filepath.Join(tablet, "1-2.snap"), "there is no model of it: no snapshot is in "+filepath.Join(tablet, "1-2.snap", "ctr"))
}

// A stop whose last snapshot fails says why, and what does without it.
func TestStopSaysWhyItsSnapshotFails(t *testing.T) {
	s := &Scheduler{seen: &seen{chief: &rpc.JobStatus{}}}
	if got := s.snapshotTrouble(); got != "" {
		t.Errorf("without a fault: %q", got)
	}
	s.seen.chief.Servers = []*rpc.ServerStatus{{Metrics: &rpc.ServerMetrics{SnapshotError: "write tablet 3: no space left on device"}}, {}}
	want := ", which fails (it is tried again; kale stop -force does without it)"
	if got := s.snapshotTrouble(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	want = "parameter server 0: snapshots fail: write tablet 3: no space left on device"
	if got := s.snapshotFailures(); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i, e := range []string{"write tablet 3: no space left on device", "write tablet 4: read-only file system", "", "write tablet 9: no space left on device"} {
		s.seen.chief.Servers = append(s.seen.chief.Servers[:i], &rpc.ServerStatus{Info: &rpc.ServerInfo{Index: int32(i)}, Metrics: &rpc.ServerMetrics{SnapshotError: e}})
	}
	both := []string{"parameter servers 0, 3: snapshots fail: write tablet 3: no space left on device", "parameter server 1: snapshots fail: write tablet 4: read-only file system"}
	if diff := cmp.Diff(both, s.snapshotFailures()); diff != "" {
		t.Errorf("of several servers (-want +got):\n%s", diff)
	}
}

// Partitions with the same problem are named together, and one that is a worker's is told once.
func TestProblemsAreFolded(t *testing.T) {
	problem := func(partition int32, detail string) *rpc.PartitionProblem {
		return &rpc.PartitionProblem{Partition: partition, Kind: rpc.PartitionProblem_KIND_UNREACHABLE, Detail: detail}
	}
	got := chiefProblems([]*rpc.PartitionProblem{
		problem(2, "no broker has answered"), problem(0, "no broker has answered"), problem(-1, "worker-0: cut off"), problem(1, "no broker has answered"),
		problem(7, "no broker has answered"), problem(3, "another"), problem(-1, "worker-0: cut off"),
		problem(4, "no answer for 9s"), problem(5, "no answer for 1m10s"), problem(6, "no answer for 10s"), problem(-1, "worker-1: cut off for 4s"), problem(-1, "worker-1: cut off for 5s"),
	})
	want := []string{"partitions 0–2, 7: no broker has answered", "worker-0: cut off", "partition 3: another", "partitions 4–6: no answer for 1m10s", "worker-1: cut off for 5s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	lost := func(partition int32, needed, start int64) *rpc.PartitionProblem {
		return &rpc.PartitionProblem{Partition: partition, Kind: rpc.PartitionProblem_KIND_LOST, Needed: needed, LogStart: start}
	}
	got = chiefProblems([]*rpc.PartitionProblem{lost(0, 100, 1100), lost(1, 0, 2000), lost(1, 0, 2100)}) // two workers met the second
	want = []string{"partitions 0–1: " + lostWords(3100)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	halted := func(partition int32, kind rpc.PartitionProblem_Kind) *rpc.PartitionProblem {
		return &rpc.PartitionProblem{Partition: partition, Kind: kind, Detail: fmt.Sprintf(`topic "t": the record at offset %d cannot be decoded (no JSON)`, 20+partition)}
	}
	const bad = rpc.PartitionProblem_KIND_UNDECODABLE
	got = chiefProblems([]*rpc.PartitionProblem{halted(3, bad), problem(6, "another"), halted(1, bad), halted(2, bad)})
	want = []string{`records that cannot be decoded stop partitions 1–3, and nothing of that is lost. Partition 1 of topic "t": the record at offset 21 cannot be decoded (no JSON). ` +
		`To do without such records, set on_undecodable = "skip" in the stream block; then Ctrl-C and kale run again (training goes on). To keep them, name a topic for them in ` +
		`stream.dead_letter; then stop the job and run it again`, "partition 6: another"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Which of them stand there changes from look to look, and is one problem.
	if a, b := Behind(got[0]), Behind(chiefProblems([]*rpc.PartitionProblem{halted(5, bad)})[0]); a == "" || a != b {
		t.Errorf("behind them is %q and %q", a, b)
	}
}
