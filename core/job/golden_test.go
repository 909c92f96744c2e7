package job

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
)

var update = flag.Bool("update", false, "rewrite the golden files and the table of defaults in doc.go")

// golden compares got with the file, or writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// TestBrokenFiles renders the diagnostics of every broken file in testdata and compares them with the file beside it.
func TestBrokenFiles(t *testing.T) {
	vars := map[string]map[string]string{
		"variables.hcl": {"hidden": "[64, \"wide\"]", "toppic": "x"},
	}
	varFiles := map[string][]string{
		"variables.hcl": {"variables.hclvars"},
	}
	t.Chdir("testdata")
	broken, err := filepath.Glob("*.hcl")
	if err != nil || len(broken) < 10 {
		t.Fatalf("%d broken files, %v", len(broken), err)
	}
	for _, file := range broken {
		t.Run(file, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			job, files, diags := Parse(src, file, Options{Vars: vars[file], VarFiles: varFiles[file],
				LookupEnv: func(string) (string, bool) { return "", false }})
			if !diags.HasErrors() || job != nil {
				t.Errorf("accepted: job %v", job)
			}
			located(t, files, diags)
			for _, d := range diags {
				d.Detail = strings.ReplaceAll(d.Detail, workingDir(t), "DIR") // Before lines are wrapped.
			}
			golden(t, strings.TrimSuffix(file, ".hcl")+".diag", rendered(files, diags))
		})
	}
}

func workingDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// located fails when a diagnostic has no place in one of files.
func located(t *testing.T, files Files, diags hcl.Diagnostics) {
	t.Helper()
	for _, d := range diags {
		if d.Subject == nil {
			t.Errorf("no range: %v", d)
		} else if file := files[d.Subject.Filename]; file == nil || d.Subject.End.Byte > len(file.Bytes) || d.Subject.Start.Line < 1 {
			t.Errorf("range outside of its file: %v", d)
		}
		if d.Summary == "" || d.Detail == "" {
			t.Errorf("no summary or no advice: %v", d)
		}
	}
}

// TestTopics renders what is said about a job whose topics are not what it needs.
func TestTopics(t *testing.T) {
	src := strings.Replace(minimal, "max = 4", "min     = 3\n    max     = 4\n    forward = \"none\"", 1)
	src = strings.Replace(src, `topic   = "clicks"`, "topic   = \"clicks\"\n    dead_letter = \"dead\"", 1)
	job, files, diags := Parse([]byte(src), "job.hcl", Options{})
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	many := strings.Fields("a b c d e f g h i click")
	var out strings.Builder
	for _, c := range []struct {
		name string
		info TopicInfo
	}{
		{"fine", TopicInfo{Exists: true, Partitions: 8, CleanupPolicy: "delete"}},
		{"absent", TopicInfo{Others: []string{"views", "click", "orders"}}},
		{"absent among many", TopicInfo{Others: many}},
		{"absent among none", TopicInfo{}},
		{"unreachable", TopicInfo{Err: errors.New("dial localhost:9092: connection refused")}},
		{"compacted", TopicInfo{Exists: true, Partitions: 8, CleanupPolicy: "compact,delete"}},
		{"no partitions", TopicInfo{Exists: true}},
		{"fewer partitions than max", TopicInfo{Exists: true, Partitions: 3}},
		{"fewer partitions than min", TopicInfo{Exists: true, Partitions: 2}},
		{"one partition", TopicInfo{Exists: true, Partitions: 1}},
		{"keeps records for a day", TopicInfo{Exists: true, Partitions: 8, Retention: 24 * time.Hour}},
		{"keeps records for minutes", TopicInfo{Exists: true, Partitions: 8, Retention: 30 * time.Minute}},
		{"keeps records for a week", TopicInfo{Exists: true, Partitions: 8, Retention: 7 * 24 * time.Hour}},
		{"keeps records for ever", TopicInfo{Exists: true, Partitions: 8, Retention: -1}},
	} {
		diags := job.TopicDiagnostics(c.info)
		located(t, files, diags)
		out.WriteString("== topic: " + c.name + "\n" + rendered(files, diags))
		diags = job.DeadLetterDiagnostics(c.info)
		located(t, files, diags)
		out.WriteString("== dead letter: " + c.name + "\n" + rendered(files, diags))
	}
	golden(t, filepath.Join("testdata", "topics.diag"), out.String())
}

// A start that has not come is refused at its line, whenever that is looked at; one that has come is not, nor is a place in the log.
func TestStartThatHasNotCome(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for start, future := range map[string]bool{"2026-11-22T12:00:01Z": true, "2030-01-01T00:00:00+02:00": true, "2026-11-22T12:00:00Z": false, "-10m": false, "latest": false, "earliest": false} {
		src := strings.Replace(minimal, `topic   = "clicks"`, "topic   = \"clicks\"\n    start   = \""+start+"\"", 1)
		j, files, diags := Parse([]byte(src), "job.hcl", Options{})
		if diags.HasErrors() {
			t.Fatal(rendered(files, diags))
		}
		diags = j.StartDiagnostics(now)
		located(t, files, diags)
		text := rendered(files, diags)
		if diags.HasErrors() != future || future && (!strings.Contains(text, `start   = "`+start) || !strings.Contains(text, `write "latest"`)) {
			t.Errorf("start = %q: %s", start, text)
		}
	}
}
