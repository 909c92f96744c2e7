package nomad

import (
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// planWith asks with a block that has the lines beside the address, and no token: they begin at line 43.
func (r rig) planWith(t *testing.T, lines string) backend.Report {
	t.Helper()
	n := open(t)
	cfg := r.config("j")
	cfg.Source = []byte("\n  address = \"" + r.cluster.Address() + "\"\n" + lines + "\n")
	if diags, err := n.Configure(t.Context(), cfg); err != nil || diags.HasErrors() {
		t.Fatal(diags, err)
	}
	w := r.workload("j", workerID(0, 1), conformance.Steady)
	w.Resources.GPUs = 1
	report, err := n.Plan(t.Context(), "j", []backend.Workload{w})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// isMistake holds what was found wrong against where it must stand, and what it must say.
func isMistake(t *testing.T, report backend.Report, line, column int, says ...string) {
	t.Helper()
	if len(report.Mistakes) != 1 || report.Fits() || len(report.Placements) != 1 {
		t.Fatalf("%+v; want one mistake", report)
	}
	m := report.Mistakes[0]
	if m.Severity != backend.SeverityError || m.Filename != "job.hcl" || m.Start.Line != line || m.Start.Column != column {
		t.Errorf("it is at %s:%d:%d, want line %d, column %d", m.Filename, m.Start.Line, m.Start.Column, line, column)
	}
	for _, want := range says {
		if !strings.Contains(m.Detail, want) {
			t.Errorf("it says %q, want %q", m.Detail, want)
		}
	}
}

// What Nomad does not have is a mistake at its own place, and is named; what it has is none. Nothing is submitted for it.
func TestMistakes(t *testing.T) {
	r := newRig(t)
	const firstLine = 42
	for name, tt := range map[string]struct {
		lines        string
		line, column int // from the lines' first; 0: it is no mistake
		says         []string
	}{
		"what there is":        {lines: "region = \"global\"\nnamespace = \"default\"\ndatacenters = [\"dc*\"]\nnode_pool = \"default\"\ndriver = \"raw_exec\"\ndevice = \"nvidia/gpu\"\nconstraint {\n  attribute = \"attr.kernel.name\"\n  value = \"linux\"\n}"},
		"all pools":            {lines: `node_pool = "all"`},
		"the namespace":        {`namespace = "defaul"`, 1, 13, []string{`no namespace "defaul"`, `Did you mean "default"?`, "There is "}},
		"the region":           {"\nregion = \"europe\"", 2, 10, []string{`no region "europe". There is global.`}},
		"the node pool":        {`node_pool = "gpus"`, 1, 13, []string{`no node pool "gpus". There is all, default.`}},
		"the datacenter":       {`datacenters = ["dc1", "dc9"]`, 1, 15, []string{`in a datacenter "dc9". Did you mean "dc1"?`}},
		"no such datacenters":  {`datacenters = ["eu-*"]`, 1, 15, []string{`in a datacenter "eu-*". There is dc1.`}},
		"the driver":           {"driver = \"docker\"\nimage = \"site/kale\"", 1, 10, []string{`None of the 2 nodes`, `the driver "docker". There is raw_exec.`}},
		"the device":           {`device = "nvidia/gpux"`, 1, 10, []string{`No node has a device`, `Did you mean "nvidia/gpu"?`}},
		"the device's model":   {`device = "nvidia/gpu/H900"`, 1, 10, []string{`"nvidia/gpu/H900"`, "There is nvidia/gpu, nvidia/gpu/"}},
		"a constraint":         {"constraint {\n  attribute = \"attr.kernel.name\"\n  value = \"linux\"\n}\nconstraint {\n  attribute = \"attr.kernel.name\"\n  value = \"windows\"\n}", 5, 1, []string{"None of the 2 nodes", `"${attr.kernel.name} = windows"`}},
		"constraints together": {"constraint {\n  attribute = \"node.unique.name\"\n  value = \"n1\"\n}\nconstraint {\n  attribute = \"node.unique.name\"\n  operator = \"!=\"\n  value = \"n1\"\n}", 1, 1, []string{"none all of them", `"${node.unique.name} = n1"`}},
		"a token that is none": {`token = "abc"`, 1, 9, []string{"UUID must be 36 characters", "SecretID"}},
		"a constraint's form":  {"constraint {\n  attribute = \"attr.kernel.version\"\n  operator = \"version\"\n  value = \"much\"\n}", 1, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			report := r.planWith(t, tt.lines)
			if tt.line == 0 {
				if len(report.Mistakes) > 0 || !report.Fits() {
					t.Errorf("%+v", report)
				}
				return
			}
			isMistake(t, report, firstLine+tt.line-1, tt.column, tt.says...)
		})
	}
	// What the environment says is told from what the block says, and stands where the block begins.
	t.Run("the environment's region", func(t *testing.T) {
		t.Setenv("NOMAD_REGION", "europe")
		isMistake(t, r.planWith(t, ""), 40, 19, `no region "europe" (by the environment: NOMAD_REGION). There is global.`)
	})
	// It does not keep anybody from looking.
	n := r.configured(t, "j", "datacenters = [\"nowhere\"]\n")
	if _, complete, err := n.List(t.Context(), "j"); err != nil || !complete {
		t.Errorf("List: complete %v, %v", complete, err)
	}
	// What Nomad would never take is for a person to mend.
	n = r.configured(t, "j", "constraint {\n  attribute = \"attr.kernel.version\"\n  operator = \"version\"\n  value = \"much\"\n}\n")
	if sts, err := n.Ensure(t.Context(), "j", []backend.Workload{r.workload("j", workerID(0, 1), conformance.Steady)}); err != nil || sts[0].Err == nil || sts[0].Err.Code != backend.Blocked {
		t.Errorf("Ensure with a constraint that is none: %+v, %v; want code %q", sts, err, backend.Blocked)
	}
	if jobs, _, err := r.raw(t).Jobs().List(nil); err != nil || len(jobs) > 0 {
		t.Errorf("asking left the jobs %v, %v", jobs, err)
	}
}
