package nomadtest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kale-sched/kale/core/backend/loopback"
)

// configure writes the agents' files.
func (c *Cluster) configure(bin binaries) error {
	ports, err := loopback.FreePorts(3 + c.opts.Clients)
	if err != nil {
		return err
	}
	for _, dir := range []string{c.Shared(), c.Private()} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		if err := os.Chmod(dir, 0o777); err != nil { // whatever the umask
			return err
		}
	}
	tls := ""
	if c.opts.TLS {
		if _, err := WriteCA(c.dir); err != nil {
			return err
		}
		cert, key := c.ClientCert()
		tls = fmt.Sprintf(tlsConfig, c.CACert(), cert, key)
	}
	chroot := ""
	if slices.Contains(c.opts.Drivers, "exec") {
		root := filepath.Join(c.dir, "root")
		if err := populate(root, c.opts.Extra); err != nil {
			return err
		}
		chroot = fmt.Sprintf(chrootConfig, root)
	}
	volumes := ""
	for _, name := range slices.Sorted(maps.Keys(c.opts.Volumes)) {
		volumes += fmt.Sprintf(volumeConfig, name, c.opts.Volumes[name])
	}
	docker := ""
	if slices.Contains(c.opts.Drivers, "docker") {
		docker = fmt.Sprintf(dockerConfig, "unix://"+c.dockerSocket())
	}
	env, err := c.agentsEnv()
	if err != nil {
		return err
	}
	c.server, err = c.newAgent("server", ports[0], bin, env, fmt.Sprintf(serverConfig, ports[0], ports[1], ports[2], c.opts.ACL)+tls)
	if err != nil {
		return err
	}
	for i := range c.opts.Clients {
		name := fmt.Sprintf("n%d", i+1)
		port := ports[3+i]
		text := fmt.Sprintf(clientConfig, port, ports[1], cgroup(c.dir), strings.Join(c.opts.Drivers, ","), c.Shared(), c.opts.ACL, bin.plugins, c.opts.GPUs, "GPU-"+name)
		a, err := c.newAgent(name, port, bin, env, text+volumes+chroot+docker+tls)
		if err != nil {
			return err
		}
		if c.private {
			own := filepath.Join(a.dir, "private")
			if err := os.Mkdir(own, 0o777); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			script := `mount --bind "$1" "$2" && shift 2 && exec "$@"`
			a.argv = append([]string{"unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", own, c.Private()}, a.argv...)
		}
		c.clients = append(c.clients, a)
	}
	return nil
}

func (c *Cluster) scheme() string {
	if c.opts.TLS {
		return "https"
	}
	return "http"
}

// longestTemp is how long the path of a folder for temporary files may be: an agent's drivers have sockets in it, whose paths may have 103 bytes.
const longestTemp = 103 - len("/plugin4294967295")

// agentsEnv is the environment of the agents. Where the path is short enough their temporary files are in the cluster's folder: what those leave that are
// killed goes with it.
func (c *Cluster) agentsEnv() ([]string, error) {
	env := append(os.Environ(), envMark+"="+c.dir)
	tmp := filepath.Join(c.dir, "tmp")
	if len(tmp) > longestTemp {
		return env, nil
	}
	if err := os.MkdirAll(tmp, 0o777); err != nil {
		return nil, err
	}
	return append(env, "TMPDIR="+tmp), os.Chmod(tmp, 0o777|os.ModeSticky) // whatever the umask
}

func (c *Cluster) newAgent(name string, port int, bin binaries, env []string, config string) (*agent, error) {
	a := &agent{name: name, dir: filepath.Join(c.dir, name), address: fmt.Sprintf("%s://127.0.0.1:%d", c.scheme(), port), env: env}
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return nil, err
	}
	config = fmt.Sprintf("name = %q\ndata_dir = %q\n", name, filepath.Join(a.dir, "data")) + config
	file := filepath.Join(a.dir, "agent.hcl")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	a.argv = []string{bin.nomad, "agent", "-config", file}
	return a, nil
}

const common = `
bind_addr = "127.0.0.1"
log_level = "WARN"
disable_update_check = true
leave_on_terminate = false
limits {
  http_max_conns_per_client = 1000 # the tests of a package are many clients on one host; 100 is Nomad's own
}
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
consul {
  auto_advertise      = false
  server_auto_join    = false
  client_auto_join    = false
}
`

const serverConfig = common + `
ports {
  http = %d
  rpc  = %d
  serf = %d
}
server {
  enabled          = true
  bootstrap_expect = 1
  heartbeat_grace  = "2s"
  min_heartbeat_ttl = "1s"
  max_heartbeats_per_second = 1000
  failover_heartbeat_ttl = "10s"
  raft_multiplier  = 1
}
acl {
  enabled = %t
}
`

// clientConfig is of an agent that keeps what has ended, and its output, however full the machine's disk is: by default Nomad removes it at once when that is more
// than four fifths.
const clientConfig = common + `
ports {
  http = %d
}
client {
  enabled            = true
  servers            = ["127.0.0.1:%d"]
  network_interface  = "lo"
  cpu_total_compute  = 64000
  memory_total_mb    = 64000
  min_dynamic_port   = 20000
  gc_interval        = "1h"
  gc_disk_usage_threshold  = 100
  gc_inode_usage_threshold = 100
  cgroup_parent      = %q
  options = {
    "driver.allowlist"     = %q
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault,cni,bridge,landlock,secrets_plugins"
  }
  host_volume "shared" {
    path = %q
  }
}
acl {
  enabled = %t
}
plugin_dir = %q
plugin "raw_exec" {
  config {
    enabled = true
  }
}
plugin "fakegpu" {
  config {
    count  = %d
    prefix = %q
  }
}
`

const tlsConfig = `
tls {
  http                   = true
  rpc                    = true
  verify_server_hostname = true
  verify_https_client    = true
  ca_file                = %q
  cert_file              = %q
  key_file               = %q
}
`

// chrootConfig is what tasks of the driver exec see of the node.
const chrootConfig = `
client {
  chroot_env {
    %q = "/"
  }
}
`

const volumeConfig = `
client {
  host_volume %q {
    path = %q
  }
}
`

// dockerConfig is of clients that share one Docker: none of them may end what it does not know.
const dockerConfig = `
plugin "docker" {
  config {
    endpoint = %q
    gc {
      image = false
      dangling_containers {
        enabled = false
      }
    }
  }
}
`
