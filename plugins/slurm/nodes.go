package slurm

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// node is one node of the cluster, as scontrol shows it.
type node struct {
	name, address string
	cluster       string // empty where the block names no clusters
	state         string
	partitions    []string
	since         time.Time // when its slurmd was started; zero where that is not known
	reasonAt      time.Time // when its administrator last said why it is in its state; zero where that is not known
	cpus, cpusUsed,
	memoryMB, memoryUsedMB int
	gpus []gpu
	// leaked is how many of the GPUs that Slurm counts as used no job has.
	leaked int
}

// is reports whether it is the node of that name, in the cluster where that is known.
func (n node) is(cluster, name string) bool {
	return n.name == name && (cluster == "" || n.cluster == cluster)
}

// gpu is one GPU of a node.
type gpu struct {
	index int
	model string
	used  bool
}

// badWords are the parts of a node's state in which nothing new starts there. A node that is powered down is none of them: Slurm wakes it.
var badWords = []string{
	"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "MAINT", "NOT_RESPONDING", "NO_RESPOND", "UNKNOWN", "FUTURE", "INVAL", "INVALID_REG",
	"REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "POWERING_DOWN", "BLOCKED",
}

func (n node) usable() bool {
	for word := range strings.SplitSeq(strings.TrimSuffix(n.state, "*"), "+") {
		if slices.Contains(badWords, word) {
			return false
		}
	}
	return !strings.HasSuffix(n.state, "*")
}

// answers reports whether Slurm hears the node.
func (n node) answers() bool {
	return !strings.HasSuffix(n.state, "*") && !strings.Contains(n.state, "NOT_RESPONDING") && !strings.Contains(n.state, "NO_RESPOND")
}

// drainWords are the parts of a node's state by which its administrator wants it empty: it is drained, or expected to fail.
var drainWords = []string{"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"}

func (n node) drained() bool {
	for word := range strings.SplitSeq(strings.TrimSuffix(n.state, "*"), "+") {
		if slices.Contains(drainWords, word) {
			return true
		}
	}
	return false
}

// takenOut reports whether the node was taken out of use by whoever may, and not by its own silence: it comes back by their word alone.
func (n node) takenOut() bool {
	return n.drained() || n.answers() && slices.Contains(strings.Split(n.state, "+"), "DOWN")
}

// stood reports whether the node was well while a job ran there that began then, of which Slurm says that its node failed: it answers, and was set down, or its
// slurmd has run since before that. Where a site lets nodes come back by themselves, one that was set down by hand does so at once.
func (n node) stood(began time.Time) bool {
	return n.takenOut() || n.answers() && !n.since.IsZero() && n.since.Before(began)
}

// suits reports whether the job's workloads may be placed on the node now.
func (s settings) suits(n node) bool { return n.usable() && s.allows(n) }

// allows reports whether the block lets the job's workloads be placed on the node.
func (s settings) allows(n node) bool {
	return s.inPartition(n) && !slices.Contains(hosts(s.exclude), n.name)
}

// excludesAll reports whether the block's exclude leaves none of the nodes that its partition has.
func (s settings) excludesAll(nodes []node) bool {
	return s.exclude != "" && slices.ContainsFunc(nodes, s.inPartition) && !slices.ContainsFunc(nodes, s.allows)
}

func (s settings) inPartition(n node) bool {
	if s.partition == "" {
		return true
	}
	for p := range strings.SplitSeq(s.partition, ",") {
		if slices.Contains(n.partitions, p) {
			return true
		}
	}
	return false
}

// look asks for the nodes.
func (q *queue) look(ctx context.Context) ([]node, error) {
	q.mu.Lock()
	failed := q.noNodes
	q.mu.Unlock()
	if failed.err != nil && failed.stands(0) {
		return nil, failed.err
	}
	began := time.Now()
	nodes, err := q.ctl.nodes(ctx)
	if err == nil {
		err = q.checkCounts(ctx, nodes)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.noNodes = (snapshot{}); err != nil {
		if ctx.Err() == nil { // else it was the caller who did not wait
			q.noNodes = snapshot{began: time.Now(), err: err, took: time.Since(began)}
		}
		return nil, err
	}
	q.nodes, q.nodesAt = nodes, time.Now()
	drained := map[string]time.Time{}
	for _, n := range nodes {
		q.noteHeld(n)
		if key := n.cluster + "/" + n.name; n.drained() {
			if drained[key] = q.drained[key]; drained[key].IsZero() {
				drained[key] = q.nodesAt.UTC()
			}
		}
	}
	q.drained = drained
	return nodes, nil
}

// noteHeld notes a node that was taken out of use, and when it was put into use again. q.mu is held.
func (q *queue) noteHeld(n node) {
	switch key := n.cluster + "/" + n.name; {
	case n.takenOut():
		q.held[key] = true
	case n.usable() && q.held[key]:
		delete(q.held, key)
		q.restored[n.name] = q.nodesAt.UTC()
	}
}

// restoredAt gives when nodes that were taken out of use were seen to be put into use again.
func (q *queue) restoredAt() map[string]time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.restored)
}

// addressOf gives where others reach a node: its address in slurm.conf, or its name while that is not known.
func (q *queue) addressOf(ctx context.Context, cluster, name string) string {
	lookup := func() (string, bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, n := range q.nodes {
			if n.is(cluster, name) {
				return n.address, true
			}
		}
		return name, time.Since(q.nodesAt) < time.Minute // it is not there: ask, but not for ever
	}
	if a, known := lookup(); known {
		return a
	}
	if _, err := q.look(ctx); err != nil {
		return name
	}
	a, _ := lookup()
	return a
}

// lookWithin gives the nodes by a look that is not older than maxAge. With an error they are those of the last look.
func (q *queue) lookWithin(ctx context.Context, maxAge time.Duration) ([]node, error) {
	q.mu.Lock()
	known, fresh := q.nodes, time.Since(q.nodesAt) < maxAge
	q.mu.Unlock()
	if fresh {
		return known, nil
	}
	nodes, err := q.look(ctx)
	if err != nil {
		return known, err
	}
	return nodes, nil
}

// drainSeen is how old a look may be by which it is judged whether a node answers, and is being drained.
const drainSeen = 20 * time.Second

// awaySeen is the same where something that was released does not end: whether its node answers is what its successor waits to know.
const awaySeen = 3 * time.Second

// drainEnd gives until when what runs on a node that is being drained is to leave it; drained is false where it is not drained. Slurm itself lets it run on.
func (q *queue) drainEnd(nodes []node, cluster, name string) (until time.Time, drained bool) {
	for _, n := range nodes {
		if !n.is(cluster, name) || !n.drained() {
			continue
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		began := q.drained[n.cluster+"/"+n.name]
		if !n.reasonAt.IsZero() {
			began = n.reasonAt
		}
		return began.Add(backend.DrainWithin), true
	}
	return time.Time{}, false
}

// node gives a node, by a look that is not older than maxAge; known is false where there is none.
func (q *queue) node(ctx context.Context, cluster, name string, maxAge time.Duration) (n node, known bool) {
	nodes, err := q.lookWithin(ctx, maxAge)
	if err != nil {
		return node{}, false
	}
	i := slices.IndexFunc(nodes, func(n node) bool { return n.is(cluster, name) })
	if i < 0 {
		return node{}, false
	}
	return nodes[i], true
}

// parseNodes reads scontrol show nodes, one node a line.
func parseNodes(out string) []node {
	var nodes []node
	for line := range strings.Lines(out) {
		f := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			key, value, ok := strings.Cut(word, "=")
			if _, twice := f[key]; ok && !twice {
				f[key] = value
			}
		}
		if f["NodeName"] == "" {
			continue
		}
		num := func(key string) int {
			n, _ := strconv.Atoi(f[key]) // absent or N/A: 0
			return n
		}
		n := node{
			name: f["NodeName"], address: f["NodeAddr"], state: f["State"], partitions: strings.Split(f["Partitions"], ","),
			cpus: num("CPUTot"), cpusUsed: num("CPUAlloc"), memoryMB: num("RealMemory"), memoryUsedMB: num("AllocMem"),
		}
		if n.address == "" {
			n.address = n.name
		}
		n.gpus = parseGPUs(f["Gres"], f["GresUsed"])
		n.since = parseTime(f["SlurmdStartTime"])
		if m := reasonForm.FindStringSubmatch(line); m != nil {
			n.reasonAt = parseTime(m[1])
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	return nodes
}

// reasonForm finds who set a node's reason, and when, at the end of it: "Reason=a new kernel [root@2026-05-01T09:00:00]".
var reasonForm = regexp.MustCompile(` Reason=.*\[[^\[\]@]*@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]`)

var gresForm = regexp.MustCompile(`(?:^|,)gpu(?::([A-Za-z][^:(,]*))?:(\d+)(?:\(IDX:([^)]*)\))?`)

// parseGPUs reads Gres ("gpu:h200:8(S:0-1)") and GresUsed ("gpu:h200:2(IDX:0-1)"). A used one whose index is not told is the first free one.
func parseGPUs(has, used string) []gpu {
	var out []gpu
	for _, m := range gresForm.FindAllStringSubmatch(has, -1) {
		count, _ := strconv.Atoi(m[2]) // digits
		for range count {
			out = append(out, gpu{index: len(out), model: m[1]})
		}
	}
	for _, m := range gresForm.FindAllStringSubmatch(used, -1) {
		count, _ := strconv.Atoi(m[2])
		for _, i := range parseIndexes(m[3]) {
			if i < len(out) && !out[i].used {
				out[i].used = true
				count--
			}
		}
		for i := range out {
			if count > 0 && !out[i].used && (m[1] == "" || out[i].model == m[1]) {
				out[i].used = true
				count--
			}
		}
	}
	return out
}

// parseIndexes reads "0-1,3"; anything else gives none.
func parseIndexes(s string) []int {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		from, to, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if ranged {
			if b, err = strconv.Atoi(to); err != nil || b-a > 1024 {
				continue
			}
		}
		for i := a; i <= b; i++ {
			out = append(out, i)
		}
	}
	return out
}

// hostsMost bounds what one list of hosts is taken apart into; longer ones Slurm does not take either.
const hostsMost = 64 << 10

// hosts gives the names in Slurm's form of a list: "a1,n[1-3,07-09],r[1-2]c[1-2]". What is no such list stays as it is.
func hosts(list string) []string {
	var out []string
	from, depth := 0, 0
	for i, c := range list + "," {
		switch {
		case c == '[':
			depth++
		case c == ']':
			depth--
		case c == ',' && depth == 0:
			out = append(out, hostsOf(strings.TrimSpace(list[from:i]))...)
			from = i + 1
		}
	}
	if from < len(list) { // a bracket that is not closed
		out = append(out, list[from:])
	}
	return out
}

// hostsOf takes one word of such a list apart, at its first brackets.
func hostsOf(word string) []string {
	head, rest, open := strings.Cut(word, "[")
	ranges, tail, closed := strings.Cut(rest, "]")
	if !open || !closed {
		return []string{word}
	}
	var out []string
	tails := hostsOf(tail)
	for part := range strings.SplitSeq(ranges, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil || b-a >= hostsMost {
			return []string{word}
		}
		for i := a; i <= b; i++ {
			for _, t := range tails {
				if out = append(out, fmt.Sprintf("%s%0*d%s", head, len(from), i, t)); len(out) > hostsMost {
					return []string{word}
				}
			}
		}
	}
	return out
}

// gpuNoun says n GPUs.
func gpuNoun(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}
