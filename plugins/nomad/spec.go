package nomad

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// startScript runs beside the program on the node, from the file startFile in the task's folder: as an argument it would fill every list of the node's processes.
//
//go:embed start.sh
var startScript string

const startFile = "kale-start.sh"

// What Nomad reserves where the workload asks for nothing in particular.
const (
	leastMHz = 100
	leastMiB = 300
)

// maxKillTimeout is the longest grace that Nomad's clients grant unless they are configured otherwise; start.sh keeps
// longer ones.
const maxKillTimeout = 30 * time.Second

// lostAfter is how long Nomad calls what runs on a node that does not answer unknown; after it, lost, and it would replace
// it by itself: the scheduler gives up what nobody hears long before that (core/hung.go).
const lostAfter = 365 * 24 * time.Hour

// Crashes start the program again for ever: a dozen times at once, then at the pace of the interval.
const (
	restartDelay    = 500 * time.Millisecond
	restartAttempts = 12
	restartInterval = 30 * time.Second
)

func graceOf(w backend.Workload) time.Duration {
	if w.StopGrace == 0 {
		return backend.DefaultStopGrace
	}
	return w.StopGrace
}

// render makes the workload's Nomad job, to be submitted now. It holds no content of Files, and no environment.
func (s settings) render(now time.Time, job string, w backend.Workload) *api.Job {
	id := nomadJob(job, w.ID)
	out := &api.Job{
		ID: &id, Name: &id, Type: ptr(api.JobTypeBatch), Priority: s.priority, Datacenters: s.datacenters, NodePool: s.nodePool,
		Namespace: &s.namespace, Constraints: s.constraints,
		Meta: map[string]string{
			metaJob: job, metaID: w.ID.String(), metaGrace: graceOf(w).String(), metaSince: now.UTC().Format(time.RFC3339Nano),
		},
		TaskGroups: []*api.TaskGroup{s.group(w)},
	}
	s.addTemplates(out.TaskGroups[0].Tasks[0], id, w)
	out.Meta[metaSpec] = digest(out)
	return out
}

// group makes the one task group of a workload, without its templates.
func (s settings) group(w backend.Workload) *api.TaskGroup {
	g := api.NewTaskGroup(groupName, 1)
	g.RestartPolicy = &api.RestartPolicy{
		Attempts: ptr(restartAttempts), Interval: ptr(restartInterval), Delay: ptr(restartDelay), Mode: ptr("delay"), RenderTemplates: ptr(false),
	}
	g.ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Interval: ptr(time.Duration(0)), Unlimited: ptr(false)}
	g.Disconnect = &api.DisconnectStrategy{LostAfter: ptr(lostAfter), Replace: ptr(false), Reconcile: ptr(api.ReconcileOptionKeepOriginal)}
	g.EphemeralDisk = &api.EphemeralDisk{SizeMB: ptr(100)}
	g.Tasks = []*api.Task{s.task(w)}
	s.mount(g, g.Tasks[0])
	return g
}

func (s settings) task(w backend.Workload) *api.Task {
	t := api.NewTask(taskName, s.driver)
	t.User = s.user
	argv := slices.Clone(w.Argv)
	if path.Base(argv[0]) == trainerName && s.trainer != "" {
		argv[0] = s.trainer // the scheduler names it by the path that it has itself
	}
	grace := graceOf(w)
	args := []string{"${NOMAD_TASK_DIR}/" + startFile, fmt.Sprintf("%.3f", grace.Seconds()), strconv.Itoa(w.Resources.GPUs)}
	for _, a := range argv {
		args = append(args, literal(a))
	}
	t.Config = map[string]any{"command": "/bin/sh", "args": args}
	if s.driver == "docker" { // whatever the image starts by itself; and reachable at the node's address, as others reach it
		t.Config = map[string]any{"image": s.image, "entrypoint": []string{"/bin/sh"}, "args": args, "network_mode": "host"}
	}
	t.Templates = []*api.Template{{EmbeddedTmpl: ptr(startScript), DestPath: ptr("local/" + startFile), Perms: ptr("0644"), ChangeMode: ptr("noop")}}
	t.KillSignal = "SIGTERM"
	t.KillTimeout = ptr(min(grace+time.Second, maxKillTimeout)) // start.sh ends it at its grace; this is for when it cannot
	t.LogConfig = &api.LogConfig{MaxFiles: ptr(4), MaxFileSizeMB: ptr(8)}
	if s.artifact != nil {
		t.Artifacts = []*api.TaskArtifact{s.artifact}
	}
	t.Resources = &api.Resources{
		CPU:      ptr(max(w.Resources.CPUMilli*s.mhzPerCPU/1000, leastMHz)),
		MemoryMB: ptr(max(int((w.Resources.MemoryBytes+1<<20-1)>>20), leastMiB)),
	}
	if w.Resources.MemoryBytes > 0 {
		t.Resources.MemoryMB = ptr(max(int((w.Resources.MemoryBytes+1<<20-1)>>20), 10))
	}
	if w.Resources.GPUs > 0 {
		t.Resources.Devices = []*api.RequestedDevice{{Name: s.device, Count: ptr(uint64(w.Resources.GPUs))}}
	}
	return t
}

// literal keeps Nomad from reading ${…} and %{…} in a driver's configuration as its own.
func literal(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "${", "$${"), "%{", "%%{")
}

// digest gives what tells one specification from another.
func digest(job *api.Job) string {
	raw, err := json.Marshal(job.TaskGroups)
	if err != nil { // plain data
		panic("nomad: write a job as JSON: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}
