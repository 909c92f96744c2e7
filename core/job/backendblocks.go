package job

import (
	"fmt"
	"strings"
)

// bodyAttribute is an attribute, or a block where its kind ends with braces, of a backend block's body. The plugin decodes it; here it is only described.
type bodyAttribute struct{ name, kind, doc string }

// backendBodies are the bodies of the backend blocks of Kale's own plugins.
var backendBodies = []struct {
	label string
	attrs []bodyAttribute
}{
	{"local", []bodyAttribute{
		{"slots", "number", "How many processes with one GPU this machine runs when it uses none; default: its number of CPUs."},
		{"gpus", "string", `"auto" (default): the GPUs that NVML finds, each given out once on the machine, else slots; "none": slots.`},
		{"dir", "string", "Folder for what the processes write, whose jobs share its slots; default: below the state folder."},
		{"trainer", "string", "Path of kale-trainer; default: what -trainer names, else beside kale, then $PATH."},
		{"env", "map of strings", "Environment variables of the processes, in place of Kale's own, such as KALE_ONNXRUNTIME; only their folder and their GPUs are Kale's to set."},
	}},
	{"nomad", []bodyAttribute{
		{"address", "string", "URL of Nomad's API; default $NOMAD_ADDR."},
		{"region", "string", "Default $NOMAD_REGION."},
		{"namespace", "string", "Default $NOMAD_NAMESPACE."},
		{"token", "string", "Default $NOMAD_TOKEN, which is the better place for it."},
		{"ca_cert", "string", "File of the authority of the agents' certificates; default $NOMAD_CACERT."},
		{"client_cert", "string", "File; default $NOMAD_CLIENT_CERT."},
		{"client_key", "string", "File; default $NOMAD_CLIENT_KEY."},
		{"tls_server_name", "string", "Default $NOMAD_TLS_SERVER_NAME."},
		{"driver", "string", `"raw_exec" (default), "exec" or "docker".`},
		{"image", "string", "Container image, with the driver docker."},
		{"user", "string", "User whose the tasks are."},
		{"trainer", "string", "Absolute path of kale-trainer on the nodes or in the image."},
		{"artifact", "{ source, checksum }", "Where a node gets the trainer from that has none: an address and its SHA-256."},
		{"env", "map of strings", "Environment variables on the nodes, in place of Kale's own, such as KALE_ONNXRUNTIME."},
		{"volume", `"NAME" { path, read_only }`, "A host volume of the nodes, and where it is mounted; may be repeated."},
		{"constraint", "{ attribute, operator, value }", "Which nodes may be used, as in a Nomad job; may be repeated."},
		{"device", "string", `How Nomad calls the GPUs; default "nvidia/gpu".`},
		{"mhz_per_cpu", "number", "What one CPU of the job file counts for in Nomad's unit; default 1000."},
		{"priority", "number", "Of the Nomad jobs."},
		{"datacenters", "list of strings", "Default: all."},
		{"node_pool", "string", "Default: the namespace's."},
		{"shared_paths", "list of strings", "What the nodes share: a checkpoint folder elsewhere is refused."},
		{"drift", "string", `What becomes of changes that others make: "report" (default), "restore" or "adopt".`},
	}},
	{"slurm", []bodyAttribute{
		{"shared_dir", "string", "Folder for scripts, logs and records, which the nodes and this machine reach by the same absolute path; required."},
		{"shared_paths", "list of strings", "What else they share: a checkpoint folder that is neither here nor below shared_dir is refused."},
		{"trainer", "string", "Absolute path of kale-trainer on the nodes."},
		{"artifact", "{ source, checksum, cache }", "Where a node gets the trainer from that has none: an address or a path, its SHA-256, and a folder to keep it in."},
		{"env", "map of strings", "Environment variables on the nodes, in place of Kale's own, such as KALE_ONNXRUNTIME."},
		{"partition", "string", "As sbatch's option of that name."},
		{"account", "string", "As sbatch's option of that name."},
		{"qos", "string", "As sbatch's option of that name."},
		{"reservation", "string", "As sbatch's option of that name."},
		{"constraint", "string", "As sbatch's option of that name."},
		{"exclude", "string", "Nodes that are not used."},
		{"gres", "string", `How GPUs are asked for; default "gpu:%d"; "" asks for none.`},
		{"gpus", "string", `The same with gpus-per-node, such as "h200:%d".`},
		{"nice", "number", "As sbatch's option of that name."},
		{"priority", "number", "As sbatch's option of that name."},
		{"time", "string", `Time limit of each process, such as "12h" or "1-0"; before it, a successor takes over.`},
		{"prologue", "list of strings", "Lines of shell before the trainer."},
		{"directives", "list of strings", "Further options of sbatch, one in each."},
		{"clusters", "string", "Names of clusters that share a database, separated by commas."},
		{"bin_dir", "string", "Folder of sbatch, squeue, scontrol and scancel; default: $PATH."},
		{"rest", "string", "Where slurmrestd listens, to be asked instead: unix:/PATH, https://HOST:PORT or http://HOST:PORT."},
		{"token_file", "string", "File of the token for slurmrestd; default: $SLURM_JWT."},
		{"ca_cert", "string", "File of the authority of slurmrestd's certificate; default: the system's."},
		{"properties", "map of strings", "Further properties of the jobs, for slurmrestd."},
		{"max_pending", "number", "How many of the job's processes may wait in the queue; default 16; 0: only what fits now."},
		{"poll", "duration", `Longest time between two looks at the queue; default "5s".`},
	}},
}

// describeBackends describes the bodies of backend blocks.
func describeBackends(out *strings.Builder, width int) {
	for _, b := range backendBodies {
		fmt.Fprintf(out, "\nbackend %q {\n", b.label)
		for _, a := range b.attrs {
			fmt.Fprintf(out, "  %-20s %s\n", a.name, a.kind)
			for _, line := range wrap(a.doc, width-6) {
				fmt.Fprintf(out, "      %s\n", line)
			}
		}
		out.WriteString("}\n")
	}
}
