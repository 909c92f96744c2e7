package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/cmd/internal/about"
	"github.com/kale-sched/kale/cmd/internal/probe"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/onnx"
)

// badOffset is how far the clocks of two nodes may be apart, in seconds: records' times and lag in seconds are compared across them.
const badOffset = 0.5

// name is the node that a probe is on; of one that was moved, the one that it was sent to.
func (o *probed) name() string {
	if o.moved() {
		return o.first
	}
	return cmp.Or(o.status.Node, "probe "+fmt.Sprint(o.index))
}

func (o *probed) wrote() *probe.Wrote {
	for _, l := range o.lines {
		if l.Wrote != nil {
			return l.Wrote
		}
	}
	return nil
}

func (o *probed) network() *probe.Network {
	for _, l := range o.lines {
		if l.Network != nil {
			return l.Network
		}
	}
	return nil
}

func (o *probed) compute() *about.About {
	for _, l := range o.lines {
		if l.Compute != nil {
			return l.Compute
		}
	}
	return nil
}

// saw are the other probes whose files this one has read, by index.
func (o *probed) saw() map[int]*probe.Saw {
	out := map[int]*probe.Saw{}
	for _, l := range o.lines {
		if l.Saw != nil {
			out[l.Saw.Index] = l.Saw
		}
	}
	return out
}

// told says that the probe has reported everything that does not depend on others.
func (o *probed) told() bool { return o.wrote() != nil && o.network() != nil && o.compute() != nil }

// cuda is what the probe says of the CUDA provider.
func (o *probed) cuda() *probe.CUDA {
	for _, l := range o.lines {
		if l.CUDA != nil {
			return l.CUDA
		}
	}
	return nil
}

// awaitsCUDA says that a probe is to try the CUDA provider, and has not told.
func (e *expedition) awaitsCUDA(one *probed) bool {
	v := one.compute()
	return !e.p.local() && probe.WantsCUDA(core.TrainSpec(e.p.Job, "")) && v != nil && v.ONNX != "" && one.cuda() == nil
}

// notPlaced is the finding when not even one probe has found a place: within the time for it, or because it is refused.
func (e *expedition) notPlaced(ctx context.Context, err error, late bool) Finding {
	const do = "Free a place, or correct what the reason names; "
	var full *fullError
	switch {
	case ctx.Err() != nil:
		return Finding{Check: nodesCheck, State: Skip, Says: "interrupted"}
	case errors.As(err, &full):
		return ok(nodesCheck, "the cluster has no place for a probe (1 CPU, no GPU), and did not place one within %s: %v", job.Length(fullLimit), err).but(Fail,
			do+"-probe-timeout DURATION waits longer, -no-probe tries no nodes.")
	case late:
		return ok(nodesCheck, "the cluster did not place a probe (1 CPU, no GPU) within %s: %v", job.Length(e.p.ProbeLimit), err).but(Fail,
			do+"-probe-timeout waits longer, -no-probe tries no nodes.")
	}
	return ok(nodesCheck, "the cluster refuses a probe (1 CPU, no GPU): %v", err).but(Fail, do+"-no-probe tries no nodes.")
}

// judge turns what the probes have said into findings.
func (e *expedition) judge() []Finding {
	out := []Finding{e.where()}
	var lack, unbegun []*probed
	var ran, absent []Finding
	for _, one := range e.probes {
		if one.absent() {
			absent = alike(absent, e.neverCame(one), one.name())
			continue
		}
		if one.lacksTrainer() {
			lack = append(lack, one)
			continue
		}
		if one.unbegun() {
			unbegun = append(unbegun, one)
			continue
		}
		for _, f := range e.ran(one) {
			ran = alike(ran, f, one.name())
		}
	}
	out = append(append(out, absent...), ran...)
	if len(lack) > 0 {
		out = append(out, noTrainer(lack))
	}
	if len(unbegun) > 0 {
		out = append(out, e.neverBegan(unbegun))
	}
	out = append(out, e.shared())
	for _, one := range e.probes {
		if n := one.network(); n != nil {
			out = append(out, e.network(one, n))
		}
	}
	if len(e.present()) > 1 {
		out = append(out, e.betweenNodes()...)
	}
	return out
}

// alike adds what was found on a node: nodes of which the same is found share a finding, whose check ends with their names.
func alike(all []Finding, f Finding, node string) []Finding {
	what := strings.TrimSuffix(f.Check, node)
	for i, o := range all {
		if strings.HasPrefix(o.Check, what) && o.State == f.State && o.Says == f.Says && o.Do == f.Do {
			all[i].Check += ", " + node
			return all
		}
	}
	return append(all, f)
}

// lacksTrainer says that the shell of the node found no program to run, or none that it may run.
func (o *probed) lacksTrainer() bool {
	return o.hasEnded() && o.compute() == nil && (o.status.ExitCode == 126 || o.status.ExitCode == 127)
}

// noTrainer is one finding for all the nodes that lack the trainer, with what the first one's shell says, which names the path.
func noTrainer(lack []*probed) Finding {
	var names []string
	for _, one := range lack {
		names = append(names, one.name())
	}
	says := words(strings.Join(lack[0].rest, "\n"))
	if reason := lack[0].status.Reason; says == "" && reason != "" { // a node that has not even its path in a log
		says = " (" + reason + ")"
	}
	return ok("trainer on "+strings.Join(names, ", "), "it is not there, or may not be run%s", says).but(Fail, installTrainer)
}

// unbegun says that the backend tells why the probe's program was not even tried: no process of it began, and nothing of one is in its log.
func (o *probed) unbegun() bool {
	return !o.status.State.Live() && o.status.Reason != "" && o.status.Started.IsZero() && o.status.Restarts == 0 && o.status.ExitCode == 0 && len(o.lines) == 0 && len(o.rest) == 0
}

// neverBegan is one finding for all the nodes on which no program was tried, with what the backend says of the first.
func (e *expedition) neverBegan(those []*probed) Finding {
	var names []string
	for _, one := range those {
		names = append(names, one.name())
	}
	return ok("start on "+strings.Join(names, ", "), "no program began: %s", those[0].status.Reason).but(Fail,
		fmt.Sprintf("No process of the job would begin there: correct what is said of the backend block (%s), or see to the node.", place(e.p.Job, "backend")))
}

// where says on which nodes probes ran.
func (e *expedition) where() Finding {
	names, mute := []string{}, []string{}
	for _, one := range e.probes {
		if one.absent() {
			mute = append(mute, one.name())
		} else {
			names = append(names, one.name())
		}
	}
	if len(names) == 0 {
		return ok(nodesCheck, "no probe has begun within %s; they were placed on %s", job.Length(e.p.ProbeLimit), strings.Join(mute, ", ")).but(Fail,
			"No process of the job would begin there either, or not in this time. -probe-timeout waits longer, -no-probe tries no nodes.")
	}
	f := ok(nodesCheck, "tried from inside on %s", strings.Join(names, ", "))
	if e.only && !e.p.local() {
		f.Says += ", the only node that the backend has now: what nodes share is proved when there is another"
		return f
	}
	if len(names) == 1 && !e.p.local() {
		f.Says = fmt.Sprintf("only %s could be tried: no second node was found: %s", names[0], cmp.Or(e.unfound, "nothing has begun on "+strings.Join(mute, ", ")))
		return f.but(Warn, "What nodes share is proved by two of them: try again when another is free. With one node only there is nothing to share.")
	}
	return f
}

// neverCame is the finding on a probe that the cluster placed, and that has not begun there, or not ended.
func (e *expedition) neverCame(one *probed) Finding {
	says := fmt.Sprintf("a probe was placed there and has not begun (%s)", cmp.Or(one.status.Reason, one.state()))
	switch {
	case one.moved():
		says = "a probe was placed there, and the cluster has taken it away from there: the node does not answer it, or was taken out of use"
	case one.status.Away, one.lost:
		says = "a probe was placed there, and the node does not answer the cluster"
	}
	return ok("probe on "+one.name(), "%s", says).but(Warn, "What the job is given there would not begin either. "+seeToNode+" Where processes take long to begin, -probe-timeout waits longer.")
}

// leftThere is the finding on probes of whose end nothing is known.
func leftThere(left []*probed) Finding {
	var those, nodes []string
	for _, one := range left {
		those = append(those, fmt.Sprintf("%s on node %s", one.id, one.name()))
		if !slices.Contains(nodes, one.name()) {
			nodes = append(nodes, one.name())
		}
	}
	return ok("probes", "left behind: %s; released, and not seen to end", strings.Join(those, ", ")).but(Warn,
		fmt.Sprintf("The cluster ends that when it hears %s again. Nothing waits for it, neither kale stop nor, once the cluster knows that the node is away, kale forget.", strings.Join(nodes, ", ")))
}

// ran judges the trainer on one node, and its library.
func (e *expedition) ran(one *probed) []Finding {
	v := one.compute()
	if v == nil {
		return []Finding{e.silent(one)}
	}
	f := ok("trainer on "+one.name(), "version %s runs", v.Version)
	if own := about.Build(); own.Version != v.Version || own.Revision != v.Revision {
		f.Says = fmt.Sprintf("version %s (%s) runs, and this kale is %s (%s)", v.Version, v.Revision, own.Version, own.Revision)
		f = f.but(Warn, installTrainer)
	}
	if !one.told() {
		f = e.silent(one)
	}
	library := "ONNX Runtime on " + one.name()
	if v.ONNX == "" {
		state := Fail
		if e.p.Job.Model.Kind == job.ModelCounting {
			state = Warn // it computes nothing
		}
		return []Finding{f, ok(library, "%s", v.NoONNX).but(state, fmt.Sprintf("Install it on that node, or set %s in the backend block's env to where it is there.", onnx.LibraryEnv))}
	}
	out := []Finding{f, ok(library, "%s from %s computes", v.ONNXVersion, v.ONNX)}
	if !e.p.local() && one.cuda() != nil || e.awaitsCUDA(one) { // on this machine the trainer's own trial says it
		out = append(out, e.onGPU(one))
	}
	return out
}

const installTrainer = "Have the trainer of this version of Kale on every node: name it with -trainer or in the backend block."

// silent is the finding on a probe that has not told everything.
func (e *expedition) silent(one *probed) Finding {
	says, do := "it did not run: "+one.ended(), installTrainer
	switch {
	case one.noLog != nil && backend.CodeOf(one.noLog) == backend.Unauthorised:
		says, do = fmt.Sprintf("what it says cannot be read: %v", one.noLog), "Give whoever runs kale what is lacking; workers do without, and kale logs and the causes of their ends do not."
	case one.noLog != nil:
		says, do = fmt.Sprintf("what it says cannot be read: %v", one.noLog), "See on that node what keeps its log from being read, and try again."
	case one.status.State.Live():
		says = fmt.Sprintf("it has not answered everything within %s", job.Length(e.p.ProbeLimit))
		do = "Look at the node: it may be busy, or the trainer there of another version. -probe-timeout waits longer."
	}
	if one.wrote() != nil && one.compute() == nil {
		says += "; ONNX Runtime was tried and did not answer"
		do = fmt.Sprintf("Install a library that works on that node (%s names it), or see kale-trainer version there.", onnx.LibraryEnv)
	}
	return ok("trainer on "+one.name(), "%s%s", says, words(strings.Join(one.rest, "\n"))).but(Fail, do)
}

// ended says how a probe ended.
func (o *probed) ended() string {
	return fmt.Sprintf("%s (it ended with %s)", cmp.Or(o.status.Reason, string(o.status.State)), backend.EndWords(o.status.ExitCode))
}

// What ONNX Runtime and CUDA say of the causes that are known: a process that sees no GPU, as a probe does where the cluster keeps GPUs from those who have
// asked for none; a driver that is not there or too old; and, in the log, the library that another one lacks.
var (
	noDevice       = regexp.MustCompile(`CUDA failure 100\b`)
	noDriver       = regexp.MustCompile(`CUDA failure 35\b`)
	missingLibrary = regexp.MustCompile(`Failed to load library (\S+) with error: ([^\x1b]+)`)
)

// cannotCompute reports whether a node's probe says for sure that a worker there could not compute on a GPU.
func (o *probed) cannotCompute() bool {
	told := o.cuda()
	if told == nil {
		return o.compute() != nil && !o.status.State.Live() // it ended by the trial
	}
	return told.Error != "" && !noDevice.MatchString(told.Error)
}

// noneComputes reports whether the node is one of those where workers would be placed, none of which could compute on a GPU: of those with GPUs, where the backend
// tells which have some.
func (e *expedition) noneComputes(one *probed) bool {
	suits := func(o *probed) bool { return len(e.gpus) == 0 || slices.Contains(e.gpus, o.status.Node) }
	return suits(one) && !slices.ContainsFunc(e.probes, func(o *probed) bool { return suits(o) && !o.cannotCompute() })
}

// onGPU judges whether workers could compute on the GPUs of a node, as far as that can be told without one.
func (e *expedition) onGPU(one *probed) Finding {
	check, where := "ONNX Runtime on GPUs of "+one.name(), place(e.p.Job, "workers.gpus")
	do := fmt.Sprintf("Workers compute on GPUs (%s): on every node with GPUs install the GPU build of ONNX Runtime, with libonnxruntime_providers_shared.so and "+
		"libonnxruntime_providers_cuda.so beside the library that %s names, and the CUDA libraries with cuBLAS and cuDNN that it was built for, where the loader finds them "+
		"(ldconfig, or LD_LIBRARY_PATH in the backend block's env). Or compute on CPUs: set workers.gpus to 0. Where the GPUs are only pretended, workers.emulate_step stands in for them.", where, onnx.LibraryEnv)
	told, bad := one.cuda(), Warn
	driver := fmt.Sprintf("Where workers are to compute on GPUs (%s), install a newer driver: nvidia-smi says which is there. A node without GPUs needs none.", where)
	if e.noneComputes(one) {
		const no = "No worker would start: no node that was tried could compute on a GPU. "
		bad, do, driver = Fail, no+do, no+driver+" Or compute on CPUs: set workers.gpus to 0."
	}
	switch {
	case told == nil && !one.status.State.Live():
		return ok(check, "its CUDA provider was tried and ended the probe: %s%s", one.ended(), words(strings.Join(one.rest, "\n"))).but(bad, do)
	case told == nil:
		return ok(check, "its CUDA provider was tried and did not answer in time").but(Warn, do)
	case told.Error == "":
		return ok(check, "its CUDA provider computes")
	case noDevice.MatchString(told.Error):
		return ok(check, "its CUDA provider can be loaded; the probe, which asks for no GPU, sees none to compute on")
	case noDriver.MatchString(told.Error):
		return ok(check, "its CUDA provider can be loaded, and there is no NVIDIA driver, or one that is too old for it").but(bad, driver)
	}
	says := told.Error
	for _, line := range one.rest {
		if m := missingLibrary.FindStringSubmatch(line); m != nil {
			says = fmt.Sprintf("%s cannot be loaded: %s", filepath.Base(m[1]), strings.TrimSpace(m[2]))
		}
	}
	return ok(check, "its CUDA provider cannot be made: %s", says).but(bad, do)
}

// shared judges whether the nodes have the checkpoint folder in common.
func (e *expedition) shared() Finding {
	const check = "checkpoint folder on nodes"
	dir, where := e.p.Job.Checkpoint.Dir, place(e.p.Job, "checkpoint.dir")
	var failed, blind []string
	writer := ""
	least, at, wrote, pairs := int64(math.MaxInt64), "", 0, 0 // pairs of nodes of which one does not see what the other wrote
	for _, one := range e.probes {
		switch w := one.wrote(); {
		case w == nil:
		case w.Error != "":
			failed = append(failed, fmt.Sprintf("node %s cannot write in %s: %s", one.name(), dir, w.Error))
		default:
			wrote, writer = wrote+1, one.name()
			if w.Free > 0 && w.Free < least {
				least, at = w.Free, one.name()
			}
		}
	}
	for _, reader := range e.probes {
		if w := reader.wrote(); w == nil || w.Error != "" {
			continue
		}
		saw := reader.saw()
		var unseen []string
		for _, writer := range e.probes {
			if w := writer.wrote(); writer == reader || w == nil || w.Error != "" {
				continue
			}
			switch s := saw[writer.index]; {
			case s == nil:
				unseen = append(unseen, writer.name())
			case s.Wrong != "":
				blind = append(blind, fmt.Sprintf("node %s does not read what %s wrote in %s: %s", reader.name(), writer.name(), dir, s.Wrong))
			}
		}
		if len(unseen) > 0 {
			blind = append(blind, fmt.Sprintf("node %s does not see what %s wrote in %s", reader.name(), strings.Join(unseen, ", "), dir))
		}
		pairs += len(unseen)
	}
	if pairs == wrote*(wrote-1) && wrote > 2 {
		blind = []string{fmt.Sprintf("none of the %d nodes sees what another wrote in %s", wrote, dir)}
	}
	switch {
	case len(failed) > 0:
		return ok(check, "%s", strings.Join(append(failed, blind...), "; ")).but(Fail, fmt.Sprintf("Let the user of the allocations write there, on every node, or choose another folder (%s).", where))
	case len(blind) > 0:
		return ok(check, "%s: checkpoint.dir is not shared", strings.Join(blind, "; ")).but(Fail,
			fmt.Sprintf("Put it on a file system that every node mounts under the same path (%s).", where))
	case wrote == 0:
		return Finding{Check: check, State: Skip, Says: "no probe has written there"}
	}
	f := ok(check, "%s wrote and read each other's files in %s", job.Count(wrote, "node"), dir)
	if wrote == 1 {
		f.Says = fmt.Sprintf("%s is written on %s", dir, writer)
	}
	if at == "" {
		return f
	}
	f.Says += fmt.Sprintf(", %s free", gigabytes(least))
	switch {
	case least < leastRoom:
		return f.but(Fail, fmt.Sprintf("Make room on %s, or choose another folder (%s).", at, where))
	case least < littleRoom:
		return f.but(Warn, fmt.Sprintf("That is little: make room on %s, or choose another folder (%s).", at, where))
	}
	return f
}

// network judges whom one node reaches.
func (e *expedition) network(one *probed, n *probe.Network) Finding {
	var bad, do []string
	add := func(what, advice string) { bad, do = append(bad, what), append(do, advice) }
	if n.ListenError != "" {
		add("it cannot listen: "+n.ListenError, "Correct the job's network block.")
	}
	for _, at := range slices.Sorted(maps.Keys(n.BrokerError)) {
		what := "no broker answers"
		if at != "" {
			what = "broker " + at + " does not answer"
		}
		add(fmt.Sprintf("%s: %s", what, n.BrokerError[at]), "Workers read the stream from their nodes: open the way to the brokers, by the addresses that they advertise.")
	}
	switch {
	case n.MeetError != "":
		add(fmt.Sprintf("it does not reach the scheduler at %s: %s", e.meet, n.MeetError), "Open that port of this machine to the nodes, or set network.listen and network.advertise to what they reach.")
	case e.ours && n.Meet != e.run:
		add(fmt.Sprintf("somebody else than this machine answers at %s", e.meet), "Set network.advertise to an address under which nodes reach this machine.")
	}
	check := "network of " + one.name()
	if len(bad) > 0 {
		return ok(check, "%s", strings.Join(bad, "; ")).but(Fail, strings.Join(slices.Compact(do), " "))
	}
	says := fmt.Sprintf("it reaches %s", job.Count(n.Brokers, "broker"))
	if e.meet != "" {
		says += " and the scheduler at " + e.meet
	}
	return ok(check, "%s, and would listen on %s", says, n.Listen)
}

// betweenNodes judges calls from node to node, and their clocks.
func (e *expedition) betweenNodes() (out []Finding) {
	var bad, apart []string
	calls, worst := 0, 0.0
	byIndex := map[int]string{}
	for _, one := range e.probes {
		byIndex[one.index] = one.name()
	}
	for _, one := range e.probes {
		saw := one.saw()
		for _, i := range slices.Sorted(maps.Keys(saw)) {
			s := saw[i]
			switch {
			case s.DialError != "":
				bad = append(bad, fmt.Sprintf("node %s does not reach %s: %s", one.name(), byIndex[i], s.DialError))
			case s.Offset != nil:
				calls++
				worst = max(worst, math.Abs(*s.Offset))
				if math.Abs(*s.Offset) > badOffset && one.index < i {
					apart = append(apart, fmt.Sprintf("the clock of %s is %+.1f s against that of %s", byIndex[i], *s.Offset, one.name()))
				}
			}
		}
	}
	const between, clocks = "between nodes", "clocks of nodes"
	switch {
	case len(bad) > 0:
		out = append(out, ok(between, "%s", strings.Join(bad, "; ")).but(Fail, "Workers and servers call each other: open the ports between nodes (network.ports), or choose the interface that they share (network.interface)."))
	case calls > 0:
		out = append(out, ok(between, "they reach each other"))
	default:
		return []Finding{{Check: between, State: Skip, Says: "they learn each other's address from the checkpoint folder"}}
	}
	if len(apart) > 0 {
		return append(out, ok(clocks, "%s", strings.Join(apart, "; ")).but(Warn, "Run a time service (chrony, systemd-timesyncd) on every node."))
	}
	if calls == 0 {
		return out
	}
	return append(out, ok(clocks, "at most %s apart", job.Length(time.Duration(worst*float64(time.Second)))))
}
