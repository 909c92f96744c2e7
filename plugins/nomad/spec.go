package nomad

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// startScript runs beside the program on the node.
//
//go:embed start.sh
var startScript string

// What Nomad reserves where the workload asks for nothing in particular.
const (
	leastMHz = 100
	leastMiB = 300
)

// maxKillTimeout is the longest grace that Nomad's clients grant unless they are configured otherwise; start.sh keeps
// longer ones.
const maxKillTimeout = 30 * time.Second

// lostAfter is how long Nomad calls what runs on a node that does not answer unknown; after it, lost, and it would replace
// it by itself: the scheduler decides long before that.
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
	args := append([]string{"-c", startScript, "kale", fmt.Sprintf("%.3f", grace.Seconds()), strconv.Itoa(w.Resources.GPUs)}, argv...)
	for i, a := range args {
		args[i] = literal(a)
	}
	t.Config = map[string]any{"command": "/bin/sh", "args": args}
	if s.driver == "docker" { // whatever the image starts by itself; and reachable at the node's address, as others reach it
		t.Config = map[string]any{"image": s.image, "entrypoint": []string{"/bin/sh"}, "args": args, "network_mode": "host"}
	}
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

// envFile is the file, among those of the payload, that start.sh reads. No workload's file may have its name.
const envFile = ".env"

// payload gives what the task finds in its secrets folder: the workload's files and its environment as a shell reads it.
func (s settings) payload(w backend.Workload) (map[string][]byte, *backend.Error) {
	env := map[string]string{}
	maps.Copy(env, w.Env)
	maps.Copy(env, s.env) // the block has the last word: paths on the nodes differ from the scheduler's
	var b strings.Builder
	b.WriteString("# the environment of the workload\n")
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !variableName.MatchString(name) {
			return nil, backend.Invalidf("env", "workload %s: environment variable %q: a shell on the node sets it, so it has letters, digits and '_' only", w.ID, name)
		}
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(env[name], "'", `'\''`))
	}
	files := map[string][]byte{envFile: []byte(b.String())}
	for name, content := range w.Files {
		if name == envFile || strings.Contains(name, "${") {
			return nil, backend.Invalidf("files", "workload %s: file %q: choose another name", w.ID, name)
		}
		files[name] = content
	}
	return files, nil
}

// maxVariable is what one variable may hold, in bytes of keys and values, with room to spare below Nomad's 64 KiB.
const maxVariable = 60_000

// part is where a piece of a file lies.
type part struct {
	variable int    // which of the payload's variables
	key      string // in it
}

// pack lays the files into as few variables as they need; parts gives, by file, where its pieces are.
func pack(id backend.ID, files map[string][]byte, limit int) (variables []map[string]string, parts map[string][]part, err *backend.Error) {
	parts = map[string][]part{}
	variables = []map[string]string{{}}
	room := maxVariable
	for i, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		for piece := 0; len(content) > 0; piece++ {
			if room < 1000 {
				if len(variables) == limit {
					return nil, nil, backend.Invalidf("files", "workload %s: its files and environment are too large for Nomad's variables, which hold about %d KB of it; put large content on the shared folder and name its path", id, limit*maxVariable*3/4/1000)
				}
				variables, room = append(variables, map[string]string{}), maxVariable
			}
			n := min(len(content), (room-100)/4*3)
			key := fmt.Sprintf("f%d_%d", i, piece)
			text := base64.StdEncoding.EncodeToString(content[:n])
			content = content[n:]
			variables[len(variables)-1][key] = text
			room -= len(key) + len(text)
			parts[name] = append(parts[name], part{len(variables) - 1, key})
		}
	}
	return variables, parts, nil
}

// addTemplates makes Nomad's client write the payload's files.
func (s settings) addTemplates(t *api.Task, nomadJob string, w backend.Workload) {
	files, err := s.payload(w)
	if err != nil {
		return // submit refuses the workload for the same reason
	}
	paths := payloadPaths(nomadJob)
	_, parts, err := pack(w.ID, files, len(paths))
	if err != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var text strings.Builder
		for _, p := range parts[name] {
			fmt.Fprintf(&text, `{{ with nomadVar "%s" }}{{ .%s.Value | base64Decode }}{{ end }}`, paths[p.variable], p.key)
		}
		if text.Len() == 0 {
			text.WriteString(`{{ "" }}`) // an empty file: Nomad takes no empty template
		}
		tmpl := &api.Template{
			EmbeddedTmpl: ptr(text.String()), DestPath: ptr("secrets/kale/" + name), Perms: ptr("0600"), ChangeMode: ptr("noop"),
		}
		if s.driver == "exec" && s.user == "" { // Nomad runs it as nobody then
			tmpl.Uid, tmpl.Gid = ptr(65534), ptr(65534)
		}
		t.Templates = append(t.Templates, tmpl)
	}
}
