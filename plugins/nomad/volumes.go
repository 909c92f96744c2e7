package nomad

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// volumeBlock is volume "NAME" { … }: a host volume of the clients, and where the tasks see it.
type volumeBlock struct {
	Source   string    `hcl:"source,label"`
	Path     string    `hcl:"path"`
	ReadOnly *bool     `hcl:"read_only,optional"`
	Range    hcl.Range `hcl:",def_range"`
}

type volume struct {
	source   string // its name in the configuration of the clients
	path     string
	readOnly bool
}

// confines reports whether the driver shows a task a file system of its own, and not that of the node. Of one that there is not, nothing follows.
func confines(driver string) bool { return driver == "exec" || driver == "docker" }

// mounts reads which host volumes the tasks see.
func (d *decoder) mounts(s *settings) {
	for _, b := range d.Volumes {
		switch {
		case s.driver == "raw_exec":
			d.fail(b.Range, "Volume without need", "The driver %q shows tasks the node's own file system: leave volume %q out.", s.driver, b.Source)
		case !path.IsAbs(b.Path):
			d.fail(b.Range, "Unsuitable place for a volume", "path is %q; it is the absolute folder in which tasks see the host volume %q.", b.Path, b.Source)
		case slices.ContainsFunc(s.volumes, func(v volume) bool { return v.path == path.Clean(b.Path) }):
			d.fail(b.Range, "Two volumes in one place", "Another volume has the path %q already.", b.Path)
		}
		s.volumes = append(s.volumes, volume{b.Source, path.Clean(b.Path), b.ReadOnly != nil && *b.ReadOnly})
	}
}

// mount gives the group and its task their volumes.
func (s settings) mount(g *api.TaskGroup, t *api.Task) {
	for i, v := range s.volumes {
		name := fmt.Sprintf("volume-%d", i)
		if g.Volumes == nil {
			g.Volumes = map[string]*api.VolumeRequest{}
		}
		g.Volumes[name] = &api.VolumeRequest{Name: name, Type: "host", Source: v.source, ReadOnly: v.readOnly}
		t.VolumeMounts = append(t.VolumeMounts, &api.VolumeMount{Volume: &name, Destination: ptr(v.path), ReadOnly: ptr(v.readOnly)})
	}
}

// checkShared refuses a folder of the job that the nodes are not said to share.
func (d *decoder) checkShared(s settings, cfg backend.Config) {
	wanted := cfg.Shared
	for _, dir := range d.Shared {
		if !path.IsAbs(dir) {
			d.fail(d.SharedRange, "Unsuitable shared folder", "shared_paths has %q; name absolute folders.", dir)
		}
	}
	for _, dir := range wanted {
		mounted := slices.ContainsFunc(s.volumes, func(v volume) bool { return !v.readOnly && within(v.path, dir) })
		if confines(s.driver) && !mounted {
			d.fail(d.DriverRange, "Folder is not mounted into the tasks",
				"The job keeps %s, and the driver %q shows a task only what is mounted: name a host volume of the clients that holds it, volume \"NAME\" { path = %q }.", dir, s.driver, dir)
		}
	}
	if len(wanted) > 0 && len(d.Shared) == 0 {
		d.add(hcl.DiagWarning, hcl.Range{}, "Nothing says what the nodes share",
			"The job keeps %s, which every node must reach under that path. Name the folders that all clients mount with shared_paths, so that this can be checked.", strings.Join(wanted, ", "))
		return
	}
	for i, dir := range wanted {
		if !slices.ContainsFunc(d.Shared, func(root string) bool { return within(root, dir) }) {
			d.fail(cfg.SharedRange(i, d.SharedRange), "Folder is not shared by the nodes",
				"The job keeps %s, and what one node writes there another must read; shared_paths says that the nodes share only %s. Move the folder into one of these, or name the mount that holds it.",
				dir, strings.Join(d.Shared, ", "))
		}
	}
}

func within(root, dir string) bool {
	root, dir = path.Clean(root), path.Clean(dir)
	return dir == root || root == "/" || strings.HasPrefix(dir, root+"/")
}
