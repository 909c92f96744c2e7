package nomad

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
)

// configure gives what Configure says of a block, one line for each diagnostic.
func configure(t *testing.T, source string, shared ...string) []string {
	t.Helper()
	cfg := backend.Config{Job: "j", Filename: "job.hcl", StartLine: 10, StartColumn: 17, Source: []byte(source), Shared: shared}
	diags, err := New(nil).Configure(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range diags {
		kind := "error"
		if d.Severity == backend.SeverityWarning {
			kind = "warning"
		}
		out = append(out, fmt.Sprintf("%s at %d,%d: %s", kind, d.Start.Line, d.Start.Column, d.Summary))
		if d.Detail == "" {
			t.Errorf("%q has no detail", d.Summary)
		}
	}
	return out
}

func TestBlock(t *testing.T) {
	for _, name := range []string{"NOMAD_ADDR", "NOMAD_TOKEN", "NOMAD_NAMESPACE", "NOMAD_REGION", "NOMAD_CACERT"} {
		t.Setenv(name, "")
		_ = os.Unsetenv(name) // t.Setenv puts it back
	}
	for _, tt := range []struct {
		name, source string
		shared       []string
		want         []string
	}{
		{"nothing", "", nil, nil},
		{"all of it", `
  address     = "https://nomad.example:4646"
  region      = "eu"
  namespace   = "ml"
  token       = "s3cret"
  driver      = "docker"
  image       = "registry.example/kale:1"
  artifact {
    source   = "https://example.com/kale-trainer.tar.gz"
    checksum = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  }
  env         = { OMP_NUM_THREADS = "4" }
  volume "jobs" {
    path = "/mnt/shared"
  }
  constraint {
    attribute = "node.class"
    value     = "gpu"
  }
  device       = "nvidia/gpu/H100"
  mhz_per_cpu  = 2400
  priority     = 70
  datacenters  = ["dc1"]
  node_pool    = "gpu"
  shared_paths = ["/mnt/shared"]
  drift        = "restore"
`, []string{"/mnt/shared/jobs/ctr"}, nil},
		{"a folder that is not shared", "\n  shared_paths = [\"/mnt/shared\"]\n", []string{"/mnt/sharedbutnot"}, []string{"error at 11,18: Folder is not shared by the nodes"}},
		{"nobody says what is shared", "", []string{"/mnt/shared"}, []string{"warning at 10,17: Nothing says what the nodes share"}},
		{"all mistakes at once", `
  driver      = "exec"
  image       = "x"
  drift       = "ignore"
  priority    = 101
  mhz_per_cpu = 0
  device      = ""
  trainer     = ""
  env         = { "A-B" = "c" }
`, nil, []string{
			"error at 12,17: Image without docker", "error at 17,17: Empty program name", "error at 16,17: Empty device name",
			"error at 15,17: Unsuitable CPU unit", "error at 14,17: Unsuitable priority", "error at 13,17: Unknown value", "error at 18,17: Unsuitable environment variable",
		}},
		{"a variable that Kale sets", `
  env = { KALE_ALLOC_DIR = "/tmp" }
`, nil, []string{"error at 11,9: Kale's own environment variable"}},
		{"volumes that cannot be", `
  driver = "exec"
  volume "a" {
    path = "mnt"
  }
  volume "b" {
    path = "/mnt/"
  }
  volume "c" {
    path = "/mnt"
  }
`, nil, []string{"error at 12,3: Unsuitable place for a volume", "error at 18,3: Two volumes in one place"}},
		{"a volume for raw_exec", "\n  volume \"a\" {\n    path = \"/mnt\"\n  }\n", nil, []string{"error at 11,3: Volume without need"}},
		{"a folder that is not mounted", "\n  driver = \"exec\"\n  shared_paths = [\"/mnt\"]\n  volume \"a\" {\n    path = \"/mnt\"\n    read_only = true\n  }\n", []string{"/mnt/jobs"}, []string{"error at 11,12: Folder is not mounted into the tasks"}},
		{"a driver that is mistyped", "\n  driver = \"dokcer\"\n  image = \"x\"\n  shared_paths = [\"/mnt\"]\n", []string{"/mnt/jobs"}, []string{"error at 11,12: Unknown value"}},
		{"docker without an image", "\n  driver = \"docker\"\n", nil, []string{"error at 11,12: No image"}},
		{"an artifact that anybody can change", "\n  artifact {\n    source = \"https://example.com/x\"\n  }\n", nil, []string{"warning at 11,3: Artifact without a checksum"}},
		{"a checksum that is none", "\n  artifact {\n    source = \"https://example.com/x\"\n    checksum = \"md5:abc\"\n  }\n", nil, []string{"error at 13,16: Unsuitable checksum"}},
		{"a checksum without its kind", "\n  artifact {\n    source = \"https://example.com/x\"\n    checksum = \"d41d8cd98f00b204e9800998ecf8427e\"\n  }\n", nil, []string{"error at 13,16: Unsuitable checksum"}},
		{"a checksum", "\n  artifact {\n    source = \"https://example.com/x\"\n    checksum = \"md5:d41d8cd98f00b204e9800998ecf8427e\"\n  }\n", nil, nil},
		{"a checksum that the node has", "\n  artifact {\n    source = \"https://example.com/x\"\n    checksum = \"sha256:$${meta.sum}\"\n  }\n", nil, nil},
		{"an attribute as a Nomad job has it", "\n  constraint {\n    attribute = \"${node.class}\"\n    value = \"gpu\"\n  }\n", nil, []string{"error at 12,20: Nomad's own variable"}},
		{"an attribute that comes to Nomad so", "\n  constraint {\n    attribute = \"$${node.class}\"\n    value = \"gpu\"\n  }\n", nil, nil},
		{"an address that is none", "\n  address = \"nomad.example:4646\"\n", nil, []string{"error at 11,13: Unsuitable address"}},
		{"a relative shared folder", "\n  shared_paths = [\"mnt\"]\n", nil, []string{"error at 11,18: Unsuitable shared folder"}},
		{"a CA that is not there", "\n  address = \"https://nomad.example:4646\"\n  ca_cert = \"/no/such/file\"\n", nil, []string{"error at 11,13: No client for Nomad"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, configure(t, tt.source, tt.shared...)); diff != "" {
				t.Errorf("diagnostics (-want +got):\n%s", diff)
			}
		})
	}
}

// A cluster that is not there is unknown, never empty, and the error says where it was looked for.
func TestNobodyThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := New(nil)
	if diags, err := n.Configure(t.Context(), backend.Config{Job: "j", Source: fmt.Appendf(nil, "address = %q\n", address)}); err != nil || diags.HasErrors() {
		t.Fatal(diags, err)
	}
	id := workerID(0, 1)
	for name, call := range map[string]func(context.Context) error{
		"List": func(ctx context.Context) error {
			statuses, complete, err := n.List(ctx, "j")
			if complete || len(statuses) > 0 {
				t.Errorf("List = %v, complete %v", statuses, complete)
			}
			return err
		},
		"Ensure": func(ctx context.Context) error {
			_, err := n.Ensure(ctx, "j", []backend.Workload{{ID: id, Argv: []string{"x"}}})
			return err
		},
		"Release":   func(ctx context.Context) error { return n.Release(ctx, "j", []backend.ID{id}, backend.Forced) },
		"Inventory": func(ctx context.Context) error { _, err := n.Inventory(ctx); return err },
		"Plan": func(ctx context.Context) error {
			_, err := n.Plan(ctx, "j", []backend.Workload{{ID: id, Argv: []string{"x"}}})
			return err
		},
		"Logs": func(ctx context.Context) error { _, err := n.Logs(ctx, "j", id, backend.LogOptions{}); return err },
	} {
		err := call(t.Context())
		if err == nil || backend.CodeOf(err) != backend.Unavailable || !strings.Contains(err.Error(), "cannot be reached") || strings.Contains(err.Error(), "/v1/") || !strings.HasPrefix(err.Error(), "Nomad cannot be reached: ") {
			t.Errorf("%s: %v; want code %q, that it cannot be reached, and neither a path of its interface nor which of the questions was to be asked there", name, err, backend.Unavailable)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := call(over); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that is over: %v", name, err)
		}
	}
}

// A server that hangs is named in time for who waits, through the plugin's process too: by its address, with where to look.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	address := "http://" + l.Addr().String()
	for name, b := range map[string]backend.Backend{"itself": New(nil), "its process": launch(t)} {
		if diags, err := b.Configure(t.Context(), backend.Config{Job: "j", Source: fmt.Appendf(nil, "address = %q\n", address)}); err != nil || diags.HasErrors() {
			t.Fatal(diags, err)
		}
		ws := []backend.Workload{{ID: workerID(0, 1), Argv: []string{"x"}}}
		for call, f := range map[string]func(context.Context) error{
			"List":    func(ctx context.Context) error { _, _, err := b.List(ctx, "j"); return err },
			"Plan":    func(ctx context.Context) error { _, err := b.Plan(ctx, "j", ws); return err },
			"Release": func(ctx context.Context) error { return b.Release(ctx, "j", []backend.ID{ws[0].ID}, backend.Forced) },
		} {
			t.Run(call+" of "+name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				err := f(ctx)
				if ctx.Err() != nil {
					t.Error("it returns when the deadline has passed")
				}
				if backend.CodeOf(err) != backend.Unavailable || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Nomad at "+address+" does not answer: ") ||
					!strings.Contains(err.Error(), "is the server up? nomad server members ") || strings.Contains(err.Error(), "/v1/") {
					t.Error(err)
				}
			})
		}
	}
}

// A checkpoint folder where the READMEs say that it belongs is taken with the block that they have.
func TestBlockOfTheREADMEs(t *testing.T) {
	for _, readme := range []string{"README.md", "../../README.md"} {
		text, err := os.ReadFile(readme)
		if err != nil {
			t.Fatal(err)
		}
		_, source, begins := strings.Cut(string(text), "\n    backend \"nomad\" {\n")
		source, _, ends := strings.Cut(source, "\n    }\n")
		if !begins || !ends || !strings.Contains(string(text), "-checkpoint /mnt/shared/") {
			t.Fatalf("%s has no block, or does not say where checkpoint.dir belongs", readme)
		}
		if diags := configure(t, "\n"+source+"\n", "/mnt/shared/ctr"); len(diags) > 0 {
			t.Errorf("%s: %v", readme, diags)
		}
	}
}
