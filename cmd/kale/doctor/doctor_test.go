package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kale-sched/kale/core/api"
	"github.com/kale-sched/kale/core/job"
)

// says are findings as "state check".
func says(fs []Finding) (out []string) {
	for _, f := range fs {
		out = append(out, string(f.State)+" "+f.Check)
	}
	return out
}

// Groups run at the same time and are reported in their own order; what builds on a failure is not tried; a trial that hangs, whether it
// heeds its context or not, is a failure after its limit, and keeps nothing else waiting.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after := func(d time.Duration, check string, s State) trial {
			return trial{check: check, limit: time.Minute, try: func(context.Context) []Finding {
				time.Sleep(d)
				return []Finding{ok(check, "done").but(s, "")}
			}}
		}
		vital := after(time.Second, "base", Fail)
		vital.vital = true
		forever := make(chan struct{})
		ended := false
		began := time.Now()
		got := run(t.Context(), []group{
			{trials: []trial{after(3*time.Second, "slow", OK), after(0, "quick", Warn)}, end: func() { ended = true }},
			{trials: []trial{vital, after(0, "on base", OK), after(0, "on that", OK)}},
			{trials: []trial{after(time.Second, "bad", Fail), after(0, "after bad", OK)}},
			{trials: []trial{
				{check: "heeds", limit: 4 * time.Second, try: func(ctx context.Context) []Finding {
					<-ctx.Done()
					return []Finding{ok("heeds", "it heard").but(Fail, "")}
				}},
				{check: "deaf", limit: 5 * time.Second, try: func(context.Context) []Finding { <-forever; return nil }},
			}},
		}, nil)
		want := []string{"ok slow", "warn quick", "fail base", "skip on base", "skip on that", "fail bad", "ok after bad", "fail heeds", "fail deaf"}
		if diff := cmp.Diff(want, says(got)); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(began); took != 10*time.Second { // 4 s, then 5 s and a moment
			t.Errorf("it took %v", took)
		}
		if !ended || !strings.Contains(got[8].Says, "no answer within 5s") || got[8].Do == "" || got[7].Says != "it heard" || !strings.Contains(got[3].Says, `"base"`) {
			t.Errorf("ended %v: %+v", ended, got)
		}
		if got[0].Took != 3*time.Second || !Failed(got) || Failed(got[:2]) {
			t.Errorf("took %v", got[0].Took)
		}
		close(forever)
	})
}

const patientJob = `
job "ctr" {
  stream "kafka" {
    brokers = [%s]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user"]
  }
  workers {
    min  = 2
    max  = 4
    gpus = 1
  }
  throughput {
    theta = [0.001, 0, 0]
  }
  checkpoint {
    dir = %q
  }
  backend "fake" {
  }
}
`

func patient(t *testing.T, brokers ...string) Patient {
	t.Helper()
	if len(brokers) == 0 {
		brokers = []string{"127.0.0.1:1"}
	}
	j, _, diags := job.Parse(fmt.Appendf(nil, patientJob, `"`+strings.Join(brokers, `", "`)+`"`, filepath.Join(t.TempDir(), "cp")), "ctr.hcl", job.Options{})
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return Patient{Job: j, StateDir: filepath.Join(t.TempDir(), "ctr"), Log: slog.New(slog.DiscardHandler)}
}

func TestMachine(t *testing.T) {
	if f := ports(t.Context())[0]; f.State != OK {
		t.Errorf("ports: %+v", f)
	}
	if f := clock(time.Unix(86400, 0)); f.State != Fail {
		t.Errorf("a clock that was never set: %+v", f)
	}
	if f := clock(time.Now()); f.State == Fail {
		t.Errorf("this clock: %+v", f)
	}
	now := time.Unix(1_800_000_000, 0)
	for age, want := range map[time.Duration]State{0: OK, time.Hour: OK, -time.Second: OK, -time.Minute: Warn} {
		if f := datedBy(now, now.Add(-age).UnixNano(), 0, "")[0]; f.State != want {
			t.Errorf("a newest record of %v ago: %+v, want %s", age, f, want)
		}
	}
	if f := datedBy(now, time.UnixMilli(now.Unix()).UnixNano(), 0, "")[0]; f.State != Warn || !strings.Contains(f.Says, "dated 1970-01-") {
		t.Errorf("seconds taken for milliseconds: %+v", f)
	}
	for _, tt := range []struct {
		newest int64
		skew   time.Duration
		by     string
		state  State
		says   string
	}{
		{now.Add(-2 * time.Minute).UnixNano(), -2 * time.Minute, "CreateTime", Warn, "records are dated 2m behind this machine's clock when they enter: the producers' clock is behind, or they write that late"},
		{0, -2 * time.Minute, "LogAppendTime", Warn, "the brokers' clock that is behind"},
		{0, 2 * time.Minute, "LogAppendTime", Warn, "2m ahead of this machine's clock, by the brokers' clock"},
		{now.UnixNano(), 0, "LogAppendTime", OK, "by the brokers' clock"},
	} {
		if f := datedBy(now, tt.newest, tt.skew, tt.by)[0]; f.State != tt.state || !strings.Contains(f.Says, tt.says) {
			t.Errorf("%+v: %+v", tt, f)
		}
	}
	if f := datedBy(now, 0, 0, "")[0]; f.State != Skip {
		t.Errorf("no record: %+v", f)
	}

	p := patient(t)
	dir, err := os.MkdirTemp("", "doc") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	p.StateDir = dir
	if f := p.socket(t.Context())[0]; f.State != OK || !strings.Contains(f.Says, "is free") {
		t.Errorf("a free socket: %+v", f)
	}
	nowhere := p
	nowhere.StateDir = "/proc/kale"
	if f := nowhere.socket(t.Context()); len(f) > 0 {
		t.Errorf("of a folder that cannot be: %+v", f)
	}
	path, err := api.SocketPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if f := p.socket(t.Context())[0]; f.State != Warn || !strings.Contains(f.Says, "has not answered within") {
		t.Errorf("one whose scheduler is silent: %+v", f)
	}
	srv := &http.Server{Handler: http.NotFoundHandler()}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }() // ends with the server
	if f := p.socket(t.Context())[0]; f.State != OK || !strings.Contains(f.Says, "a scheduler of this job answers") {
		t.Errorf("one that is taken: %+v", f)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
	<-done
	t.Setenv("XDG_RUNTIME_DIR", "/"+strings.Repeat("x", 200))
	p.StateDir = "/" + strings.Repeat("y", 200)
	if f := p.socket(t.Context())[0]; f.State != Fail || f.Do == "" {
		t.Errorf("one whose path is too long: %+v", f)
	}
}
