package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
)

const examples = "../../examples"

func rendered(files Files, diags hcl.Diagnostics) string {
	var out bytes.Buffer
	if err := Render(&out, files, diags, 100, false); err != nil {
		panic(err)
	}
	return out.String()
}

func TestExamplesLoadWithoutDiagnostics(t *testing.T) {
	for file, vars := range map[string]map[string]string{
		"ctr.hcl":  {},
		"demo.hcl": {"brokers": "localhost:9092", "dir": "checkpoints"},
	} {
		job, files, diags := Load(filepath.Join(examples, file), vars, nil)
		if len(diags) > 0 || job == nil {
			t.Errorf("%s:\n%s", file, rendered(files, diags))
		}
	}
}

func TestDemoIsScaledAsItSays(t *testing.T) {
	job, files, diags := Load(filepath.Join(examples, "demo.hcl"), map[string]string{"brokers": "b:1", "dir": "cp"}, nil)
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	dir, err := filepath.Abs(examples)
	if err != nil {
		t.Fatal(err)
	}
	got := []any{job.SLO.MaxLag, job.Stream.Brokers, job.Forecast.Season, job.Workers.EmulateStep, job.Workers.Max, job.Model.Hidden,
		job.Model.Optimiser, job.Checkpoint.Dir, job.Autoscale.Fallback.LagOver, job.Throughput.Theta}
	want := []any{2 * time.Second, []string{"b:1"}, []time.Duration{2 * time.Minute}, 160 * time.Millisecond, 6, []int{32, 16},
		Optimiser{Kind: "adagrad", LearningRate: 0.05}, filepath.Join(dir, "cp"), time.Second, []float64{0.00166667, 0, 0}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	const password = "open-sesame"
	src := strings.Replace(minimal, `topic   = "clicks"`, `topic   = "clicks"
    sasl {
      mechanism = "scram-sha-256"
      username  = "kale"
      password  = env("PASSWORD")
    }`, 1)
	src = strings.Replace(src, `backend "local" {`, `backend "local" {
    token = env("PASSWORD")`, 1)
	job, files, diags := Parse([]byte(src), "job.hcl", Options{LookupEnv: func(string) (string, bool) { return password, true }})
	if diags.HasErrors() {
		t.Fatal(rendered(files, diags))
	}
	if job.Stream.SASL.Password.Reveal() != password {
		t.Error("Reveal does not give the password")
	}
	encoded, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	shown := string(encoded)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		shown += fmt.Sprintf(verb, job.Stream.SASL.Password) + fmt.Sprintf(verb, *job.Stream.SASL)
	}
	if strings.Contains(shown, password) || strings.Contains(shown, fmt.Sprintf("%x", password)) {
		t.Errorf("the password is shown in %s", shown)
	}
	if !strings.Contains(string(job.Backend.Source), fmt.Sprintf("token = %q", password)) {
		t.Errorf("the plugin does not get its token: %s", job.Backend.Source)
	}
}

// minimal is a job with required attributes only.
const minimal = `
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
`

// TestExamplesAreFormatted keeps the files that people copy in the usual form.
func TestExamplesAreFormatted(t *testing.T) {
	for _, file := range []string{"ctr.hcl", "demo.hcl", "pool.hcl"} {
		src, err := os.ReadFile(filepath.Join(examples, file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(hclwrite.Format(src)), string(src)); diff != "" {
			t.Errorf("%s (-formatted +file):\n%s", file, diff)
		}
	}
}

// TestCountingNeedsNoModel: a counting job decodes no record, so it needs neither features nor layers; every other kind does.
func TestCountingNeedsNoModel(t *testing.T) {
	src := func(kind string) []byte {
		return []byte(strings.Replace(minimal, `    sparse = ["user", "item"]
  }`, `  }
  model {
    kind   = "`+kind+`"
    hidden = []
  }`, 1))
	}
	job, files, diags := Parse(src(ModelCounting), "job.hcl", Options{})
	if len(diags) > 0 {
		t.Fatal(rendered(files, diags))
	}
	if job.Model.Kind != ModelCounting || len(job.Features.Sparse)+len(job.Features.Dense)+len(job.Model.Hidden) != 0 {
		t.Errorf("model %+v, features %+v", job.Model, job.Features)
	}
	for _, kind := range []string{ModelLR, ModelDeepFM} {
		if _, _, diags := Parse(src(kind), "job.hcl", Options{}); !diags.HasErrors() {
			t.Errorf("%s is accepted without features", kind)
		}
	}
}
