package slurm

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/backend"
)

func configOf(source string, shared ...string) backend.Config {
	return backend.Config{Job: "j", Filename: "job.hcl", StartLine: 10, StartColumn: 19, StartByte: 200, Source: []byte("\n" + source + "\n"), Shared: shared}
}

// Each mistake is one diagnostic, where it is, with what to do.
func TestBlockMistakes(t *testing.T) {
	for _, tt := range []struct {
		source string
		line   int
		says   string
		shared []string
	}{
		{`partition = "gpu"`, 10, "shared_dir", nil},
		{`shared_dir = "relative"`, 11, "same absolute path", nil},
		{`shared_dir = "/a b"`, 11, "blanks", nil},
		{"shared_dir = \"/s\"\nshared_paths = [\"x\"]", 12, "absolute paths", nil},
		{`shared_dir = "/s"`, 11, "checkpoints in /home/me/cp", []string{"/home/me/cp"}},
		{`shared_dir = "/s"`, 11, "checkpoints in /s2/cp", []string{"/s2/cp"}},
		{"shared_dir = \"/s\"\ntrainer = \"kale-trainer\"", 12, "absolute path", nil},
		{"shared_dir = \"/s\"\nenv = { \"A.B\" = \"x\" }", 12, "letters, digits", nil},
		{"shared_dir = \"/s\"\nenv = { KALE_ALLOC_DIR = \"/tmp\" }", 12, "leave it out", nil},
		{"shared_dir = \"/s\"\npartition = \"a b\"", 12, "one word", nil},
		{"shared_dir = \"/s\"\npartition = \"a\\n#SBATCH --uid=0\"", 12, "one word", nil},
		{"shared_dir = \"/s\"\nconstraint = \"a\\nb\"", 12, "features", nil},
		{"shared_dir = \"/s\"\ngres = \"gpu\"", 12, "one %d", nil},
		{"shared_dir = \"/s\"\ngres = \"gpu:%d\"\ngpus = \"%d\"", 13, "keep one", nil},
		{"shared_dir = \"/s\"\ntime = \"soon\"", 12, "days-hours", nil},
		{"shared_dir = \"/s\"\ntime = \"10s\"", 12, "one minute at least", nil},
		{"shared_dir = \"/s\"\nmax_pending = -1", 12, "0 for none", nil},
		{"shared_dir = \"/s\"\nnice = 5000000000", 12, "-2147483645 to 2147483645", nil},
		{"shared_dir = \"/s\"\npriority = 4294967294", 12, "1 to 4294967293", nil},
		{"shared_dir = \"/s\"\npriority = 0", 12, "0 would hold", nil},
		{"shared_dir = \"/s\"\npoll = \"1ms\"", 12, "from 1s", nil},
		{"shared_dir = \"/s\"\nbin_dir = \"bin\"", 12, "absolute path", nil},
		{"shared_dir = \"/s\"\nrest = \"localhost:6820\"", 12, "unix:/run/slurmrestd.socket", nil},
		{"shared_dir = \"/s\"\nrest = \"unix:relative\"", 12, "unix:/run/slurmrestd.socket", nil},
		{"shared_dir = \"/s\"\nrest = \"unix:/s\"\ntoken_file = \"token\"", 13, "absolute path", nil},
		{"shared_dir = \"/s\"\nrest = \"unix:/s\"\nclusters = \"a\"", 13, "one cluster", nil},
		{"shared_dir = \"/s\"\nrest = \"unix:/s\"\nbin_dir = \"/b\"", 13, "keep one", nil},
		{"shared_dir = \"/s\"\nrest = \"https://h\"\nca_cert = \"/no/such/file\"", 13, "/no/such/file", nil},
		{"shared_dir = \"/s\"\nrest = \"unix:/s\"\nproperties = { partition = \"x\" }", 13, "sets itself", nil},
		{"shared_dir = \"/s\"\nrest = \"unix:/s\"\ndirectives = [\n\"--mail-type=FAIL\",\n]", 14, "use properties", nil},
		{"shared_dir = \"/s\"\nclusters = \"all\"", 12, "name them", nil},
		{"shared_dir = \"/s\"\ntoken_file = \"/t\"", 12, "add rest", nil},
		{"shared_dir = \"/s\"\nproperties = { licenses = \"x\" }", 12, "add rest", nil},
		{"shared_dir = \"/s\"\ndirectives = [\n\"--mail-type=FAIL\",\n\"--job-name=x\",\n]", 14, "leave it out", nil},
		{"shared_dir = \"/s\"\ndirectives = [\"#SBATCH -p gpu\"]", 12, "use partition instead", nil},
		{"shared_dir = \"/s\"\ndirectives = [\"--version\"]", 12, "prints something and ends", nil},
		{"shared_dir = \"/s\"\ngpus = \"gpu:h200:%d\"", 12, "write \"h200:%d\"", nil},
		{"shared_dir = \"/s\"\nrest = \"unix:/s\"\nproperties = {\n licenses = \"x\"\n partition = \"x\"\n}", 15, "sets itself", nil},
		{"shared_dir = \"/s\"\ndirectives = [\"mail\"]", 12, "one option of sbatch", nil},
		{"shared_dir = \"/s\"\ndirectives = [\"--begin=now\\n#SBATCH --requeue\"]", 12, "one option of sbatch", nil},
		{"shared_dir = \"/s\"\nartifact {\nsource = \"ftp://x\"\nchecksum = \"" + strings.Repeat("a", 64) + "\"\n}", 13, "https://", nil},
		{"shared_dir = \"/s\"\nartifact {\nsource = \"/x\"\nchecksum = \"md5:1\"\n}", 14, "SHA-256", nil},
		{"shared_dir = \"/s\"\ntrainer = \"/x\"\nartifact {\nsource = \"/x\"\nchecksum = \"" + strings.Repeat("a", 64) + "\"\n}", 12, "keep one", nil},
	} {
		_, diags := decode(configOf(tt.source, tt.shared...))
		if len(diags) != 1 || !diags.HasErrors() || diags[0].Start.Line != tt.line || !strings.Contains(diags[0].Summary+" "+diags[0].Detail, tt.says) {
			t.Errorf("%s:\ngot %+v\nwant one error on line %d that says %q", tt.source, diags, tt.line, tt.says)
		}
	}
}

// What Slurm takes, and may read otherwise than it was meant, is said where it stands; what is plain is not.
func TestBlockWarnings(t *testing.T) {
	const begin = "when a process is submitted: one that is added or replaced later waits so long again"
	for _, tt := range []struct{ line, says string }{
		{`time = "1m"`, "time is \"1m\". Each process is replaced before it is over"},
		{`time = "12:30"`, `which is 12m30s to Slurm (minutes:seconds). If hours are meant, write "12:30:00"; else "12m30s"`},
		{`time = "12:30:00"`, ""},
		{`time = "1-12:30"`, ""},
		{`time = "10"`, ""},
		{`time = "1h"`, ""},
		{`directives = ["--begin=13:00"]`, begin},
		{`directives = ["-b now+1hour"]`, begin},
		{`directives = ["--begin=2030-01-31T13:00"]`, ""},
		{`directives = ["--begin=1/31/30"]`, ""},
		{`directives = ["--begin=now"]`, ""},
		{`directives = ["--deadline=2030-01-31"]`, "ends each process, and starts none later"},
		{`properties = { licenses = "x", begin_time = "13:00" }`, begin},
	} {
		lines := "shared_dir = \"/s\"\n"
		if strings.HasPrefix(tt.line, "properties") {
			lines += "rest = \"unix:/s\"\n"
		}
		cfg := configOf(lines + tt.line)
		_, diags := decode(cfg)
		if tt.says == "" {
			if len(diags) > 0 {
				t.Errorf("%s: %+v, want nothing", tt.line, diags)
			}
			continue
		}
		if len(diags) != 1 || diags.HasErrors() || !strings.Contains(diags[0].Detail, tt.says) {
			t.Errorf("%s: %+v, want a warning that says %q", tt.line, diags, tt.says)
			continue
		}
		if value := string(cfg.Source[diags[0].Start.Byte-cfg.StartByte : diags[0].End.Byte-cfg.StartByte]); !strings.Contains(tt.line, value) {
			t.Errorf("%s: it is at %q", tt.line, value)
		}
	}
}

// What is not known keeps nothing else from being checked.
func TestEveryMistakeOfTheBlock(t *testing.T) {
	_, diags := decode(configOf("shared_dir = \"/s\"\nnonsense = 4\ntrainer = \"kale-trainer\"\nmax_pending = -1\ndirectives = [\"--job-name=x\", \"mail\"]\nodd {\n}", "/home/me/cp"))
	var lines []int
	for _, d := range diags {
		lines = append(lines, d.Start.Line)
	}
	slices.Sort(lines)
	if want := []int{11, 12, 13, 14, 15, 15, 16}; !slices.Equal(lines, want) {
		t.Errorf("mistakes on lines %v, want %v: %+v", lines, want, diags)
	}
}

// What every forbidden directive is, in each of its forms.
func TestDirectivesThatAreOurs(t *testing.T) {
	for name := range ours {
		forms := []string{"--" + name + "=1", "#SBATCH --" + name, "  --" + name + " 1"}
		if len(name) == 1 {
			forms = []string{"-" + name + " 1", "-" + name + "1", "#SBATCH -" + name}
		}
		for n := 2; n < len(name); n++ { // sbatch takes abbreviations
			forms = append(forms, "--"+name[:n]+"=1")
		}
		for _, form := range forms {
			if _, diags := decode(configOf(fmt.Sprintf("shared_dir = \"/s\"\ndirectives = [%q]", form))); len(diags) != 1 {
				t.Errorf("directive %q: %+v, want one error", form, diags)
			}
		}
	}
}

// A directive is one option: a second one in the same string would be one that nobody has looked at. What is one option in sbatch's other forms is taken.
func TestDirectiveIsOneOption(t *testing.T) {
	of := func(line string) int {
		_, diags := decode(configOf(fmt.Sprintf("shared_dir = \"/s\"\ndirectives = [%q]", line)))
		return len(diags)
	}
	for _, line := range []string{
		"--mail-type=FAIL --job-name=x", "--mail-type FAIL --hold", "--delay-boot=1 --hold", "--mail-type=FAIL -H", "--exclusive\t-H", "-d 1 -H", "-sH", "-s -H", "-vH",
		`--mail-type="FAIL" --hold`, `--"job-name"=x`, `--job"-name"=x`, `--mail-type='A' --hold`, "--mail-type=FAIL # why", "--", "-", "-- --hold", "--mail-type=A\r--hold",
		`--mail-type="A" "--hold"`, `--mail-type=\\" --hold`,
	} {
		if got := of(line); got != 1 {
			t.Errorf("directive %q: %d errors, want one", line, got)
		}
	}
	for _, line := range []string{
		"--mail-type=FAIL", "--mail-type FAIL", "#SBATCH --mail-type=FAIL", "--exclusive", "-s", "-v", "-L matlab:2", "-Lmatlab:2", `--mail-user="Ann Other"`, "-d afterok:1",
		"--wait-all-nodes=1", "--no-kill", "--mem-bind=local",
	} {
		if got := of(line); got != 0 {
			t.Errorf("directive %q: %d errors, want none", line, got)
		}
	}
}

// The script that Slurm gets: every option in its place, and nothing of the workload's environment or files.
func TestBatchScript(t *testing.T) {
	s, diags := decode(configOf(`
  shared_dir = "/s/kale"
  shared_paths = ["/scratch"]
  trainer    = "/opt/kale/bin/kale-trainer"
  partition  = "gpu"
  account    = "ml"
  qos        = "high"
  reservation = "res"
  constraint = "h200&nvlink"
  exclude    = "n9"
  gres       = "gpu:h200:%d"
  nice       = 10
  time       = "1-0"
  directives = ["#SBATCH --mail-type=FAIL"]
  env        = { KALE_ONNXRUNTIME = "/opt/nodes.so" }
`, "/s/kale/cp", "/scratch/me/cp"))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	j := &job{name: "ctr", set: s}
	i := j.instance(worker(3, 2))
	r := record{Nonce: "NONCE", StopGrace: 15 * time.Second, Warning: s.warning(15 * time.Second), Resources: backend.Resources{GPUs: 2, CPUMilli: 2500, MemoryBytes: 5<<30 + 1}}
	want := `#!/bin/sh
#SBATCH --job-name=kale:ctr:worker-3-g2
#SBATCH --comment="kale NONCE"
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --no-requeue
#SBATCH --export=HOME,USER,LOGNAME
#SBATCH --chdir=/s/kale/ctr/worker-3-g2/alloc
#SBATCH --output=/s/kale/ctr/worker-3-g2/slurm.log
#SBATCH --open-mode=append
#SBATCH --cpus-per-task=3
#SBATCH --gres=gpu:h200:2
#SBATCH --mem=5121M
#SBATCH --signal=B:TERM@45
#SBATCH --exclude=n9,n4
#SBATCH --partition=gpu
#SBATCH --account=ml
#SBATCH --qos=high
#SBATCH --reservation=res
#SBATCH --constraint="h200&nvlink"
#SBATCH --nice=10
#SBATCH --time=1440
#SBATCH --mail-type=FAIL
exec /bin/sh '/s/kale/ctr/worker-3-g2/run.sh'
`
	if diff := cmp.Diff(want, batch{s, i, r, []string{"n4"}}.script()); diff != "" {
		t.Errorf("the batch script (-want +got):\n%s", diff)
	}
	w := backend.Workload{ID: i.id, Argv: []string{"/here/bin/kale-trainer", "worker", "it's", "--rank", "3"}, Env: map[string]string{
		"B": "b'c", "A": "$(x)", "KALE_ONNXRUNTIME": "/here/scheduler.so", backend.EnvAllocDir: "/tmp",
	}}
	program, err := s.program("/here/bin/kale-backend-slurm", w.Argv[0])
	if err != nil {
		t.Fatal(err)
	}
	got := runScript(s, i, program, "", w, r.StopGrace)
	for _, want := range []string{
		"  exec '/opt/kale/bin/kale-trainer' 'worker' 'it'\\''s' '--rank' '3'\n", "  export A='$(x)'\n  export B='b'\\''c'\n", "kale_grace=15.000\n",
		"  export KALE_ALLOC_DIR='/s/kale/ctr/worker-3-g2/alloc'\n  export KALE_ONNXRUNTIME='/opt/nodes.so'\n}\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("run.sh lacks %q:\n%s", want, got[:600])
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
		_, source, begins := strings.Cut(string(text), "\n    backend \"slurm\" {\n")
		source, _, ends := strings.Cut(source, "\n    }\n")
		if !begins || !ends || !strings.Contains(string(text), "-checkpoint /mnt/shared/") {
			t.Fatalf("%s has no block, or does not say where checkpoint.dir belongs", readme)
		}
		if _, diags := decode(configOf(source, "/mnt/shared/ctr")); len(diags) > 0 {
			t.Errorf("%s: %v", readme, diags)
		}
	}
}

// A folder that the nodes do not share is told where the job file names it, or at the block's own folder where that is not known.
func TestFolderThatIsNotShared(t *testing.T) {
	cfg := configOf("shared_dir = \"/s\"", "/s/cp", "/home/me/cp")
	for want, at := range map[string][]backend.Range{
		"job.hcl:11:14": {{}},
		"ctr.hcl:7:11":  {{}, {Filename: "ctr.hcl", Start: backend.Position{Line: 7, Column: 11}, End: backend.Position{Line: 7, Column: 24}}},
	} {
		cfg.SharedAt = at
		_, diags := decode(cfg)
		if len(diags) != 1 || diags[0].Summary != "Folder is not shared by the nodes" || !strings.Contains(diags[0].Detail, "/home/me/cp") {
			t.Fatalf("%v", diags)
		}
		if d := diags[0]; fmt.Sprintf("%s:%d:%d", d.Filename, d.Start.Line, d.Start.Column) != want {
			t.Errorf("it is at %s:%v, want %s", d.Filename, d.Start, want)
		}
	}
}
