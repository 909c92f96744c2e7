package job

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
)

const twoJobs = `
pool "main" {
  gpus = 4

  job "a" {
    priority  = 10
    guarantee = 2
  }
  job "b" {
    limit = 3
  }
}
`

// poolOf parses a pool that is right.
func poolOf(t *testing.T, src string) (*Pool, Files) {
	t.Helper()
	p, files, diags := ParsePool([]byte(src), "pool.hcl")
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	return p, files
}

const twoTypes = `
pool "main" {
  patience = "30m"

  type "a100" {
    gpus = 2
  }
  type "l4" {
    gpus = 4
  }
  job "a" {
    type   = "a100"
    weight = 3
  }
  job "b" {
    type = "l4"
  }
}
`

// jobNamed is the minimal job under another name, with a change.
func jobNamed(t *testing.T, name, old, instead string) *Job {
	t.Helper()
	src := strings.Replace(strings.Replace(minimal, `job "ctr"`, `job "`+name+`"`, 1), old, instead, 1)
	j, files, diags := Parse([]byte(src), name+".hcl", Options{})
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	return j
}

func TestPool(t *testing.T) {
	p, _ := poolOf(t, twoJobs)
	if p.Name != "main" || p.GPUs != 4 {
		t.Errorf("pool %q of %d", p.Name, p.GPUs)
	}
	var got []PoolJob
	for _, name := range []string{"a", "b", "c"} {
		got = append(got, p.Of(jobNamed(t, name, "", "")))
	}
	want := []PoolJob{{Name: "a", Priority: 10, Weight: 1, Guarantee: 2, Limit: 4}, {Name: "b", Weight: 1, Guarantee: 1, Limit: 3}, {Name: "c", Weight: 1, Guarantee: 1, Limit: 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diags := p.Check([]*Job{jobNamed(t, "a", "", ""), jobNamed(t, "b", "", ""), jobNamed(t, "c", "", "")}); len(diags) > 0 {
		t.Errorf("%v", diags)
	}
}

// A pool may have types of GPUs, of which each job runs on one; where there is one type, nobody has to name it.
func TestPoolTypes(t *testing.T) {
	p, _ := poolOf(t, twoTypes)
	if diff := cmp.Diff([]PoolType{{"a100", 2}, {"l4", 4}}, p.Types); diff != "" || p.GPUs != 0 || p.Patience != 30*time.Minute {
		t.Errorf("%d GPUs, patience %v, types (-want +got):\n%s", p.GPUs, p.Patience, diff)
	}
	a, b := jobNamed(t, "a", "", ""), jobNamed(t, "b", "", "")
	got := []PoolJob{p.Of(a), p.Of(b)}
	want := []PoolJob{{Name: "a", Type: "a100", Weight: 3, Guarantee: 1, Limit: 4}, {Name: "b", Type: "l4", Weight: 1, Guarantee: 1, Limit: 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.Backend.Source = []byte("  # of its type\n")
	if diags := p.Check([]*Job{a, b}); len(diags) > 0 {
		t.Errorf("%v", diags)
	}
	p, _ = poolOf(t, "pool \"main\" {\n  type \"l4\" {\n    gpus = 4\n  }\n  job \"a\" {\n  }\n}\n")
	if got := p.Of(a).Type + " " + p.Of(b).Type; got != "l4 l4" || p.Patience != time.Hour {
		t.Errorf("a and b are of %s, patience %v", got, p.Patience)
	}
}

// The example is a pool file without a mistake.
func TestExamplePool(t *testing.T) {
	p, files, diags := LoadPool(filepath.Join(examples, "pool.hcl"))
	if len(diags) > 0 {
		t.Fatal(rendered(files, diags))
	}
	want := []PoolJob{{Name: "ctr", Priority: 10, Weight: 2, Guarantee: 2, Limit: 6}}
	if diff := cmp.Diff(want, p.Jobs); diff != "" || p.GPUs != 8 {
		t.Errorf("%d GPUs; jobs (-want +got):\n%s", p.GPUs, diff)
	}
}

func TestBrokenPoolFiles(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "pool"))
	broken, err := filepath.Glob("*.hcl")
	if err != nil || len(broken) < 5 {
		t.Fatalf("%d broken files, %v", len(broken), err)
	}
	for _, file := range broken {
		p, files, diags := LoadPool(file)
		if p != nil || !diags.HasErrors() {
			t.Errorf("%s: accepted", file)
		}
		located(t, files, diags)
		golden(t, strings.TrimSuffix(file, ".hcl")+".diag", rendered(files, diags))
	}
	_, files, diags := LoadPool("nowhere.hcl")
	golden(t, "nowhere.diag", rendered(files, diags))
}

// What is wrong between a pool and its jobs.
func TestPoolCheck(t *testing.T) {
	min3 := func(name string) *Job { return jobNamed(t, name, "max = 4", "min = 3\n    max = 4") }
	var out strings.Builder
	for _, c := range []struct {
		name, src string
		jobs      []*Job
	}{
		{"a job that is not run", twoJobs, []*Job{jobNamed(t, "a", "", "")}},
		{"a job that is misspelt", strings.Replace(twoJobs, `"b"`, `"clicks"`, 1), []*Job{jobNamed(t, "a", "", ""), jobNamed(t, "clikcs", "", "")}},
		{"too little for the guarantees", strings.Replace(twoJobs, "guarantee = 2", "guarantee = 4", 1), []*Job{jobNamed(t, "a", "", ""), jobNamed(t, "b", "", "")}},
		{"too little for whole workers", strings.Replace(twoJobs, "gpus = 4", "gpus = 3", 1), []*Job{jobNamed(t, "a", "max = 4", "max = 4\n    gpus = 2"), jobNamed(t, "b", "", "")}},
		{"below and above what the job file says", strings.Replace(twoJobs, "limit = 3", "guarantee = 9", 1), []*Job{min3("a"), jobNamed(t, "b", "", "")}},
		{"too little beside other mistakes", strings.Replace(strings.Replace(twoJobs, "gpus = 4", "gpus = 1\n  patience = \"10s\"", 1), "limit = 3", "guarantee = 9", 1), []*Job{min3("a"), jobNamed(t, "b", "", "")}},
		{"a limit above workers.max", strings.Replace(twoJobs, "limit = 3", "limit = 5", 1), []*Job{jobNamed(t, "a", "", ""), jobNamed(t, "b", "", "")}},
		{"a limit below workers.min", strings.Replace(twoJobs, "limit = 3", "limit = 2", 1), []*Job{jobNamed(t, "a", "", ""), min3("b")}},
		{"a job that has no type", twoTypes, []*Job{jobNamed(t, "a", "", ""), jobNamed(t, "b", "", ""), jobNamed(t, "c", "", "")}},
		{"too little of a type", strings.Replace(twoTypes, "gpus = 2", "gpus = 1", 1), []*Job{jobNamed(t, "a", "max = 4", "max = 4\n    gpus = 2"), jobNamed(t, "b", "", "")}},
		{"two backends of two types", twoTypes, []*Job{jobNamed(t, "a", "", ""), jobNamed(t, "b", `"local"`, `"nomad"`)}},
		{"two backends", twoJobs, []*Job{jobNamed(t, "a", "", ""), jobNamed(t, "b", `"local"`, `"nomad"`)}},
	} {
		p, files := poolOf(t, c.src)
		diags := p.Check(c.jobs)
		located(t, files, diags)
		out.WriteString("== " + c.name + "\n" + rendered(files, diags))
	}
	golden(t, filepath.Join("testdata", "pool", "check.diag"), out.String())
}

func FuzzParsePool(f *testing.F) {
	seeds, err := filepath.Glob("testdata/pool/*.hcl")
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range seeds {
		src, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Add([]byte(twoJobs))
	f.Add([]byte(twoTypes))
	f.Fuzz(func(t *testing.T, src []byte) {
		p, files, diags := ParsePool(src, "pool.hcl")
		if (p == nil) != diags.HasErrors() {
			t.Fatalf("pool %v with %v", p, diags)
		}
		located(t, files, diags)
		if err := Render(&bytes.Buffer{}, files, diags, 100, true); err != nil {
			t.Error(err)
		}
		if p != nil {
			located(t, files, p.Check([]*Job{{Name: "ctr"}}))
		}
		if draft, files, _ := draftPool(src, "pool.hcl"); draft != nil {
			located(t, files, draft.CheckSome([]*Job{{Name: "ctr"}}, []string{"b"}, true))
		}
	})
}

// A patience that is shorter than what a job takes from one decision to the next is refused: it would be due a turn at each.
func TestPatienceAndTick(t *testing.T) {
	a := jobNamed(t, "a", "", "")
	b := jobNamed(t, "b", "", "")
	b.Autoscale.Tick = 90 * time.Second
	for patience, want := range map[string]string{
		"0s":  "",
		"2m":  "",
		"1m":  `Job "b" decides once in 1m30s (autoscale.tick in b.hcl), and would be due a turn each time: use as much or more, or "0s" for no turns.`,
		"10s": `Job "a" decides once in 1m (`,
	} {
		p, _ := poolOf(t, strings.Replace(twoJobs, "gpus = 4", "gpus = 4\n  patience = \""+patience+"\"", 1))
		diags := p.Check([]*Job{a, b})
		told := slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool { return strings.Contains(d.Detail, want) })
		if diags.HasErrors() != (want != "") || want != "" && !told {
			t.Errorf("patience %s: %v", patience, diags)
		}
	}
}

// A pool file that does not say how many GPUs there are of a type says which that is; whoever knows says it, and then guarantees are held against it.
func TestUnsizedPool(t *testing.T) {
	a, b := jobNamed(t, "a", "", ""), jobNamed(t, "b", "", "")
	p, _ := poolOf(t, "pool \"main\" {\n}\n")
	if got := p.Unsized(); !slices.Equal(got, []string{""}) || p.Check([]*Job{a, b}).HasErrors() {
		t.Errorf("unsized are %q", got)
	}
	p.Size("", 1)
	if diags := p.Check([]*Job{a, b}); len(p.Unsized()) > 0 || !strings.Contains(diags.Error(), "2 GPUs are guaranteed, and there are 1") {
		t.Errorf("unsized are %q, %v", p.Unsized(), diags)
	}
	p, _ = poolOf(t, strings.Replace(twoTypes, "gpus = 4", "", 1))
	if got := p.Unsized(); !slices.Equal(got, []string{"l4"}) {
		t.Errorf("unsized are %q", got)
	}
	p.Size("l4", 3)
	if diff := cmp.Diff([]PoolType{{"a100", 2}, {"l4", 3}}, p.Types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
}

// Jobs on two types whose backend blocks are the same ask for neither, which is said; of slots, which have no type that could be asked for, it is not.
func TestNothingAsksForTheType(t *testing.T) {
	const summary = "Nothing asks for the type"
	for _, c := range []struct {
		gpus         int
		blockA, like string
		told         bool
	}{
		{1, "  partition = \"x\"\n", "partition =  \"x\"", true},
		{1, "  partition = \"x\"\n", "  partition = \"y\"\n", false},
		{0, "", "", false},
	} {
		a, b := jobNamed(t, "a", "", ""), jobNamed(t, "b", "", "")
		a.Backend, b.Backend = Backend{Name: "slurm", Source: []byte(c.blockA)}, Backend{Name: "slurm", Source: []byte(c.like)}
		a.Workers.GPUs, b.Workers.GPUs = c.gpus, c.gpus
		p, _ := poolOf(t, twoTypes)
		told := slices.ContainsFunc(p.Check([]*Job{a, b}), func(d *hcl.Diagnostic) bool { return d.Summary == summary && d.Severity == hcl.DiagWarning })
		if told != c.told {
			t.Errorf("blocks %q and %q, with %d GPUs: %v", c.blockA, c.like, c.gpus, told)
		}
	}
	p, _ := poolOf(t, twoJobs)
	a, b := jobNamed(t, "a", "", ""), jobNamed(t, "b", "", "")
	if diags := p.Check([]*Job{a, b}); len(diags) > 0 {
		t.Errorf("of a pool without types: %v", diags)
	}
}

// A pool file with mistakes, and one of which not every job file is right, are held against the jobs as far as they can be relied on: what is wrong between them is
// told in the same run.
func TestDraftPool(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pool.hcl")
	draft := func(src string) (*Pool, hcl.Diagnostics) {
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		p, _, diags := DraftPool(file)
		return p, diags
	}
	summaries := func(diags hcl.Diagnostics) (out []string) {
		for _, d := range diags {
			out = append(out, fmt.Sprintf("%d %s", d.Subject.Start.Line, d.Summary))
		}
		return out
	}
	jobs := []*Job{jobNamed(t, "a", "", ""), jobNamed(t, "b", "", "")} // of 1 to 4 workers
	p, diags := draft("pool \"main\" {\n  gpu = 1\n  job \"a\" {\n    priorty = 1\n    guarantee = 9\n  }\n  job \"b\" {\n    guarantee = 0\n    limit = 3\n  }\n  job \"c\" {\n  }\n}\n")
	want := []string{"2 Unknown attribute \"gpu\"", "4 Unknown attribute \"priorty\"", "8 Number out of range"}
	if diff := cmp.Diff(want, summaries(diags)); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"5 The guarantee is above workers.max", "11 Job \"c\" is not among the jobs"}, summaries(p.CheckSome(jobs, nil, true))); diff != "" {
		t.Errorf("a file with mistakes and its jobs (-want +got):\n%s", diff)
	}
	p, diags = draft("pool \"main\" {\n  gpus = 1\n  job \"a\" {\n    guarantee = 9\n  }\n  job \"b\" {\n    guarantee = 9\n  }\n  job \"c\" {\n  }\n}\n")
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	if diff := cmp.Diff([]string{"2 The pool is smaller than its guarantees", "4 The guarantee is above workers.max", "9 Job \"c\" is not among the jobs"}, summaries(p.CheckSome(jobs[:1], []string{"b"}, true))); diff != "" {
		t.Errorf("b has mistakes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"2 The pool is smaller than its guarantees", "4 The guarantee is above workers.max"}, summaries(p.CheckSome(jobs[:1], nil, false))); diff != "" {
		t.Errorf("b has no name (-want +got):\n%s", diff)
	}
	if p, _ := draft("pool {"); p != nil {
		t.Errorf("of a torn file there is %+v", p)
	}
}
