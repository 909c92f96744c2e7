package nomad

import (
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// avoid gives the nodes, by ID, that new workloads are to be kept off: on them something of the job may still run that
// Nomad cannot reach, or has given up. Its GPUs look free there, when the node is back, before its client has ended it.
func avoid(p picture) []string {
	var ids []string
	for _, v := range p.views {
		for _, a := range v.allocs {
			gone := a.ClientStatus == api.AllocClientStatusLost || a.ClientStatus == api.AllocClientStatusUnknown
			if gone && v.nodes[a.NodeID] != nil && !slices.Contains(ids, a.NodeID) {
				ids = append(ids, a.NodeID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// offNodes keeps a workload off the nodes that it is to avoid, by name.
func offNodes(names []string) (cs []*api.Constraint) {
	for _, name := range names {
		cs = append(cs, api.NewConstraint("${node.unique.name}", "!=", name))
	}
	return cs
}

// nodeID is the attribute that avoided nodes are told by.
const nodeID = "${node.unique.id}"

// keepOff makes the Nomad job keep off these nodes, and no others.
func keepOff(job *api.Job, ids []string) {
	letGo(job)
	if len(ids) == 0 {
		return
	}
	job.Meta[metaAvoid] = strings.Join(ids, ",")
	for _, id := range ids {
		job.Constraints = append(job.Constraints, api.NewConstraint(nodeID, "!=", id))
	}
}

// letGo undoes keepOff. What it changes is job's own afterwards.
func letGo(job *api.Job) {
	old := strings.Split(job.Meta[metaAvoid], ",")
	job.Constraints = slices.DeleteFunc(slices.Clone(job.Constraints), func(c *api.Constraint) bool {
		return c.LTarget == nodeID && c.Operand == "!=" && slices.Contains(old, c.RTarget)
	})
	meta := map[string]string{}
	for k, v := range job.Meta {
		if k != metaAvoid {
			meta[k] = v
		}
	}
	job.Meta = meta
}

// keepsOff says for people which nodes the workload is kept off; empty when off none.
func (v view) keepsOff() string {
	if v.job.Meta[metaAvoid] == "" {
		return ""
	}
	var names []string
	for _, id := range strings.Split(v.job.Meta[metaAvoid], ",") {
		name := id
		if n := v.nodes[id]; n != nil {
			name = n.Name
		}
		names = append(names, name)
	}
	return "until it is known to be over there, it keeps off what the job may still run on: " + strings.Join(names, ", ")
}

// steer keeps workloads that wait for a place off the nodes that are to be avoided now, and off no others: since they were
// submitted nodes were lost, and came back.
func (n *nomad) steer(ctx context.Context, s settings, job string, p picture) {
	ids := avoid(p)
	for _, v := range p.views {
		if v.released || v.job.Stop || len(v.allocs) > 0 || v.job.Meta[metaAvoid] == strings.Join(ids, ",") {
			continue
		}
		if err := s.keepOff(ctx, v, ids); err != nil {
			n.lg.Warn("cannot tell Nomad which nodes a workload is to keep off now; it is tried again", "job", job, "id", v.id.String(), "nodes", ids, "err", err)
			continue
		}
		n.lg.Info("a workload that waits keeps off other nodes than before", "job", job, "id", v.id.String(), "nodes", ids)
	}
}

// keepOff changes what the workload keeps off, unless somebody else changes its Nomad job. Where Nomad has placed it
// meanwhile, it stays, unless it is on one of these nodes.
func (s settings) keepOff(ctx context.Context, v view, ids []string) error {
	q, cancel := s.read(ctx)
	defer cancel()
	now, _, err := s.client.Jobs().Info(v.job.ID, q)
	if err != nil {
		return failed(err, capRead, "read the Nomad job of %s", v.id)
	}
	keepOff(now, ids)
	opts, cancelCall := s.write(ctx)
	defer cancelCall()
	if _, _, err := s.client.Jobs().RegisterOpts(now, &api.RegisterOptions{EnforceIndex: true, ModifyIndex: *now.JobModifyIndex}, opts); err != nil {
		return failed(err, capSubmit, "change the Nomad job of %s", v.id)
	}
	return nil
}
