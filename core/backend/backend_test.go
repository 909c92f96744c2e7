package backend

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
)

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"worker-3-g2", "ps-0-g1", "a-b-1-g18446744073709551615", "worker-03-g1", "-1-g1", "worker--1-g1", "x-1-g0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		if id.String() != s {
			t.Errorf("%q was read as %q", s, id)
		}
		if err := id.Validate(); err != nil {
			t.Errorf("%q was read as an ID that is not valid: %v", s, err)
		}
	})
}

func TestParseID(t *testing.T) {
	id, err := ParseID("my-role-3-g12")
	if want := (ID{Role: "my-role", Rank: 3, Generation: 12}); err != nil || id != want {
		t.Errorf("ParseID = %+v, %v, want %+v", id, err, want)
	}
	const text = `{"role":"my-role","rank":3,"generation":12}` // as in kale status -json
	if raw, err := json.Marshal(id); err != nil || string(raw) != text {
		t.Errorf("as JSON it is %s, %v; want %s", raw, err, text)
	}
	for _, bad := range []string{"", "worker", "worker-1", "worker-1-g", "worker-+1-g1", "worker-01-g1", "Worker-1-g1", "worker-1-g0", ".new-123"} {
		if id, err := ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) = %v, want an error", bad, id)
		}
	}
}

func TestValidateAll(t *testing.T) {
	good := func(rank int, generation uint64) Workload {
		return Workload{ID: ID{Role: "worker", Rank: rank, Generation: generation}, Argv: []string{"x"}}
	}
	change := func(f func(*Workload)) Workload { w := good(7, 1); f(&w); return w }
	ws := []Workload{
		good(0, 1),
		change(func(w *Workload) { w.Argv = nil }),
		change(func(w *Workload) { w.Env = map[string]string{"A=B": ""} }),
		change(func(w *Workload) { w.Files = map[string][]byte{"a/b": nil} }),
		change(func(w *Workload) { w.Resources.GPUs = -1 }),
		change(func(w *Workload) { w.StopGrace = -time.Second }),
		change(func(w *Workload) { w.Avoid = []string{"n1", "n2\n"} }),
		change(func(w *Workload) { w.Argv = []string{"x", "a\x00b"} }),
		good(0, 2),
		good(1, 1),
	}
	problems, err := ValidateAll("job", ws)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		field := ""
		if p != nil {
			field = p.Field
		}
		got = append(got, field)
	}
	want := []string{
		"", "workloads[1].argv", "workloads[2].env", "workloads[3].files", "workloads[4].resources",
		"workloads[5].stop_grace", "workloads[6].avoid[1]", "workloads[7].argv[1]", "workloads[8].id", "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields at fault (-want +got):\n%s", diff)
	}
	for _, job := range []string{"", "..", "a/b", ".a", "-a", strings.Repeat("a", 101), "a b"} {
		if _, err := ValidateAll(job, nil); err == nil {
			t.Errorf("job name %q was accepted", job)
		}
	}
	if err := ValidJob("ctr.v2_prod-EU"); err != nil {
		t.Error(err)
	}
}

func TestDecodeBlock(t *testing.T) {
	type block struct {
		Name  string `hcl:"name"`
		Count *int   `hcl:"count,optional"`
	}
	t.Setenv("KALE_TEST_VALUE", "from the environment")
	cfg := Config{
		Filename: "job.hcl", StartLine: 10, StartColumn: 19, StartByte: 200,
		Source:    []byte("\n  name  = env(\"KALE_TEST_VALUE\")\n  count = var.n\n"),
		Variables: []byte(`{"n": 3, "brokers": ["a", "b"]}`),
	}
	var b block
	if diags := DecodeBlock(cfg, &b); diags.HasErrors() {
		t.Fatal(diags)
	}
	if b.Name != "from the environment" || b.Count == nil || *b.Count != 3 {
		t.Errorf("decoded %+v", b)
	}
	for _, tt := range []struct {
		name, source, variables string
		line, column            int
		text                    string
	}{
		{"unknown attribute, almost one", "\n  name = \"x\"\n  cuont = 1\n", "", 12, 3, `Unknown attribute "cuont"Did you mean "count"? There are: count, name.`},
		{"unknown attribute", "\n  name = \"x\"\n  colour = 1\n", "", 12, 3, `Unknown attribute "colour"There are: count, name.`},
		{"unknown block", "\n  name = \"x\"\n  colour {\n  }\n", "", 12, 3, `Unknown block "colour"There are: count, name.`},
		{"missing attribute", "\n", "", 10, 19, `Missing attribute "name"Add a line name = ….`},
		{"type", "\n  name = \"x\"\n  count = \"many\"\n", "", 12, 12, "number"},
		{"syntax, on the first line", " name = = 1\n", "", 10, 27, "expression"},
		{"no such variable in the environment", "\n  name = env(\"KALE_TEST_ABSENT\")\n", "", 11, 15, "set it"},
		{"no variables", "\n  name = var.x\n", "", 11, 10, "Variables"},
		{"variables that are no object", "\n  name = \"x\"\n", "[1]", 10, 19, "JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg.Source, cfg.Variables = []byte(tt.source), []byte(tt.variables)
			var b block
			diags := FromHCL(cfg, DecodeBlock(cfg, &b))
			if len(diags) == 0 || !diags.HasErrors() {
				t.Fatalf("got %+v", diags)
			}
			d := diags[0]
			if d.Filename != "job.hcl" || d.Start.Line != tt.line || d.Start.Column != tt.column || !strings.Contains(d.Summary+d.Detail, tt.text) {
				t.Errorf("got %+v; want job.hcl:%d,%d and %q", d, tt.line, tt.column, tt.text)
			}
			if err := diags.Err(); err == nil || CodeOf(err) != InvalidField {
				t.Errorf("as an error: %v", err)
			}
			if back := FromHCL(cfg, diags.HCL()); !cmp.Equal(back, diags) {
				t.Errorf("to HCL and back: %s", cmp.Diff(diags, back))
			}
		})
	}
}

// A value of another type than its attribute's is told in our words, and once.
func TestValuesOfAnotherType(t *testing.T) {
	type block struct {
		Count *int              `hcl:"count,optional"`
		At    hcl.Range         `hcl:"count,attr_value_range"`
		On    *bool             `hcl:"on,optional"`
		Name  *string           `hcl:"name,optional"`
		Paths []string          `hcl:"paths,optional"`
		Env   map[string]string `hcl:"env,optional"`
	}
	for source, want := range map[string]string{
		`count = "q"`:      "A number is needed here: Write one number, without quotes.",
		`count = [1]`:      "A number is needed here: This is a list: write one number, without quotes.",
		`count = 1.5`:      "A whole number is needed here: Write one without a fraction.",
		`on = 3`:           "true or false is needed here: This is a number: write one of the two, without quotes.",
		`name = {}`:        `A string is needed here: This is a map: write it in quotes, as in "x".`,
		`paths = "/a"`:     `A list is needed here: This is a string: write it in brackets, as in ["x", "y"].`,
		`env = "A"`:        `A map is needed here: This is a string: write it in braces, as in { NAME = "value" }.`,
		`env = { A = [] }`: `A string is needed in element "A": This is a list: write it in quotes, as in "x".`,
	} {
		var b block
		cfg := Config{Filename: "job.hcl", Source: []byte("\n" + source + "\n")}
		found := DecodeBlock(cfg, &b)
		found = append(found, Mistake(b.At, "Unsuitable count", "it is 0")) // what a backend then makes of it
		if b.At.Empty() {
			found = found[:len(found)-1]
		}
		var got []string
		for _, d := range FromHCL(cfg, found) {
			got = append(got, d.Summary+": "+d.Detail)
		}
		if !cmp.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// What a plugin logs with slog arrives, through hclog's lines, in the host's slog with its level and attributes.
func TestLogBridge(t *testing.T) {
	var lines bytes.Buffer
	_, lg := pluginLogger(&lines)
	lg.With("job", "ctr").WithGroup("gpu").Warn("a device is hot", "degrees", 92, slog.Group("fan", "rpm", 0))
	var line map[string]any
	if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
		t.Fatalf("%q: %v", lines.String(), err)
	}
	for k, want := range map[string]any{
		"@level": "warn", "@message": "a device is hot", "job": "ctr", "gpu.degrees": "92", "gpu.fan.rpm": "0",
	} {
		if line[k] != want {
			t.Errorf("%s is %v, want %v in %v", k, line[k], want, line)
		}
	}
	var out bytes.Buffer
	over := false
	host := newHostLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})).With("plugin", "kale-backend-local"), func() bool { return over })
	host.Info("plugin process exited")
	host.Error("plugin process exited", "plugin", "/bin/kale-backend-local", "id", "7")
	if got := out.String(); strings.Count(got, "plugin=") != 1 || !strings.Contains(got, "plugin=kale-backend-local id=7") {
		t.Errorf("go-plugin's own line: %s", got)
	}
	out.Reset()
	host.Named("kale-backend-local").With("job", "ctr").Warn("a device is hot", "degrees", "92", "timestamp", "then")
	got := out.String()
	if strings.Contains(got, "exited") || strings.Contains(got, "timestamp") {
		t.Errorf("the host's log has go-plugin's chatter: %s", got)
	}
	if !strings.Contains(got, `level=WARN msg="a device is hot" plugin=kale-backend-local job=ctr degrees=92`) {
		t.Errorf("the host's log is %q", got)
	}
	out.Reset()
	over = true
	host.Error("plugin process exited", "id", "7")
	host.With("id", "7").Warn("error closing client during Kill")
	if got := out.String(); got != "" {
		t.Errorf("go-plugin complains of what was given up: %s", got)
	}
	if host.Named("kale-backend-local").Warn("a device is hot"); out.Len() == 0 {
		t.Error("the plugin itself is not heard any more")
	}
}

func TestStatusInWords(t *testing.T) {
	at := time.Date(2024, 5, 1, 12, 0, 0, 0, time.UTC)
	for want, st := range map[string]Status{
		"worker-1-g2 pending, behind others in the queue: needs 3 GPUs, 1 free":                                                     {ID: ID{"worker", 1, 2}, State: StatePending, Behind: true, Reason: "needs 3 GPUs, 1 free"},
		"ps-0-g1 running on n1, pid 7, devices 0 1, started again 2×, started 12:00:00.000, ends by 13:00:00.000, for its walltime": {ID: ID{"ps", 0, 1}, State: StateRunning, Node: "n1", PID: 7, Devices: []string{"0", "1"}, Restarts: 2, Started: at, Deadline: at.Add(time.Hour), EndCause: EndWalltime},
		"ps-0-g1 failed, exit code 3; refused: too old (gone)":                                                                      {ID: ID{"ps", 0, 1}, State: StateFailed, ExitCode: 3, Err: Errorf(Gone, "too old")},
	} {
		if got := st.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
