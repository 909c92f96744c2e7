package slurm

import (
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
)

// way is how a cluster is reached. Equal ways share a controller, and so a poll.
type way struct {
	cli
	restWay
}

// controller makes what speaks to the cluster. It asks nothing yet.
func (w way) controller() (controller, error) {
	if w.address == "" {
		return &foreseeing{cli: w.cli}, nil
	}
	return newRest(w.restWay)
}

// reach checks how the cluster is reached: by the command line, or through slurmrestd.
func (d *decoding) reach() {
	b := &d.b
	d.s.way = way{cli{binDir: b.BinDir, clusters: b.Clusters}, restWay{address: b.Rest, tokenFile: b.TokenFile, caCert: b.CACert}}
	d.s.asked[attrBinDir], d.s.asked[attrRest] = asked{b.BinDir, b.BinDirRange}, asked{b.Rest, b.RestRange}
	if b.BinDir != "" && !filepath.IsAbs(b.BinDir) {
		d.fail(b.BinDirRange, "Folder is not absolute", "bin_dir is %q; it is the absolute path of the folder with sbatch, squeue, scontrol and scancel on this machine.", b.BinDir)
	}
	if slices.Contains(strings.Split(b.Clusters, ","), "all") {
		d.fail(b.ClustersRange, "Clusters without names", "clusters is %q; name them: jobs are told apart by the cluster that they are in.", b.Clusters)
	}
	if b.Rest == "" {
		d.only(b, "there is no rest")
		return
	}
	if u, err := url.Parse(b.Rest); err != nil || !(u.Scheme == "unix" && filepath.IsAbs(u.Path) || (u.Scheme == "http" || u.Scheme == "https") && u.Host != "") {
		d.fail(b.RestRange, "Unsuitable address", "rest is %q; it is where slurmrestd listens: \"unix:/run/slurmrestd.socket\", \"https://host:6820\" or \"http://host:6820\".", b.Rest)
		return
	}
	if b.TokenFile != "" && !filepath.IsAbs(b.TokenFile) {
		d.fail(b.TokenFileRange, "Path is not absolute", "token_file is %q; it is the absolute path of a file with what scontrol token prints.", b.TokenFile)
	}
	d.s.asked[attrToken] = asked{b.Rest, b.RestRange}
	if b.TokenFile != "" {
		d.s.asked[attrToken] = asked{b.TokenFile, b.TokenFileRange}
	}
	if b.Clusters != "" {
		d.fail(b.ClustersRange, "Clusters without the command line", "slurmrestd speaks for one cluster: name that of the cluster in rest, or leave rest out.")
	}
	if b.BinDir != "" {
		d.fail(b.BinDirRange, "Programs that are not used", "rest says that slurmrestd is asked, and bin_dir where Slurm's programs are; keep one of them.")
	}
	if b.CACert != "" {
		if _, err := newRest(d.s.way.restWay); err != nil {
			d.fail(b.CACertRange, "Certificates cannot be read", "%v.", err)
		}
	}
	places := d.keys("properties")
	for _, name := range slices.Sorted(maps.Keys(b.Properties)) {
		at, known := places[name]
		if !known {
			at = b.PropertiesRange
		}
		if isOurs(name) {
			d.fail(at, "Property collides with the backend", "properties has %q, which the backend sets itself, from the attributes of this block or the job's.", name)
			continue
		}
		d.s.named = append(d.s.named, asked{name, at})
		d.perProcess(name, asked{b.Properties[name], at})
	}
	d.s.properties = b.Properties
	d.ownDirectives()
}

// only says which attributes mean nothing without slurmrestd.
func (d *decoding) only(b *block, why string) {
	for _, a := range []struct {
		name string
		set  bool
		at   hcl.Range
	}{{"token_file", b.TokenFile != "", b.TokenFileRange}, {"ca_cert", b.CACert != "", b.CACertRange}, {"properties", len(b.Properties) > 0, b.PropertiesRange}} {
		if a.set {
			d.fail(a.at, "Attribute without slurmrestd", "%s is for slurmrestd, and %s: add rest, or take it out.", a.name, why)
		}
	}
}

// ownDirectives refuses options of sbatch, which slurmrestd does not take, each at its own place.
func (d *decoding) ownDirectives() {
	for _, a := range d.s.directives {
		d.fail(a.at, "Directive without the command line", "%q is an option of sbatch, which slurmrestd does not take: use properties (\"licenses\", \"mail_type\", …), or leave rest out.", a.value)
	}
}

// ourProperties are the properties of a job that the backend sets itself.
var ourProperties = strings.Fields(`name comment nodes minimum_nodes maximum_nodes tasks tasks_per_node requeue no_requeue cpus_per_task current_working_directory standard_output
	standard_error standard_input open_mode partition account qos reservation constraints memory_per_node memory_per_cpu time_limit nice priority environment exclude_nodes
	excluded_nodes gres gpus gpus_per_node tres_per_node tres_per_job array hold script user_id group_id signal`)

func isOurs(property string) bool { return slices.Contains(ourProperties, property) }
