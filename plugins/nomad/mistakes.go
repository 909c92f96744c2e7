package nomad

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// Attributes of the block whose values a cluster has or has not.
const (
	attrAddress     = "address"
	attrRegion      = "region"
	attrNamespace   = "namespace"
	attrToken       = "token"
	attrNodePool    = "node_pool"
	attrDatacenters = "datacenters"
	attrDriver      = "driver"
	attrDevice      = "device"
)

// mistake is that of an attribute, at its value; where the block leaves it to the environment, at the block's beginning.
func (s settings) mistake(attr, summary, detail string, args ...any) *hcl.Diagnostic {
	return backend.Mistake(s.places[attr], summary, detail, args...)
}

// located gives diagnostics the contract's form.
func (s settings) located(diags hcl.Diagnostics) backend.Diagnostics {
	return backend.FromHCL(s.begins, diags)
}

// mistaken is the answer to Plan where the block is wrong.
func (s settings) mistaken(ws []backend.Workload, diags hcl.Diagnostics) backend.Report {
	report := backend.Report{Placements: make([]backend.Placement, len(ws)), Mistakes: s.located(diags)}
	for i, w := range ws {
		report.Placements[i] = backend.Placement{ID: w.ID, Reason: diags[0].Summary}
	}
	return report
}

// blame gives what in the block is wrong where Nomad refused a call; none where the block is not at fault.
func (s settings) blame(err error) hcl.Diagnostics {
	var answer *backend.Error
	if !errors.As(err, &answer) {
		return nil
	}
	at := func(d *hcl.Diagnostic) hcl.Diagnostics { return hcl.Diagnostics{d} }
	switch says := strings.ToLower(answer.Message); {
	case distrusted(err):
		return at(s.mistake(attrAddress, "Nomad cannot be spoken to so", "%s%s.", answer.Message, fromEnvironment(s.places[attrAddress], "NOMAD_ADDR")))
	case strings.Contains(says, noSuchRegion):
		regions, err := s.client.Regions().List()
		if err != nil {
			return at(s.mistake(attrRegion, "No such region", "%s.", answer.Message))
		}
		return at(s.mistake(attrRegion, "No such region", "Nomad has no region %q%s%s", s.region, fromEnvironment(s.places[attrRegion], "NOMAD_REGION"), backend.Alternatives(s.region, regions)))
	case answer.Code == backend.Unauthorised && !s.hasToken:
		return at(s.mistake(attrToken, "Nomad wants a token", "Set token in the backend block, or NOMAD_TOKEN in the environment: %s.", answer.Message))
	case answer.Code == backend.Unauthorised:
		return at(s.mistake(attrToken, "Nomad refuses the token", "%s.", answer.Message))
	case strings.Contains(says, "nonexistent namespace"):
		return at(s.mistake(attrNamespace, "No such namespace", "%s.", answer.Message))
	case strings.Contains(says, "node pool"):
		return at(s.mistake(attrNodePool, "No such node pool", "%s.", answer.Message))
	case strings.Contains(says, "constraint") && len(s.constraints) > 0:
		return at(backend.Mistake(s.constraintsAt[0], "Nomad refuses a constraint", "%s.", answer.Message))
	}
	return nil
}

// mistakes gives what in the block the cluster has not, each at its place.
func (s settings) mistakes(ctx context.Context, nodes []*api.NodeListStub, gpus bool) hcl.Diagnostics {
	var diags hcl.Diagnostics
	if has, known := s.namespaces(ctx); known && !slices.Contains(has, s.namespace) {
		diags = append(diags, s.mistake(attrNamespace, "No such namespace", "Nomad has no namespace %q for this token%s", s.namespace, backend.Alternatives(s.namespace, has)))
	}
	if has, known := s.pools(ctx, nodes); s.nodePool != nil && known && !slices.Contains(has, *s.nodePool) {
		return append(diags, s.mistake(attrNodePool, "No such node pool", "Nomad has no node pool %q%s", *s.nodePool, backend.Alternatives(*s.nodePool, has)))
	}
	dcs := map[string]int{}
	for _, n := range nodes {
		dcs[n.Datacenter]++
	}
	for _, want := range s.datacenters {
		if len(dcs) > 0 && !slices.ContainsFunc(sortedKeys(dcs), func(dc string) bool { return matches(want, dc) }) {
			diags = append(diags, s.mistake(attrDatacenters, "No such datacenter", "No node is in a datacenter %q%s", want, backend.Alternatives(want, sortedKeys(dcs))))
		}
	}
	if diags.HasErrors() {
		return diags
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *api.NodeListStub) bool { return !s.reaches(n) })
	return append(s.driverMistakes(nodes), s.deviceMistakes(nodes, gpus)...)
}

// driverMistakes says that none of the nodes has the driver.
func (s settings) driverMistakes(nodes []*api.NodeListStub) hcl.Diagnostics {
	has := map[string]int{}
	for _, n := range nodes {
		for name, d := range n.Drivers {
			if d.Detected {
				has[name]++
			}
		}
	}
	if len(nodes) == 0 || has[s.driver] > 0 {
		return nil
	}
	advice := ""
	if s.driver == "raw_exec" {
		advice = ` It is off by default: plugin "raw_exec" { config { enabled = true } } in the configuration of the clients allows it.`
	}
	return hcl.Diagnostics{s.mistake(attrDriver, "No node has the driver", "None of the %d nodes that the job may run on has the driver %q%s%s",
		len(nodes), s.driver, backend.Alternatives(s.driver, sortedKeys(has)), advice)}
}

// deviceMistakes says that the nodes have devices, and none that is called so.
func (s settings) deviceMistakes(nodes []*api.NodeListStub, gpus bool) hcl.Diagnostics {
	names := map[string]bool{}
	for _, n := range nodes {
		if n.NodeResources == nil {
			continue
		}
		for _, d := range n.NodeResources.Devices {
			if wanted(s.device, d) {
				return nil
			}
			names[d.Vendor+"/"+d.Type], names[d.ID()] = true, true
		}
	}
	if len(names) == 0 || !gpus {
		return nil // nodes with devices may come later
	}
	return hcl.Diagnostics{s.mistake(attrDevice, "No such device", "No node has a device %q%s", s.device, backend.Alternatives(s.device, slices.Sorted(maps.Keys(names))))}
}

// reaches says whether the job's datacenters and node pool hold the node.
func (s settings) reaches(n *api.NodeListStub) bool {
	pool := api.NodePoolDefault
	if s.nodePool != nil {
		pool = *s.nodePool
	}
	in := len(s.datacenters) == 0 || slices.ContainsFunc(s.datacenters, func(want string) bool { return matches(want, n.Datacenter) })
	return in && (pool == api.NodePoolAll || n.NodePool == pool)
}

// matches reports whether a name is what was asked for, which may have wildcards.
func matches(want, name string) bool {
	ok, err := path.Match(want, name)
	return ok && err == nil
}

// namespaces are those that the token sees.
func (s settings) namespaces(ctx context.Context) (names []string, known bool) {
	q, cancel := s.read(ctx)
	defer cancel()
	all, _, err := s.client.Namespaces().List(q)
	for _, ns := range all {
		names = append(names, ns.Name)
	}
	slices.Sort(names)
	return names, err == nil && len(names) > 0
}

// pools are the node pools that there are; known is false where the token may not see all of them.
func (s settings) pools(ctx context.Context, nodes []*api.NodeListStub) (names []string, known bool) {
	q, cancel := s.read(ctx)
	defer cancel()
	all, _, err := s.client.NodePools().List(q)
	for _, p := range all {
		names = append(names, p.Name)
	}
	known = err == nil && slices.Contains(names, api.NodePoolDefault)
	for _, n := range nodes {
		names = append(names, n.NodePool)
	}
	slices.Sort(names)
	return slices.Compact(names), known
}

// unmet gives the constraints that no node meets by itself, or says that none meets all of them. It has Nomad plan a task that asks for nothing else.
func (s settings) unmet(ctx context.Context, like *api.Job) (hcl.Diagnostics, error) {
	var diags hcl.Diagnostics
	for i, c := range s.constraints {
		evaluated, met, err := s.meets(ctx, like, c)
		if err != nil {
			return nil, err
		}
		if evaluated > 0 && !met {
			diags = append(diags, backend.Mistake(s.constraintsAt[i], "No node meets the constraint", "None of the %d nodes that the job may run on meets %q. Look at what they have: nomad node status -verbose NODE.", evaluated, words(c)))
		}
	}
	if len(diags) > 0 || len(s.constraints) < 2 {
		return diags, nil
	}
	evaluated, met, err := s.meets(ctx, like, s.constraints...)
	if err != nil || evaluated == 0 || met {
		return nil, err
	}
	var all []string
	for _, c := range s.constraints {
		all = append(all, fmt.Sprintf("%q", words(c)))
	}
	return hcl.Diagnostics{backend.Mistake(s.constraintsAt[0], "No node meets the constraints", "Each is met by some of the %d nodes that the job may run on, and by none all of them: %s.", evaluated, strings.Join(all, ", "))}, nil
}

// words is a constraint as Nomad writes it.
func words(c *api.Constraint) string {
	return strings.TrimSpace(c.LTarget + " " + c.Operand + " " + c.RTarget)
}

// meets says of how many nodes Nomad looked at whether they meet constraints, and whether one of them does.
func (s settings) meets(ctx context.Context, like *api.Job, cs ...*api.Constraint) (evaluated int, met bool, err error) {
	group := api.NewTaskGroup("asks", 1)
	group.Tasks = []*api.Task{api.NewTask(taskName, s.driver)}
	group.Tasks[0].Config = like.TaskGroups[0].Tasks[0].Config
	group.Tasks[0].Resources = &api.Resources{CPU: ptr(1), MemoryMB: ptr(10)}
	job := *like
	job.Constraints, job.TaskGroups = cs, []*api.TaskGroup{group}
	opts, cancel := s.write(ctx)
	defer cancel()
	answer, _, err := s.client.Jobs().Plan(&job, false, opts)
	if err != nil {
		return 0, false, failed(err, capSubmit, "plan with the constraints of the backend block")
	}
	m := answer.FailedTGAllocs["asks"]
	if m == nil {
		return 1, true, nil
	}
	return m.NodesEvaluated, m.NodesFiltered < m.NodesEvaluated, nil
}
