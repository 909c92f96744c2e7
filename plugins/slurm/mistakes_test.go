package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// What Slurm does not have is a mistake at its own place, and is named; what it has is none.
func TestMistakes(t *testing.T) {
	s := newSite(t, "")
	for _, tt := range []struct {
		line string // of the block, at line 42
		says []string
	}{
		{`  partition = "low"`, nil},
		{`  partition = "low,high"`, nil},
		{`  partition = "hihg"`, []string{`no partition "hihg"`, `Did you mean "high"?`, "There is high, low."}},
		{`  partition = "low,far"`, []string{`no partition "far". There is high, low.`}},
		{`  account = "anybody"`, nil}, // no database here: Slurm takes any
		{`  qos = "any"`, nil},
		{`  reservation = "mine"`, []string{`no reservation "mine": there is none.`}},
		{`  constraint = "nvlink"`, []string{"Invalid feature specification", "sinfo -o %f"}},
		{`  exclude = "n77"`, []string{"Invalid node name", "Correct it: set exclude to nodes that sinfo -N shows."}},
		{`  exclude = "n[1-2]"`, []string{`exclude is "n[1-2]", which leaves no node of the partition`, "Take from it"}},
		{`  exclude = "n[2-3]"`, []string{"Invalid node name", "Correct it: set exclude to nodes that sinfo -N shows."}},
		{`  exclude = "n2"`, nil},
		{`  nice = 2147483645`, nil},
		{`  gres = "gpu:h20:%d"`, []string{`GPUs of the type "h20". Did you mean "h200"? There is h200.`}},
		{`  gres = "gpu:h200:%d"`, nil},
		{`  gpus = "b300:%d"`, []string{`GPUs of the type "b300". There is h200.`}},
		{`  gres = "tpu:%d"`, []string{"Invalid generic resource", "sinfo -o %G"}},
		{`  directives = ["--no-such-option=1"]`, []string{`Slurm says of "--no-such-option=1": unrecognized option`, "Correct it or take it out."}},
		{`  directives = ["--licenses=matlab"]`, []string{`: Invalid license specification. Correct it or take it out.`}},
		{`  directives = ["--nodelist=n[1-2]"]`, []string{"invalid number of nodes", "names all the nodes of a job, and each process is a job of one"}},
		{`  directives = ["--nodelist=n77"]`, []string{`Slurm says of "--nodelist=n77": Invalid node name specified.`}},
		{`  directives = ["--dependency=foo"]`, []string{`Slurm says of "--dependency=foo": Job dependency problem. Correct`}},
		{`  directives = ["--mincpus=500"]`, []string{`Slurm says of "--mincpus=500": Requested node configuration is not available.`}},
		{`  directives = ["--mincpus=500", "--no-kill"]`, []string{`Slurm says of "--mincpus=500"`}},
	} {
		t.Run(strings.TrimSpace(tt.line), func(t *testing.T) {
			cfg := s.config(s.job)
			cfg.Source = fmt.Appendf(nil, "\n  shared_dir = %q\n%s\n", s.shared(), tt.line)
			if diags, err := s.b.Configure(t.Context(), cfg); err != nil || len(diags) > 0 {
				t.Fatal(diags, err)
			}
			report, err := s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1)})
			if err != nil {
				t.Fatal(err)
			}
			if tt.says == nil {
				if len(report.Mistakes) > 0 || !report.Fits() {
					t.Errorf("%+v", report)
				}
				return
			}
			if len(report.Mistakes) != 1 || report.Fits() {
				t.Fatalf("%+v; want one mistake", report)
			}
			m := report.Mistakes[0]
			column := strings.Index(tt.line, "=") + 3
			if strings.Contains(tt.line, `["`) {
				column++
			}
			if m.Filename != "job.hcl" || m.Start.Line != 42 || m.Start.Column != column || m.End.Column <= column {
				t.Errorf("it is at %s:%d:%d to %d, want column %d", m.Filename, m.Start.Line, m.Start.Column, m.End.Column, column)
			}
			for _, want := range tt.says {
				if !strings.Contains(m.Detail, want) {
					t.Errorf("it says %q, want %q", m.Detail, want)
				}
			}
		})
	}
	// All that is wrong is said at once.
	cfg := s.config(s.job)
	cfg.Source = append(cfg.Source, "partition = \"x\"\nreservation = \"y\"\n"...)
	if diags, err := s.b.Configure(t.Context(), cfg); err != nil || len(diags) > 0 {
		t.Fatal(diags, err)
	}
	report, err := s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1)})
	if err != nil || len(report.Mistakes) != 2 {
		t.Errorf("%+v, %v; want two mistakes", report, err)
	}
	// A directive that sbatch does not know hides nothing from who is to correct the block, and is not hidden.
	cfg = s.config(s.job)
	cfg.Source = append(cfg.Source, "exclude = \"n77\"\ndirectives = [\"--no-such-option=1\"]\n"...)
	if diags, err := s.b.Configure(t.Context(), cfg); err != nil || len(diags) > 0 {
		t.Fatal(diags, err)
	}
	report, err = s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1)})
	if err != nil || len(report.Mistakes) != 2 || report.Fits() || !strings.Contains(report.Mistakes[0].Detail, "Invalid node name") || !strings.Contains(report.Mistakes[1].Detail, "unrecognized option") {
		t.Errorf("%+v, %v; want a mistake in exclude and one in directives", report, err)
	}
	// It does not keep anybody from looking, nor from giving up.
	if _, complete, err := s.b.List(t.Context(), s.job); err != nil || !complete {
		t.Errorf("List: complete %v, %v", complete, err)
	}
	if out, err := cluster.Run(context.WithoutCancel(t.Context()), "squeue", "--noheader"); err != nil || out != "" {
		t.Errorf("asking left %q, %v", out, err)
	}
}

// Where this machine lacks what Slurm is asked with, that is a mistake where the block says so, or where the block begins.
func TestNothingToAskWith(t *testing.T) {
	for _, tt := range []struct {
		extra, path  string
		conf         string
		line, column int
		says         []string
	}{
		{`bin_dir = "/no/such/folder"`, "", "", 42, 11, []string{`bin_dir is "/no/such/folder"`, "there is no squeue in it", "or leave it out"}},
		{`rest = "unix:/no/such/socket"`, "", "", 42, 8, []string{`rest is "unix:/no/such/socket"`, "Start slurmrestd"}},
		{``, "", "/no/such/slurm.conf", 40, 19, []string{"/no/such/slurm.conf: no such file or directory", "SLURM_CONF"}},
		{``, "/no/such/folder", "", 40, 19, []string{"There is no squeue in the PATH", "set bin_dir"}},
	} {
		t.Run(tt.extra+tt.path+tt.conf, func(t *testing.T) {
			s := newSite(t, tt.extra)
			if tt.path != "" {
				t.Setenv("PATH", tt.path)
			}
			if tt.conf != "" {
				t.Setenv("SLURM_CONF", tt.conf)
			}
			report, err := s.b.Plan(t.Context(), s.job, []backend.Workload{s.workload(s.job, worker(0, 1), conformance.Steady)})
			if err != nil || len(report.Mistakes) != 1 || report.Fits() {
				t.Fatalf("Plan: %+v, %v; want one mistake", report, err)
			}
			m := report.Mistakes[0]
			if m.Severity != backend.SeverityError || m.Filename != "job.hcl" || m.Start.Line != tt.line || m.Start.Column != tt.column {
				t.Errorf("it is at %s:%d:%d, want line %d, column %d", m.Filename, m.Start.Line, m.Start.Column, tt.line, tt.column)
			}
			for _, want := range tt.says {
				if !strings.Contains(m.Detail, want) {
					t.Errorf("it says %q, want %q", m.Detail, want)
				}
			}
			if tt.conf == "" {
				return
			}
			if _, err := s.b.Inventory(t.Context()); backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), "SLURM_CONF") || strings.Contains(err.Error(), "slurmctld") {
				t.Errorf("Inventory: %v; want code %q, what to do, and nothing of Slurm's controller", err, backend.Blocked)
			}
		})
	}
}

// Lines as Slurm 22.05.8 with slurmdbd printed them.
func TestAssociations(t *testing.T) {
	accounts, qos := parseAssociations("ml|high,normal\nroot|normal\n\n")
	if diff := cmp.Diff([]string{"ml", "root"}, accounts); diff != "" {
		t.Errorf("accounts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"high", "normal", "normal"}, qos); diff != "" {
		t.Errorf("QOS (-want +got):\n%s", diff)
	}
	const config = "Configuration data as of 2026-11-21T08:44:16\nAccountingStorageEnforce = associations,limits,qos\nAccountingStorageType   = accounting_storage/slurmdbd\nClusterName             = kale\n"
	for _, tt := range []struct {
		config, attr string
		want         bool
	}{
		{config, attrAccount, true}, {config, attrQOS, true}, {"AccountingStorageEnforce = associations\n", attrQOS, false},
		{"AccountingStorageEnforce = none\n", attrAccount, false}, {"", attrAccount, false},
	} {
		if got := enforces(tt.config, tt.attr); got != tt.want {
			t.Errorf("enforces(%q, %s) = %v", tt.config, tt.attr, got)
		}
	}
	if got := configValue(config, "ClusterName"); got != "kale" {
		t.Errorf("ClusterName = %q", got)
	}
}

// A time limit above the partition's is said at its place: Slurm takes such a job, and lets it wait.
func TestTimeAboveThePartitions(t *testing.T) {
	s := newSite(t, "")
	for _, tt := range []struct{ limit, lines, says string }{
		{"60", `time = "2h"`, "partition low lets jobs run for 1h at most"},
		{"60", "time = \"2h\"\npartition = \"low\"", "partition low lets jobs run for 1h at most"},
		{"60", "time = \"2h\"\npartition = \"low,high\"", ""},
		{"60", `time = "1h"`, ""},
		{"INFINITE", `time = "2h"`, ""},
	} {
		if _, err := cluster.Run(t.Context(), "scontrol", "update", "PartitionName=low", "MaxTime="+tt.limit); err != nil {
			t.Fatal(err)
		}
		cfg := s.config(s.job)
		cfg.Source = fmt.Appendf(nil, "\n  shared_dir = %q\n%s\n", s.shared(), tt.lines)
		if diags, err := s.b.Configure(t.Context(), cfg); err != nil || len(diags) > 0 {
			t.Fatal(diags, err)
		}
		report, err := s.b.Plan(t.Context(), s.job, []backend.Workload{s.gpuWorkload(worker(0, 1), conformance.Steady, 1)})
		if err != nil || len(report.Mistakes) > 0 != (tt.says != "") || report.Mistakes.HasErrors() {
			t.Fatalf("with MaxTime=%s, %s: %+v, %v", tt.limit, tt.lines, report, err)
		}
		if tt.says != "" && (!strings.Contains(report.Mistakes[0].Detail, tt.says) || report.Mistakes[0].Start.Line != 42 || report.Mistakes[0].Start.Column != 8) {
			t.Errorf("with MaxTime=%s, %s: %+v", tt.limit, tt.lines, report.Mistakes[0])
		}
	}
}

// A shared folder that cannot be made or written on this machine is a mistake at its place, before anything is asked of Slurm; looking leaves nothing.
func TestSharedFolderThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for shared, says := range map[string]string{
		filepath.Join(dir, "made", "later"): "",
		dir:                                 "",
		"/proc/nope":                        `shared_dir is "/proc/nope", and cannot be made on this machine: /proc: no such file or directory. Set it`,
		file:                                "cannot be written on this machine: " + file + ": not a directory",
		filepath.Join(file, "below"):        "not a directory",
	} {
		s, diags := decode(backend.Config{Job: "j", Filename: "job.hcl", StartLine: 40, Source: fmt.Appendf(nil, "\n  shared_dir = %q\n", shared)})
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		m := (&job{name: "j", set: s}).unusable()
		switch {
		case (m == nil) != (says == ""):
			t.Errorf("%s: %v", shared, m)
		case m != nil && (!strings.Contains(m.Detail, says) || m.Subject == nil || m.Subject.Start.Line != 41):
			t.Errorf("%s: %v", shared, m)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("it leaves %v (%v)", left, err)
	}
}
