package core

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// startedWith is what of the job file processes have for as long as they live, for people, by its path in the file: "model.batch": "128". Secrets are not in it.
type startedWith map[string]string

// started is what some of the processes that are wanted were started with. With is nil where that is not known: a scheduler without the state of the one that
// had started them found them running.
type started struct {
	With      startedWith  `json:"with"`
	Processes []backend.ID `json:"processes"`
}

// held is what processes do with a part of the job file that they were started with.
type held struct {
	path string // in the job file; "": that part is not told of
	role string // the processes that go by it; "": all
	why  string // it is not told of
	// follows is the part from which it is derived where the file does not say it: when that is told of, this is not.
	follows string
}

// heldFields are the leaves of rpc.TrainSpec, by message and field, each with what is told of it when the job file says something else than what runs was started with.
var heldFields = map[string]held{
	"TrainSpec.job":               {why: "it names the job: another name is another job"},
	"TrainSpec.fingerprint":       {why: "CheckCheckpoint names what it is of"},
	"TrainSpec.token":             {why: "a secret, which no file says"},
	"TrainSpec.checkpoint_dir":    {why: "CheckRunning refuses another one"},
	"TrainSpec.servers":           {why: "CheckCheckpoint refuses another one"},
	"TrainSpec.tablets":           {why: "CheckCheckpoint refuses another one"},
	"TrainSpec.snapshot_every_ms": {path: "checkpoint.every", role: backend.RoleServer},
	"TrainSpec.snapshot_keep":     {path: "checkpoint.keep", role: backend.RoleServer},
	"TrainSpec.lease_timeout_ms":  {why: "no file says it"},
	"TrainSpec.beat_ms":           {why: "no file says it"},
	"TrainSpec.grace_ms":          {why: "no file says it"},
	"TrainSpec.unsafe_no_dedup":   {why: "no file says it"},

	"NetworkSpec.rendezvous": {why: "the scheduler listens where it did before, and processes know the checkpoint folder too"},
	"NetworkSpec.interface":  {path: "network.interface"},
	"NetworkSpec.first_port": {path: "network.ports"},
	"NetworkSpec.last_port":  {path: "network.ports"},

	"StreamSpec.brokers":           {path: "stream.brokers"},
	"StreamSpec.topic":             {why: "CheckCheckpoint refuses another one"},
	"StreamSpec.start":             {why: "CheckCheckpoint says that no later start changes it"},
	"StreamSpec.on_lost":           {why: "the chief is told (keepPolicies), or it is told of (untold)"},
	"StreamSpec.dead_letter":       {path: "stream.dead_letter", role: backend.RoleWorker},
	"StreamSpec.on_undecodable":    {why: "the chief is told (keepPolicies), or it is told of (untold)"},
	"StreamSpec.no_commit":         {why: "no file says it"},
	"TLSSpec.ca_file":              {path: "stream.tls.ca_file"},
	"TLSSpec.cert_file":            {path: "stream.tls.cert_file"},
	"TLSSpec.key_file":             {path: "stream.tls.key_file"},
	"TLSSpec.server_name":          {path: "stream.tls.server_name"},
	"TLSSpec.insecure_skip_verify": {path: "stream.tls.insecure_skip_verify"},
	"SASLSpec.mechanism":           {path: "stream.sasl.mechanism"},
	"SASLSpec.username":            {path: "stream.sasl.username"},
	"SASLSpec.password":            {why: "a secret, which is not written down"},

	"FeatureSpec.format": {path: "features.format", role: backend.RoleWorker},
	"FeatureSpec.label":  {why: "CheckCheckpoint refuses another one"},
	"FeatureSpec.sparse": {why: "CheckCheckpoint refuses others"},
	"FeatureSpec.dense":  {why: "CheckCheckpoint refuses others"},

	"ModelSpec.kind":          {why: "CheckCheckpoint refuses another one"},
	"ModelSpec.embedding_dim": {why: "CheckCheckpoint refuses another one"},
	"ModelSpec.hidden":        {why: "CheckCheckpoint refuses others"},
	"ModelSpec.batch":         {path: "model.batch", role: backend.RoleWorker},
	"ModelSpec.l2":            {path: "model.l2", role: backend.RoleWorker},
	"ModelSpec.seed":          {why: "CheckCheckpoint says what a later one does"},
	"ModelSpec.optimiser":     {why: "CheckCheckpoint refuses another one"},
	"ModelSpec.learning_rate": {path: "model.optimiser.learning_rate", role: backend.RoleServer},

	"WorkerSpec.chunk":           {path: "workers.chunk", role: backend.RoleWorker},
	"WorkerSpec.queue":           {path: "workers.queue", role: backend.RoleWorker, follows: "model.batch"},
	"WorkerSpec.window":          {why: "no file says it"},
	"WorkerSpec.linger_ms":       {path: "model.linger", role: backend.RoleWorker},
	"WorkerSpec.emulate_step_ms": {path: "workers.emulate_step", role: backend.RoleWorker},
	"WorkerSpec.threads":         {why: "it is workers.cpu, which a worker's resources tell"},
	"WorkerSpec.forward":         {path: "workers.forward", role: backend.RoleWorker},
	"WorkerSpec.device":          {why: "it is workers.gpus, which a worker's resources tell"},
}

// nouns are what processes of a role are called.
var nouns = map[string]string{backend.RoleWorker: "worker", backend.RoleServer: "server", "": "process"}

// startsWith is what a process of the job that is started now has for as long as it lives.
func startsWith(j *job.Job) startedWith {
	spec := TrainSpec(j, "")
	spec.Network = networkSpec(j, "")
	with := startedWith{}
	with.take(spec.ProtoReflect().Descriptor(), spec.ProtoReflect())
	w := &workloads{job: j}
	for block, r := range map[string]backend.Resources{"workers": w.worker(0, 1).Resources, "servers": w.server(0, 1).Resources} {
		with[block+".gpus"] = strconv.Itoa(r.GPUs)
		with[block+".cpu"] = strconv.FormatFloat(float64(r.CPUMilli)/1000, 'g', -1, 64)
		with[block+".memory"] = exactSize(r.MemoryBytes)
	}
	with[backendBlock] = blockDigest(j.Backend.Source)
	return with
}

// backendBlock is the path under which startedWith has a digest of the whole backend block, which the core does not read and in which may be secrets.
const backendBlock = "backend"

// blockDigest is the same for two texts of a block that differ in comments and spaces alone.
func blockDigest(source []byte) string {
	sum := sha256.New()
	tokens, _ := hclsyntax.LexConfig(source, "", hcl.InitialPos) // who decodes it says what is wrong with it
	for _, t := range tokens {
		if t.Type != hclsyntax.TokenComment && t.Type != hclsyntax.TokenNewline {
			fmt.Fprintf(sum, "%d %q ", t.Type, t.Bytes)
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// take adds the leaves of a message; of one that is absent they are empty.
func (with startedWith) take(d protoreflect.MessageDescriptor, m protoreflect.Message) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.Message() != nil {
			with.take(f.Message(), m.Get(f).Message())
			continue
		}
		path := heldFields[heldName(f)].path
		if path == "" {
			continue
		}
		says := heldWords(f, m.Get(f))
		if first, two := with[path]; two { // the ends of a range
			if says = first + "-" + says; says == "0-0" {
				says = "any"
			}
		}
		with[path] = says
	}
}

// heldName is a leaf's name in heldFields.
func heldName(f protoreflect.FieldDescriptor) string {
	return string(f.Parent().Name()) + "." + string(f.Name())
}

// heldWords writes a leaf as the job file does.
func heldWords(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case f.IsList():
		list := make([]string, v.List().Len())
		for i := range list {
			list[i] = v.List().Get(i).String()
		}
		raw, err := json.Marshal(list)
		if err != nil {
			panic("core: the words of a list: " + err.Error()) // texts always have a JSON form
		}
		return string(raw)
	case strings.HasSuffix(string(f.Name()), "_ms"):
		return job.FormatDuration(time.Duration(v.Int()) * time.Millisecond)
	case f.Kind() == protoreflect.StringKind && v.String() == "":
		return "none"
	case f.Kind() == protoreflect.StringKind:
		return strconv.Quote(v.String())
	case f.Kind() == protoreflect.FloatKind:
		return strconv.FormatFloat(v.Float(), 'g', -1, 32)
	}
	return v.String()
}

// exactSize is a size in words that say it exactly.
func exactSize(n int64) string {
	s := job.FormatSize(n)
	if back, err := job.ParseSize(s); err == nil && back == n {
		return s
	}
	return fmt.Sprintf("%dB", n)
}

// note takes down what processes are about to be started with, and forgets those that are not wanted any more; it says whether that is news.
func (d *desired) note(ws []backend.Workload, with startedWith) (changed bool) {
	var ids []backend.ID
	for _, w := range ws {
		if i := slices.IndexFunc(d.Started, func(s started) bool { return slices.Contains(s.Processes, w.ID) }); i < 0 || !maps.Equal(d.Started[i].With, with) {
			ids = append(ids, w.ID)
		}
	}
	if len(ids) == 0 {
		return false
	}
	var now []started
	at := -1
	for _, s := range d.Started {
		s.Processes = slices.DeleteFunc(slices.Clone(s.Processes), func(id backend.ID) bool { return slices.Contains(ids, id) || !d.wants(id) && !d.follows(id) })
		if len(s.Processes) == 0 {
			continue
		}
		if now = append(now, s); maps.Equal(s.With, with) {
			at = len(now) - 1
		}
	}
	if at < 0 {
		now, at = append(now, started{With: with}), len(now)
	}
	now[at].Processes = append(now[at].Processes, ids...)
	d.Started = now
	return true
}

// wants says that a process is wanted, in this generation.
func (d *desired) wants(id backend.ID) bool {
	if id.Role == backend.RoleServer {
		return d.Servers[id.Rank] == id.Generation
	}
	return d.Workers[id.Rank] == id.Generation && slices.Contains(d.wantedRanks(), id.Rank)
}

// noted says that it was taken down what a process was started with.
func (d *desired) noted(id backend.ID) bool {
	return slices.ContainsFunc(d.Started, func(s started) bool { return slices.Contains(s.Processes, id) })
}

// follows says that a process is to take the place of a server that is wanted.
func (d *desired) follows(id backend.ID) bool {
	return id.Role == backend.RoleServer && id.Generation > d.Servers[id.Rank]
}

// NotTakenUp warns of what was changed in the file of a job that runs and what runs does not do, since processes keep what they were started with. list tells which
// of them have ended, as after a reboot: those start anew; nil: nobody can tell. known says of which parts of the file it can be told; nil: of all.
func NotTakenUp(ctx context.Context, list Lister, j *job.Job, want *Wanted, known func(path string) bool) hcl.Diagnostics {
	if !want.Runs() {
		return nil
	}
	d := (*desired)(want)
	diags := d.notTakenUp(j, known)
	if len(diags) == 0 || list == nil {
		return diags
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	there, complete, err := list(ctx)
	if err != nil {
		return diags
	}
	return d.living(there, complete).notTakenUp(j, known)
}

// living is d without what it says of wanted processes that have ended, by a backend's list, or that a complete one does not have.
func (d *desired) living(list []backend.Status, complete bool) *desired {
	ended := func(id backend.ID) bool {
		i := slices.IndexFunc(list, func(st backend.Status) bool { return st.ID == id })
		return i < 0 && complete || i >= 0 && !list[i].State.Live()
	}
	left, serves := *d, false
	left.Started = nil
	for _, s := range d.Started {
		s.Processes = slices.DeleteFunc(slices.Clone(s.Processes), ended)
		left.Started = append(left.Started, s)
	}
	for rank, generation := range d.Servers {
		serves = serves || !ended(backend.ID{Role: backend.RoleServer, Rank: rank, Generation: generation})
	}
	if !serves {
		left.Policies = nil // the next chief is started with the file's
	}
	return &left
}

func (d *desired) notTakenUp(j *job.Job, known func(path string) bool) (diags hcl.Diagnostics) {
	now := startsWith(j)
	roles, follows := map[string]string{}, map[string]string{}
	for _, h := range heldFields {
		roles[h.path], follows[h.path] = h.role, h.follows
	}
	for path := range now {
		switch block, _, _ := strings.Cut(path, "."); block {
		case "workers":
			roles[path] = backend.RoleWorker
		case "servers":
			roles[path] = backend.RoleServer
		}
	}
	told, file := map[string]bool{}, backend.Quoted(j.File)
	for _, path := range slices.Sorted(maps.Keys(now)) {
		keeps, n, of := d.keep(path, roles[path], now[path])
		if n == 0 || told[follows[path]] || known != nil && !(known(path) && known(follows[path])) {
			continue
		}
		told[path] = true
		who, does, has := "What runs", "keeps "+keeps, now[path]
		if n < of {
			who, does = fmt.Sprintf("%d of %s that run", n, job.Count(of, nouns[roles[path]])), "keep "+keeps
		}
		if path == backendBlock {
			does = map[bool]string{true: "were", false: "was"}[n < of] + " started with another block"
		}
		from := "only what is started from now on has " + has
		if path == backendBlock { // which has both
			from = "what it says of a process holds only for what is started from now on; what it says of what Kale itself does holds at once"
		}
		diags = append(diags, j.WarningAt(path, "What runs does not take up this change", fmt.Sprintf(
			"%s: %s %s; %s. kale stop %s and then kale run %s change it for all.", path, who, does, from, j.Name, file)))
	}
	if n, of := d.startedUnknown(), len(d.wantedRanks())+len(d.Servers); n > 0 {
		diags = append(diags, j.WarningAt("", "Not all that runs could be compared with this file", fmt.Sprintf(
			"%d of %d processes were started before this scheduler's state was: what this file said then is not known, so a change that they do not take up is not told. "+
				"kale stop %s and then kale run %s start all with what it says now.", n, of, j.Name, file)))
	}
	differ := untold(j, d.Policies)
	for _, path := range slices.Sorted(maps.Keys(differ)) {
		if known == nil || known(path) && known("autoscale.mode") {
			diags = append(diags, j.WarningAt(path, "What runs does not take up this change", fmt.Sprintf(
				"%s: What runs goes on with %q; autoscale.mode is %q, which changes nothing. A scheduler in another mode tells what runs %q, and so do kale stop %s and kale run %s.",
				path, differ[path][1], job.ModeObserve, differ[path][0], j.Name, file)))
		}
	}
	job.InFileOrder(diags)
	return diags
}

// startedUnknown counts the wanted processes of which it is not known what they were started with.
func (d *desired) startedUnknown() (n int) {
	for _, s := range d.Started {
		for _, id := range s.Processes {
			if s.With == nil && d.wants(id) {
				n++
			}
		}
	}
	return n
}

// keep counts the wanted processes of a role that have another value of a part of the job file than the file has now, of those of which it is known, and says
// what theirs is.
func (d *desired) keep(path, role, now string) (keeps string, n, of int) {
	var values []string
	for _, s := range d.Started {
		was, known := s.With[path]
		for _, id := range s.Processes {
			if !known || role != "" && id.Role != role || !d.wants(id) {
				continue
			}
			if of++; was == now {
				continue
			}
			if n++; !slices.Contains(values, was) {
				values = append(values, was)
			}
		}
	}
	return strings.Join(values, " and "), n, of
}
