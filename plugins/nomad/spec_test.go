package nomad

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// Names fit Nomad's variables, whose paths a task reads by its job's name, and two workloads never share one.
func TestNames(t *testing.T) {
	long := strings.Repeat("a", 100)
	allowed := regexp.MustCompile(`^[A-Za-z0-9~/_-]{1,128}$`)
	seen := map[string]string{}
	for _, job := range []string{"ctr", "ctr-2", "ctr.v2", "ctr-v2", long, long[:99] + "b", strings.Repeat("a.", 50)} {
		for _, id := range []backend.ID{
			{Role: "worker", Rank: 3, Generation: 2}, {Role: "worker", Rank: 32, Generation: 1 << 63}, {Role: long, Rank: 1, Generation: 1}, {Role: long, Rank: 2, Generation: 1},
		} {
			name := nomadJob(job, id)
			for _, path := range append(payloadPaths(name), ledgerPath(job)) {
				if !allowed.MatchString(path) {
					t.Errorf("%s of job %s: Nomad takes no variable %q of %d characters", id, job, path, len(path))
				}
			}
			if !strings.HasPrefix(name, jobPrefix(job)) {
				t.Errorf("%q does not begin with %q", name, jobPrefix(job))
			}
			if other, taken := seen[name]; taken {
				t.Errorf("%s of job %s and %s are both %q", id, job, other, name)
			}
			seen[name] = id.String() + " of job " + job
		}
	}
	if got := nomadJob("ctr", backend.ID{Role: "worker", Rank: 3, Generation: 2}); got != "kale-ctr-worker-3-g2" {
		t.Errorf("nomadJob = %q", got)
	}
}

// Files come out of the variables as they went in, whatever their size, and no variable holds more than Nomad takes.
func TestParcel(t *testing.T) {
	noise := rand.NewChaCha8([32]byte{1})
	random := func(n int) []byte {
		out := make([]byte, n)
		_, _ = noise.Read(out) // it never fails
		return out
	}
	small := map[string][]byte{"empty": nil, "small": []byte("a"), "medium": bytes.Repeat([]byte{0, 1, 2}, 9000), "large": bytes.Repeat([]byte("0123456789"), 8000)}
	for _, tt := range []struct {
		name      string
		files     map[string][]byte
		variables int
		zipped    bool
	}{
		{"none", nil, 1, false},
		{"some", small, 3, false},
		{"as much as fits as it is", map[string][]byte{"a": random(130_000)}, 3, false},
		{"many of the same", map[string][]byte{"a": bytes.Repeat([]byte("0123456789"), 100_000), "b": nil}, 1, true},
		{"much", map[string][]byte{"a": bytes.Repeat(random(10_000), 30), "b": random(100_000)}, 3, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := settings{}.parcel(backend.Workload{ID: workerID(0, 1), Files: tt.files, Env: map[string]string{"A": "b"}}, 3)
			if err != nil {
				t.Fatal(err)
			}
			if len(p.variables) != tt.variables || p.zipped != tt.zipped {
				t.Errorf("it lies in %d variables, compressed %v; want %d, %v", len(p.variables), p.zipped, tt.variables, tt.zipped)
			}
			for i, items := range p.variables {
				size := 0
				for k, v := range items {
					size += len(k) + len(v)
					if v == "" {
						t.Errorf("variable %d has the empty item %q", i, k)
					}
				}
				if size > 65536 {
					t.Errorf("variable %d holds %d bytes", i, size)
				}
			}
			want := maps.Clone(tt.files)
			if want == nil {
				want = map[string][]byte{}
			}
			want[envFile] = []byte("# the environment of the workload\nexport A='b'\n")
			for name, content := range want {
				if got := p.content(t, name); !bytes.Equal(got, content) {
					t.Errorf("%s is %d bytes, want %d, or others", name, len(got), len(content))
				}
			}
		})
	}
	_, err := settings{}.parcel(backend.Workload{ID: workerID(0, 1), Files: map[string][]byte{"a": random(140_000)}}, 3)
	if err == nil || err.Code != backend.InvalidField || !strings.Contains(err.Message, "(140 KB)") || !strings.Contains(err.Message, "shared folder") {
		t.Errorf("parcel of 140 KB that cannot be compressed: %v; want code %q and advice", err, backend.InvalidField)
	}
}

// What the block says of the nodes wins over what the scheduler has, and start.sh's folder over both.
func TestEnvironmentOfTheBlock(t *testing.T) {
	s := settings{env: map[string]string{"KALE_ONNXRUNTIME": "/opt/nodes.so"}}
	files, err := s.payload(backend.Workload{ID: workerID(0, 1), Env: map[string]string{"A": "b", "KALE_ONNXRUNTIME": "/here/scheduler.so", backend.EnvAllocDir: "/tmp"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(files[envFile]), "# the environment of the workload\nexport A='b'\nexport KALE_ONNXRUNTIME='/opt/nodes.so'\n"; got != want {
		t.Errorf("the environment is %q, want %q", got, want)
	}
}

// content gives a file's content as it is in the parcel.
func (p parcel) content(t *testing.T, name string) []byte {
	t.Helper()
	var raw []byte
	for _, at := range p.parts[name] {
		piece, err := base64.StdEncoding.DecodeString(p.variables[at.variable][at.key])
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, piece...)
	}
	if !p.zipped {
		return raw
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is submitted never starts a second copy by Nomad's doing, and asks for what the workload needs.
func TestRender(t *testing.T) {
	s := settings{namespace: "ml", driver: "raw_exec", device: "nvidia/gpu/H100", mhzPerCPU: 2500, trainer: "/opt/kale-trainer", drift: driftReport}
	w := backend.Workload{
		ID: workerID(3, 2), Argv: []string{"/home/me/bin/kale-trainer", "worker", "${NOMAD_META_x} %{ if true }"}, Env: map[string]string{"SECRET": "hidden"},
		Files: map[string][]byte{"spec.json": []byte("hidden")}, Resources: backend.Resources{GPUs: 2, CPUMilli: 1500, MemoryBytes: 3<<30 + 1}, StopGrace: time.Hour,
	}
	job := s.render(time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC), "ctr", w)
	raw, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "hidden") {
		t.Errorf("the job shows a secret: %s", raw)
	}
	g := job.TaskGroups[0]
	task := g.Tasks[0]
	args := task.Config["args"].([]string)
	got := map[string]any{
		"type": *job.Type, "count": *g.Count, "reschedules": *g.ReschedulePolicy.Attempts, "unlimited": *g.ReschedulePolicy.Unlimited, "replace": *g.Disconnect.Replace,
		"signal": task.KillSignal, "kill timeout": *task.KillTimeout, "grace": args[1], "gpus": args[2], "argv": args[3:], "cpu": *task.Resources.CPU,
		"memory": *task.Resources.MemoryMB, "device": task.Resources.Devices[0].Name, "devices": *task.Resources.Devices[0].Count,
		"env": task.Env, "meta": []string{job.Meta[metaJob], job.Meta[metaID], job.Meta[metaGrace], job.Meta[metaSince]},
	}
	want := map[string]any{
		"type": "batch", "count": 1, "reschedules": 0, "unlimited": false, "replace": false,
		"signal": "SIGTERM", "kill timeout": 30 * time.Second, "grace": "3600.000", "gpus": "2",
		"argv": []string{"/opt/kale-trainer", "worker", "$${NOMAD_META_x} %%{ if true }"}, "cpu": 3750,
		"memory": 3073, "device": "nvidia/gpu/H100", "devices": uint64(2),
		"env": map[string]string(nil), "meta": []string{"ctr", "worker-3-g2", "1h0m0s", "2026-05-01T09:00:00Z"},
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if diff := cmp.Diff(want[k], got[k]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", k, diff)
		}
	}
	if start := task.Templates[0]; *start.EmbeddedTmpl != startScript || strings.Contains(startScript, "{{") || *start.ChangeMode != "noop" {
		t.Errorf("the shell's text is written from %q, on change %s", *start.EmbeddedTmpl, *start.ChangeMode)
	}
	for _, tmpl := range task.Templates[1:] {
		if *tmpl.Perms != "0600" || !strings.HasPrefix(*tmpl.DestPath, "secrets/") || *tmpl.ChangeMode != "noop" {
			t.Errorf("a file is written as %s with mode %s, on change %s", *tmpl.DestPath, *tmpl.Perms, *tmpl.ChangeMode)
		}
	}
}

// In a container the program is the image's, is started by our shell whatever the image starts by itself, listens where the
// node does, and has the shared folder where the job file says that it is.
func TestRenderDocker(t *testing.T) {
	s := settings{
		namespace: "ml", driver: "docker", image: "registry.example/kale:1", user: "trainer", trainer: trainerName, device: "nvidia/gpu", mhzPerCPU: 1000,
		volumes: []volume{{"jobs", "/mnt/shared", false}, {"data", "/data", true}},
	}
	job := s.render(time.Date(2026, 5, 1, 9, 0, 0, 0, time.UTC), "ctr", backend.Workload{
		ID: workerID(0, 1), Argv: []string{"/home/me/bin/kale-trainer", "worker"}, Resources: backend.Resources{GPUs: 1}, Files: map[string][]byte{"spec.json": nil},
	})
	g := job.TaskGroups[0]
	task := g.Tasks[0]
	args := task.Config["args"].([]string)
	if diff := cmp.Diff([]string{"${NOMAD_TASK_DIR}/" + startFile, "kale-trainer", "worker"}, []string{args[0], args[3], args[4]}); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	delete(task.Config, "args")
	if diff := cmp.Diff(map[string]any{"image": "registry.example/kale:1", "entrypoint": []string{"/bin/sh"}, "network_mode": "host"}, task.Config); diff != "" {
		t.Errorf("configuration of the driver (-want +got):\n%s", diff)
	}
	for _, mount := range task.VolumeMounts {
		v := g.Volumes[*mount.Volume]
		if v == nil || v.Type != "host" || v.ReadOnly != *mount.ReadOnly || v.ReadOnly != (v.Source == "data") || (*mount.Destination == "/data") != (v.Source == "data") {
			t.Errorf("%+v of the volume %+v", mount, v)
		}
	}
	if task.User != "trainer" || len(task.VolumeMounts) != 2 || len(g.Volumes) != 2 {
		t.Errorf("user %q, %d mounts of %d volumes", task.User, len(task.VolumeMounts), len(g.Volumes))
	}
}

func TestLastLines(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 2, ""}, {"a\nb\nc\n", 0, "a\nb\nc\n"}, {"a\nb\nc\n", 1, "c\n"}, {"a\nb\nc", 1, "c"}, {"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\n", 5, "a\nb\n"}, {"\n\n", 1, "\n"},
	} {
		if got := string(lastLines([]byte(tt.text), tt.n)); got != tt.want {
			t.Errorf("the last %d lines of %q are %q, want %q", tt.n, tt.text, got, tt.want)
		}
	}
}

// What is away keeps new workloads off its node and is not purged; of the rest, the oldest beyond the limit are.
func TestOutdated(t *testing.T) {
	var views []view
	for i := range keepReleased + 3 {
		status := api.AllocClientStatusComplete
		if i == 1 {
			status = api.AllocClientStatusLost
		}
		views = append(views, view{
			id: workerID(0, uint64(i+1)), released: true, how: backend.Drained,
			job:    &api.JobListStub{ID: string(rune('A' + i)), Stop: true, SubmitTime: int64(i + 1)},
			allocs: []*api.AllocationListStub{{ClientStatus: status}},
		})
	}
	views[5].released = false
	var got []string
	for _, v := range outdated(views) {
		got = append(got, v.job.ID)
	}
	if diff := cmp.Diff([]string{"A"}, got); diff != "" {
		t.Errorf("to be purged (-want +got):\n%s", diff)
	}
}
