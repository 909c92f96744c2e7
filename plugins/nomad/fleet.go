package nomad

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/kale-sched/kale/core/backend"
)

// fleet is one look at a cluster's nodes and at what holds their devices.
type fleet struct {
	device string
	nodes  []*api.NodeListStub
	held   map[string]string // node and device → who holds it
}

func sortedKeys(m map[string]int) []string { return slices.Sorted(maps.Keys(m)) }

// fleet looks at the cluster. jobs are the configured ones: their workloads are called by name.
func (s settings) fleet(ctx context.Context, jobs []string) (fleet, error) {
	f := fleet{device: s.device, held: map[string]string{}}
	var allocs []*api.AllocationListStub
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		f.nodes, err = s.nodes(ctx)
		return err
	})
	g.Go(func() (err error) {
		allocs, err = s.allocations(ctx, api.AllNamespacesNamespace, `ClientStatus != "complete" and ClientStatus != "failed" and ClientStatus != "lost"`)
		return err
	})
	if err := g.Wait(); err != nil {
		return fleet{}, err
	}
	for _, a := range allocs {
		if a.AllocatedResources == nil {
			continue
		}
		for _, task := range a.AllocatedResources.Tasks {
			for _, d := range task.Devices {
				for _, id := range d.DeviceIDs {
					f.held[a.NodeID+"/"+id] = holder(a.JobID, jobs)
				}
			}
		}
	}
	return f, nil
}

// holder gives the workload's name in Kale, or the Nomad job's where it is none of ours.
func holder(nomadJobID string, jobs []string) string {
	for _, job := range jobs {
		if rest, ok := strings.CutPrefix(nomadJobID, jobPrefix(job)); ok {
			if id, err := backend.ParseID(rest); err == nil {
				return job + "/" + id.String()
			}
		}
	}
	return nomadJobID
}

// wanted reports whether a group of devices is what the settings' device means.
func wanted(device string, d *api.NodeDeviceResource) bool {
	switch strings.Count(device, "/") {
	case 0:
		return d.Type == device
	case 1:
		return d.Vendor+"/"+d.Type == device
	}
	return d.ID() == device
}

// inventory counts the devices of nodes that can take work and that one of the jobs reaches. What is on another node is neither there nor free.
func (f fleet) inventory(jobs ...settings) backend.Inventory {
	var inv backend.Inventory
	slices.SortFunc(f.nodes, func(a, b *api.NodeListStub) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	for _, n := range f.nodes {
		if n.Status != "ready" || n.NodeResources == nil || !slices.ContainsFunc(jobs, func(s settings) bool { return s.reaches(n) }) {
			continue
		}
		takes := n.SchedulingEligibility == api.NodeSchedulingEligible && !n.Drain
		inv.CPUMilli += 1000 * int(n.NodeResources.Cpu.TotalCpuCores)
		inv.MemoryBytes += n.NodeResources.Memory.MemoryMB << 20
		inv.NodeMemoryBytes = max(inv.NodeMemoryBytes, n.NodeResources.Memory.MemoryMB<<20)
		for _, group := range n.NodeResources.Devices {
			if !wanted(f.device, group) {
				continue
			}
			for _, d := range group.Instances {
				by := f.held[n.ID+"/"+d.ID]
				if !d.Healthy || !takes && by == "" {
					continue
				}
				inv.Total++
				if by == "" {
					inv.Free++
				}
				inv.Devices = append(inv.Devices, backend.Device{ID: d.ID, Node: n.Name, Model: group.Name, MemoryBytes: memoryOf(group), HeldBy: by})
			}
		}
	}
	return inv
}

// silent names the nodes that the job's workloads could be on and that Nomad does not hear. Nomad goes on to list a client that was replaced under its name.
func (s settings) silent(nodes []*api.NodeListStub) (names []string) {
	heard := func(name string) bool {
		return slices.ContainsFunc(nodes, func(n *api.NodeListStub) bool { return n.Name == name && n.Status == api.NodeStatusReady })
	}
	for _, n := range nodes {
		if (n.Status == api.NodeStatusDown || n.Status == api.NodeStatusDisconnected) && s.reaches(n) && !heard(n.Name) {
			names = append(names, n.Name)
		}
	}
	return names
}

// memoryOf gives a device's memory in bytes, 0 when its plugin does not say.
func memoryOf(d *api.NodeDeviceResource) int64 {
	a := d.Attributes["memory"]
	if a == nil || a.IntVal == nil {
		return 0
	}
	switch a.Unit {
	case "MiB":
		return *a.IntVal << 20
	case "GiB":
		return *a.IntVal << 30
	case "MB":
		return *a.IntVal * 1_000_000
	case "GB":
		return *a.IntVal * 1_000_000_000
	}
	return 0
}

// Inventory implements backend.Backend. Each cluster that a configured job uses counts once, with the nodes of the jobs' datacenters and node pools.
func (n *nomad) Inventory(ctx context.Context) (backend.Inventory, error) {
	if err := ctx.Err(); err != nil {
		return backend.Inventory{}, backend.Errorf(backend.Unavailable, "take the inventory: %w", err)
	}
	all := n.jobs.All()
	jobs := slices.Sorted(maps.Keys(all))
	clusters := map[string][]settings{}
	for _, job := range jobs {
		s := all[job]
		clusters[s.cluster+" "+s.device] = append(clusters[s.cluster+" "+s.device], s)
	}
	var inv backend.Inventory
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		f, err := clusters[name][0].fleet(ctx, jobs)
		if err != nil {
			return backend.Inventory{}, err
		}
		one := f.inventory(clusters[name]...)
		for _, s := range all {
			if s.cluster == clusters[name][0].cluster {
				inv.Silent = append(inv.Silent, s.silent(f.nodes)...)
			}
		}
		inv.Total, inv.Free, inv.Devices = inv.Total+one.Total, inv.Free+one.Free, append(inv.Devices, one.Devices...)
		inv.CPUMilli, inv.MemoryBytes = inv.CPUMilli+one.CPUMilli, inv.MemoryBytes+one.MemoryBytes
		inv.NodeMemoryBytes = max(inv.NodeMemoryBytes, one.NodeMemoryBytes) // its CPUs are shares of MHz, and what a core of them is the job's block says
	}
	slices.Sort(inv.Silent)
	inv.Silent, inv.QueueWait = slices.Compact(inv.Silent), n.queueWait(ctx, all)
	return inv, nil
}
