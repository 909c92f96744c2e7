package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/slurm/slurmtest"
)

// restCluster starts a cluster with slurmrestd.
func restCluster(t *testing.T) *slurmtest.Cluster {
	t.Helper()
	if why := slurmtest.MissingRest(); why != "" {
		t.Skip(why)
	}
	c, err := slurmtest.Start(t.Context(), slurmtest.Options{Nodes: 2, GPUsPerNode: 2, Rest: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// restBlock gives the lines of a block that reaches the cluster through slurmrestd.
func restBlock(c *slurmtest.Cluster) string {
	return fmt.Sprintf("rest = %q\ntoken_file = %q\n", c.Rest(), c.TokenFile())
}

// What goes wrong through slurmrestd is said as by the command line: names that are not there at their places, a token that is not good, properties that Slurm
// does not know.
func (s *site) complaints() {
	t := s.T
	one := []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1)}
	configure := func(lines string) {
		t.Helper()
		cfg := s.config(s.job)
		cfg.Source = append(cfg.Source, lines...)
		if diags, err := s.b.Configure(t.Context(), cfg); err != nil || len(diags) > 0 {
			t.Fatal(diags, err)
		}
	}
	configure("partition = \"kalle\"\nreservation = \"none\"\n")
	report, err := s.b.Plan(t.Context(), s.job, one)
	if err != nil || len(report.Mistakes) != 2 || !strings.Contains(report.Mistakes[0].Detail, `Did you mean "kale"? There is kale.`) || report.Mistakes[0].Start.Column != 13 {
		t.Errorf("Plan with names that are not there: %+v, %v", report, err)
	}
	for _, line := range []string{`no_such = "1"`, `license = "matlab"`, `"no_such" = "1"`} {
		configure("properties = { licenses = \"a\", " + line + " }\n")
		report, err := s.b.Plan(t.Context(), s.job, one)
		if err != nil || len(report.Mistakes) != 1 || report.Fits() || !strings.Contains(report.Mistakes[0].Detail, "slurmrestd knows no property") || report.Mistakes[0].Start.Column != 32 {
			t.Errorf("Plan with %s: %+v, %v", line, report, err)
		}
	}
	configure("")
	if report, err := s.b.Plan(t.Context(), s.job, one); err != nil || !report.Fits() || len(report.Placements[0].Devices) != 1 {
		t.Errorf("Plan: %+v, %v", report, err)
	}
	if inv, err := s.b.Inventory(t.Context()); err != nil || inv.Total != 4 || inv.Free != 4 || inv.Devices[0].Model != "h200" {
		t.Errorf("Inventory: %+v, %v", inv, err)
	}
	for rank, tt := range []struct {
		lines string
		want  backend.Code
		says  string
	}{
		{"account = \"x\"\n", 0, ""}, // nobody keeps accounts here
		{"properties = { no_such = \"1\" }\n", backend.Blocked, `Unknown key "no_such"`},
		{"properties = { licenses = \"matlab\" }\n", backend.Blocked, "Invalid license"},
	} {
		configure(tt.lines)
		st := s.ensure(s.gpuWorkload(worker(rank, 1), conformance.Steady, 1))
		if got := st.Err; (got == nil) != (tt.says == "") || got != nil && (got.Code != tt.want || !strings.Contains(got.Message, tt.says)) {
			t.Errorf("with %s: %+v", tt.lines, st)
		}
	}
}

// wantMistake asks for a plan, which says what is wrong with the block.
func (s *site) wantMistake(summary, detail string) {
	s.Helper()
	report, err := s.b.Plan(s.Context(), s.job, []backend.Workload{s.workload(s.job, worker(0, 1), conformance.Steady)})
	if err != nil || report.Fits() || len(report.Mistakes) != 1 || report.Mistakes[0].Summary != summary || !strings.Contains(report.Mistakes[0].Detail, detail) {
		s.Errorf("Plan: %+v, %v; want the mistake %q", report, err, summary)
	}
}

// Through a slurmrestd of its own: what it says when something is wrong, its accounts, and what a token is good for.
func TestREST(t *testing.T) {
	t.Parallel()
	c := restCluster(t)
	site := func(t *testing.T, extra string) *site {
		s := &site{T: t, rig: newRigOn(t, c), job: "j"}
		s.extra = extra
		s.b = s.open()
		return s
	}
	t.Run("complaints", func(t *testing.T) { site(t, restBlock(c)).complaints() })
	t.Run("others", func(t *testing.T) { site(t, restBlock(c)).othersWait("kale") })
	t.Run("token", func(t *testing.T) {
		bad := filepath.Join(t.TempDir(), "token")
		for _, content := range []string{"", "SLURM_JWT=a.b.c\n"} {
			if err := os.WriteFile(bad, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := site(t, fmt.Sprintf("rest = %q\ntoken_file = %q\n", c.Rest(), bad))
			statuses, complete, err := s.b.List(t.Context(), s.job)
			if err == nil && complete {
				t.Errorf("List with token %q: %v, complete", content, statuses)
			}
			if _, err := s.b.Ensure(t.Context(), s.job, []backend.Workload{s.workload(s.job, worker(0, 1), conformance.Steady)}); err == nil {
				t.Errorf("Ensure with token %q is accepted", content)
			}
			if content != "" {
				s.wantMistake("Slurm refuses the token", "which scontrol token prints, to that file")
			}
		}
		if err := os.Remove(bad); err != nil {
			t.Fatal(err)
		}
		site(t, fmt.Sprintf("rest = %q\ntoken_file = %q\n", c.Rest(), bad)).wantMistake("The token cannot be read", bad)
	})
	t.Run("drain", func(t *testing.T) {
		s := site(t, restBlock(c)+"time = \"10m\"\n")
		id := worker(7, 1) // a name that no other test's job has
		s.ensure(s.gpuWorkload(id, conformance.Steady, 1))
		st := s.waitFor(id, "it runs, with a deadline", func(st backend.Status) bool {
			return st.State == backend.StateRunning && !st.Deadline.IsZero()
		})
		if left := time.Until(st.Deadline); left < 5*time.Minute || left > 10*time.Minute {
			t.Errorf("its deadline is in %v", left)
		}
		if out, err := c.Run(t.Context(), "squeue", "--noheader", "--name="+jobName(s.job, id), "--Format=Requeue"); err != nil || strings.TrimSpace(out) != "0" {
			t.Errorf("whether Slurm may put it back into the queue: %q, %v; want 0", out, err)
		}
		if err := s.b.Release(t.Context(), s.job, []backend.ID{id}, backend.Drained); err != nil {
			t.Fatal(err)
		}
		conformance.Eventually(t, "it has drained", func() error {
			out, err := c.Run(t.Context(), "squeue", "--noheader", "--states=all", "--name="+jobName(s.job, id), "--format=%T")
			if err == nil && strings.TrimSpace(out) != "COMPLETED" {
				err = fmt.Errorf("its job is %s", out)
			}
			return err
		})
	})
}

// The versions are tried from the best, and tried anew when slurmrestd serves another one.
func TestVersionIsNegotiated(t *testing.T) {
	serves, asked := "v0.0.40", []string{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		if !strings.HasPrefix(r.URL.Path, "/slurm/"+serves+"/") {
			http.Error(w, "Unable find requested URL. Please view /openapi/v3 for API reference.", http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"jobs": [], "errors": []}`)
	}))
	defer h.Close()
	r, err := newRest(restWay{address: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	look := func(want ...string) {
		t.Helper()
		asked = nil
		if _, err := r.jobs(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(asked, want) {
			t.Errorf("it asked %v, want %v", asked, want)
		}
	}
	look("/slurm/v0.0.42/ping", "/slurm/v0.0.41/ping", "/slurm/v0.0.40/ping", "/slurm/v0.0.40/jobs")
	look("/slurm/v0.0.40/jobs")
	serves = "v0.0.42" // an upgrade
	look("/slurm/v0.0.40/jobs", "/slurm/v0.0.42/ping", "/slurm/v0.0.42/jobs")
	serves = "v0.0.99"
	if _, err := r.jobs(t.Context()); err == nil || !strings.Contains(err.Error(), "none of the versions v0.0.42, ") || refused(err) != nil {
		t.Errorf("of versions that are not known: %v", err)
	}
	h.Close()
	_, err = r.jobs(t.Context())
	if no := refused(err); no == nil || no.Code != backend.Unavailable || !strings.Contains(no.Message, "start slurmrestd") {
		t.Errorf("without slurmrestd: %v", err)
	}
}

// Answers as slurmrestd gave them: 22.05.8 with v0.0.38, 24.11.5 with v0.0.42 (shortened to the fields that are read).
func TestRESTAnswers(t *testing.T) {
	started := time.Unix(1795253928, 0).UTC()
	for name, tt := range map[string]struct {
		raw  string
		want row
	}{
		"old": {`{"job_id": 11, "name": "kale:j:worker-0-g1", "comment": "kale RR", "job_state": "RUNNING", "state_reason": "None", "nodes": "n1", "start_time": 1795253928, "end_time": 1795254228, "time_limit": 5}`,
			row{id: "11", name: "kale:j:worker-0-g1", nonce: "RR", state: "RUNNING", reason: "None", nodes: "n1", started: started, deadline: started.Add(5 * time.Minute), cause: backend.EndWalltime}},
		"new": {`{"job_id": 1, "name": "kale:j:worker-0-g1", "comment": "kale RR", "job_state": ["RUNNING"], "state_reason": "None", "nodes": "n1", "start_time": {"set": true, "infinite": false, "number": 1795253928}, "end_time": {"set": true, "infinite": false, "number": 1795253988}, "time_limit": {"set": true, "infinite": false, "number": 5}}`,
			row{id: "1", name: "kale:j:worker-0-g1", nonce: "RR", state: "RUNNING", reason: "None", nodes: "n1", started: started, deadline: started.Add(time.Minute), cause: backend.EndPreemption}},
		"waits, and is expected to start": {`{"job_id": 2, "name": "kale:j:worker-0-g1", "comment": "kale RR", "job_state": ["PENDING"], "state_reason": "Resources", "nodes": "", "start_time": {"set": true, "infinite": false, "number": 1795253928}, "time_limit": {"set": false, "infinite": true, "number": 0}}`,
			row{id: "2", name: "kale:j:worker-0-g1", nonce: "RR", state: "PENDING", reason: "Resources"}},
		"without limit, and its end was set": {`{"job_id": 4, "name": "kale:j:worker-0-g1", "comment": "kale RR", "job_state": "RUNNING", "state_reason": "None", "nodes": "n1", "start_time": 1795253928, "end_time": 1795253988, "time_limit": 4294441698}`,
			row{id: "4", name: "kale:j:worker-0-g1", nonce: "RR", state: "RUNNING", reason: "None", nodes: "n1", started: started, deadline: started.Add(time.Minute), cause: backend.EndPreemption}},
		"without limit": {`{"job_id": 3, "name": "kale:j:worker-0-g1", "comment": "kale RR", "job_state": ["CANCELLED", "COMPLETING"], "state_reason": "None", "nodes": "n1", "start_time": {"set": true, "infinite": false, "number": 1795253928}, "time_limit": {"set": true, "infinite": true, "number": 0}}`,
			row{id: "3", name: "kale:j:worker-0-g1", nonce: "RR", state: "COMPLETING", reason: "None", nodes: "n1", started: started}},
	} {
		var j restJob
		if err := json.Unmarshal([]byte(tt.raw), &j); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, ours := j.row()
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(row{})); !ours || diff != "" {
			t.Errorf("%s: ours %v (-want +got):\n%s", name, ours, diff)
		}
	}
	for name, raw := range map[string]string{
		"old": `{"name": "n1", "address": "127.0.0.1", "state": "mixed", "state_flags": ["DRAIN"], "partitions": ["low", "high"], "cpus": 16, "alloc_cpus": 1, "real_memory": 16000, "alloc_memory": 100, "slurmd_start_time": 1795253928, "reason_changed_at": 1795253928, "gres": "gpu:h200:2", "gres_used": "gpu:h200:1(IDX:0)"}`,
		"new": `{"name": "n1", "address": "127.0.0.1", "state": ["MIXED", "DRAIN"], "partitions": ["low", "high"], "cpus": 16, "alloc_cpus": 1, "real_memory": 16000, "alloc_memory": 100, "slurmd_start_time": {"set": true, "infinite": false, "number": 1795253928}, "reason_changed_at": {"set": true, "infinite": false, "number": 1795253928}, "gres": "gpu:h200:2", "gres_used": "gpu:h200:1(IDX:0)"}`,
	} {
		var n restNode
		if err := json.Unmarshal([]byte(raw), &n); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := node{
			name: "n1", address: "127.0.0.1", state: "MIXED+DRAIN", partitions: []string{"low", "high"}, cpus: 16, cpusUsed: 1, memoryMB: 16000, memoryUsedMB: 100, since: started, reasonAt: started,
			gpus: []gpu{{0, "h200", true}, {1, "h200", false}},
		}
		if diff := cmp.Diff(want, n.node(), cmp.AllowUnexported(node{}, gpu{})); diff != "" || n.node().usable() || !n.node().drained() {
			t.Errorf("%s: usable %v (-want +got):\n%s", name, n.node().usable(), diff)
		}
	}
}

// What slurmrestd is handed, in the old form and the new one.
func TestRESTSubmission(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("USER", "me")
	t.Setenv("LOGNAME", "")
	s, diags := decode(configOf(`
  shared_dir = "/s/kale"
  partition  = "gpu"
  account    = "ml"
  constraint = "h200&nvlink"
  exclude    = "n9"
  gres       = "gpu:h200:%d,nvme:1"
  nice       = 10
  time       = "2h"
  rest       = "https://slurm:6820"
  properties = { licenses = "matlab" }
`))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	j := &job{name: "ctr", set: s}
	r := record{Nonce: "NONCE", StopGrace: 15 * time.Second, Warning: time.Minute, Resources: backend.Resources{GPUs: 2, CPUMilli: 2500, MemoryBytes: 5<<30 + 1}}
	b := batch{s, j.instance(worker(3, 2)), r, []string{"n4"}}
	for version, own := range map[string]map[string]any{
		oldRest: {
			"nodes": 1, "no_requeue": true, "exclude_nodes": "n9,n4", "gres": "gpu:h200:2,nvme:1",
			"environment": map[string]any{"HOME": "/home/me", "USER": "me", "PATH": "/usr/local/bin:/usr/bin:/bin"},
		},
		"v0.0.42": {
			"nodes": "1", "requeue": false, "excluded_nodes": []any{"n9", "n4"}, "tres_per_node": "gres/gpu:h200:2,gres/nvme:1",
			"environment": []any{"HOME=/home/me", "PATH=/usr/local/bin:/usr/bin:/bin", "USER=me"},
		},
	} {
		job := map[string]any{
			"name": "kale:ctr:worker-3-g2", "comment": "kale NONCE", "tasks": 1, "cpus_per_task": 3, "memory_per_node": 5121, "time_limit": 120,
			"current_working_directory": "/s/kale/ctr/worker-3-g2/alloc", "standard_output": "/s/kale/ctr/worker-3-g2/slurm.log", "open_mode": "append",
			"partition": "gpu", "account": "ml", "constraints": "h200&nvlink", "nice": 10, "licenses": "matlab",
		}
		for k, v := range own {
			job[k] = v
		}
		want := map[string]any{"job": job, "script": "#!/bin/sh\n(sleep 7140 && kill -TERM $$) </dev/null >/dev/null 2>&1 &\nexec /bin/sh '/s/kale/ctr/worker-3-g2/run.sh'\n"}
		if diff := cmp.Diff(jsonOf(t, want), jsonOf(t, b.submission(version))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	// The claims are those of a token of scontrol's, the signature is not.
	const token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJleHAiOjE3OTUzMzc4MTYsImlhdCI6MTc5NTI1MTQxNiwic3VuIjoicm9vdCJ9.c2lnbmF0dXJl"
	r, err := newRest(restWay{address: "unix:/nowhere", tokenFile: path})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.token(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without its file: %v", err)
	}
	for content, user := range map[string]string{"SLURM_JWT=" + token + "\n": "root", token: "root"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, who, err := r.token(); err != nil || got != token || who != user {
			t.Errorf("of %q: %q of %q, %v", content, got, who, err)
		}
	}
	t.Setenv(envToken, token)
	r.tokenFile = ""
	if got, who, err := r.token(); err != nil || got != token || who != "root" {
		t.Errorf("of the environment: %q of %q, %v", got, who, err)
	}
	if got := userOf("opaque"); got != "" {
		t.Errorf("of an opaque token: %q", got)
	}
}
