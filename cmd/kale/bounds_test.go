package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/trainer"
	"github.com/kale-sched/kale/trainer/ps"
)

// TestOneBoundOfDenseValues: what is said of records before a job runs is what workers do with them.
func TestOneBoundOfDenseValues(t *testing.T) {
	if job.MaxDense != trainer.MaxDense {
		t.Errorf("a numeric field is bounded by %g for the job file, and by %g for workers", job.MaxDense, trainer.MaxDense)
	}
}

// TestModelsThatPassStart: whatever model a job file passes with, the processes of a job accept.
func TestModelsThatPassStart(t *testing.T) {
	fields := func(letter string, n int) string {
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%q", letter+fmt.Sprint(i))
		}
		return "[" + strings.Join(names, ", ") + "]"
	}
	sparse := map[int]string{0: "[]", 1: fields("s", 1), 4: fields("s", 4), 1 << 14: fields("s", 1<<14), 1<<14 + 1: fields("s", 1<<14+1)}
	dense := map[int]string{0: "[]", 2: fields("d", 2), 1<<14 + 1: fields("d", 1<<14+1)}
	layers := func(n, width int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(fmt.Sprint(width, ", "), n), ", ") + "]"
	}
	hidden := []string{"[]", "[1]", "[64, 32]", "[65536]", "[65536, 65536]", layers(64, 8), layers(65, 8), "[65537]"}
	rng := rand.New(rand.NewPCG(1, 1))
	passed, refused := 0, 0
	for range 3000 {
		pick := func(of ...string) string { return of[rng.IntN(len(of))] }
		ns, nd := []int{0, 1, 4, 4, 1 << 14, 1<<14 + 1}[rng.IntN(6)], []int{0, 2, 2, 1<<14 + 1}[rng.IntN(4)]
		if ns+nd > 100 && rng.IntN(10) != 0 { // these take long to read
			ns, nd = 4, 2
		}
		text := fmt.Sprintf(`job "a" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = %s
    dense  = %s
  }
  model {
    kind          = %q
    embedding_dim = %s
    hidden        = %s
    batch         = %s
    l2            = %s
    tablets       = %s
    optimiser %q {
      learning_rate = %s
    }
  }
  workers {
    max = 4
  }
  servers {
    count = %s
  }
  throughput {
    theta = [0.001, 0, 0]
  }
  checkpoint {
    dir = "ckpt"
  }
  backend "local" {}
}
`, sparse[ns], dense[nd], pick(job.ModelLR, job.ModelDeepFM, job.ModelDeepFM), pick("1", "16", "4096", "4097"), pick(hidden...),
			pick("64", "1024", "262144", "1048576"), pick("0", "1e-50", "0.5", "0.99", "0.9999999999", "1", "1000", "1e300"), pick("1", "64", "4096"),
			pick("adagrad", "adam", "sgd"), pick("1e-50", "1e-12", "0.1", "100", "1e39"), pick("1", "64", "65"))
		j, _, diags := job.Parse([]byte(text), "a.hcl", job.Options{})
		if diags.HasErrors() {
			if refused == 0 && strings.Contains(diags.Error(), "Unsupported") {
				t.Fatal(diags)
			}
			refused++
			continue
		}
		passed++
		spec := core.TrainSpec(j, "token")
		if _, err := trainer.ModelSpec(spec); err != nil {
			t.Errorf("%v:\n%.2000s", err, text)
		}
		if _, err := trainer.StateLayout(spec); err != nil {
			t.Errorf("%v:\n%.2000s", err, text)
		}
		if err := (ps.Optimiser{Kind: spec.GetModel().GetOptimiser(), LearningRate: spec.GetModel().GetLearningRate()}).Validate(); err != nil {
			t.Errorf("%v:\n%.2000s", err, text)
		}
	}
	if passed < 100 || refused < 100 {
		t.Errorf("%d passed and %d were refused: such models show little", passed, refused)
	}
}
