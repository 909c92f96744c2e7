package core_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/kale-sched/kale/"

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath string
	Imports    []string
	CgoFiles   []string
	Doc        string
	Name       string
}

// allowed is the law by which packages import each other: whether one of ours may import another.
func allowed(from, to string) bool {
	in := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	top := func(p string) string { return strings.SplitN(p, "/", 2)[0] }
	sub := func(p string) string { // core/x of core/x/y
		parts := strings.SplitN(p, "/", 3)
		return strings.Join(parts[:min(2, len(parts))], "/")
	}
	switch {
	case in(to, "cmd"):
		return in(from, "cmd")
	case in(from, "cmd"):
		return true
	case in(from, "examples"):
		return in(to, "core/backend") // what a third party's plugin may use
	case sub(from) == sub(to), top(from) == top(to) && top(from) != "core" && top(from) != "plugins":
		return true // one noun and its parts
	case from == "core" || in(from, "core/api") || in(from, "core/report") || in(from, "core/replay") || in(from, "core/hindsight"):
		return top(to) == "core" || in(to, "estimator") || in(to, "forecast")
	case in(from, "core/job"):
		return to == "forecast/holidays" // which holidays there are, a leaf: a job file that names one that there is not is told where
	case in(from, "core/plan"), in(from, "core/pool"), in(from, "core/profile"):
		return in(to, "estimator")
	case top(from) == "core", in(from, "estimator"), in(from, "shuffler"):
		return false
	case in(from, "forecast"):
		return in(to, "core/onnx")
	case in(from, "trainer"):
		return in(to, "trainer") || in(to, "core/onnx") || in(to, "core/rpc") || in(to, "shuffler")
	case in(from, "plugins"):
		return in(to, "core/backend")
	}
	return false
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,CgoFiles,Doc,Name", "./...")
	cmd.Dir = ".."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		pkgs = append(pkgs, p)
	}
}

func TestImportLaw(t *testing.T) {
	seen := 0
	for _, p := range list(t) {
		for _, i := range p.Imports {
			if i == "unsafe" && p.ImportPath != "core/onnx" && p.ImportPath != "core/rpc" && p.ImportPath != "core/backend/backendpb" {
				t.Errorf("%s imports unsafe; only core/onnx and what protoc writes may: make test leaves checks of pointers out where there are none", p.ImportPath)
			}
			to, ours := strings.CutPrefix(i, module)
			if !ours {
				continue
			}
			seen++
			if !allowed(p.ImportPath, to) {
				t.Errorf("%s must not import %s: see allowed in core/law_test.go", p.ImportPath, to)
			}
		}
		if len(p.CgoFiles) > 0 && p.ImportPath != "core/onnx" && p.ImportPath != "plugins/local" {
			t.Errorf("%s uses cgo; only core/onnx and plugins/local may", p.ImportPath)
		}
		if p.Doc == "" && p.Name != "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
	if seen < 20 {
		t.Fatalf("only %d imports among our packages were seen: the test does not look where it should", seen)
	}
}

// The law itself must forbid something: pairs that are wrong and pairs that are right.
func TestImportLawForbids(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"core", "trainer"}: false, {"trainer", "core"}: false, {"core/plan", "core/traffic"}: false, {"estimator", "core/plan"}: false,
		{"plugins/local", "core/job"}: false, {"core/job", "cmd/kale"}: false, {"trainer/ps", "core/job"}: false, {"forecast", "core/plan"}: false,
		{"core/pool", "core/plan"}: false, {"core/pool", "core/job"}: false, {"core/plan", "core/pool"}: false, {"core/pool", "estimator"}: true, {"core", "core/pool"}: true,
		{"core/job", "forecast/holidays"}: true, {"core/job", "forecast"}: false, {"core/plan", "forecast/holidays"}: false, {"core/profile", "core"}: false, {"core/profile", "estimator"}: true,
		{"core", "core/plan"}: true, {"core/plan", "estimator"}: true, {"trainer/chief", "core/rpc"}: true, {"cmd/kale", "trainer/ps"}: true,
		{"examples/backend-processes", "plugins/local"}: false, {"examples/backend-processes", "core/backend"}: true,
		{"plugins/local", "core/backend"}: true, {"core/backend/fake", "core/backend"}: true, {"core/api", "core"}: true,
	} {
		if got := allowed(pair[0], pair[1]); got != want {
			t.Errorf("%s importing %s: allowed %v, want %v", pair[0], pair[1], got, want)
		}
	}
}
