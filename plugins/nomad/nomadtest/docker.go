package nomadtest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Image is the container image that clusters with the driver docker have: what a chroot has for the driver exec.
const Image = "kale-test:1"

// dockerPrograms are what a Docker of one's own takes: dockerd starts the others.
var dockerPrograms = []string{"dockerd", "containerd", "containerd-shim-runc-v2", "runc"}

// MissingDocker says what this machine lacks, beyond Missing, to run tasks by the driver docker; it is empty when it lacks nothing.
func MissingDocker() string {
	if why := Missing(); why != "" {
		return why
	}
	if os.Geteuid() != 0 {
		return "Nomad's driver docker is not tried: a Docker of its own takes root"
	}
	if err := exec.Command("unshare", "-m", "true").Run(); err != nil {
		return "Nomad's driver docker is not tried: a Docker of its own takes mount namespaces, and unshare -m says: " + err.Error()
	}
	for _, name := range dockerPrograms {
		if _, err := exec.LookPath(name); err != nil {
			return "Nomad's driver docker is not tried: " + err.Error() + ": apt-get install docker.io"
		}
	}
	return ""
}

// dockerSocket is where the cluster's own Docker listens.
func (c *Cluster) dockerSocket() string { return filepath.Join(c.dir, "docker", "d.sock") }

// startDocker starts a Docker that is the cluster's alone, and gives it Image. It makes no networks: tasks have the node's.
func (c *Cluster) startDocker(ctx context.Context, env []string) error {
	dir := filepath.Join(c.dir, "docker")
	root := filepath.Join(dir, "image")
	if err := populate(root, c.opts.Extra); err != nil {
		return err
	}
	config := filepath.Join(dir, "daemon.json")                                                               // not the machine's own
	if err := os.WriteFile(config, []byte(`{"runtimes": {"nvidia": {"path": "runc"}}}`), 0o600); err != nil { // Nomad takes that one for tasks with GPUs
		return err
	}
	c.docker = &agent{name: "docker", dir: dir, env: env, argv: []string{
		"dockerd", "--config-file", config, "--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"),
		"--host", "unix://" + c.dockerSocket(), "--iptables=false", "--bridge=none", "--storage-driver=vfs",
		"--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent=/" + cgroup(c.dir),
	}}
	if err := c.docker.start(); err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.dockerSocket())
	}}}
	defer client.CloseIdleConnections()
	if err := c.poll(ctx, c.docker, "Docker answers", func(q *api.QueryOptions) error {
		return docker(q.Context(), client, http.MethodGet, "/_ping", nil)
	}); err != nil {
		return err
	}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(pack(writer, root)) }() // ends with its reader
	name, tag, _ := strings.Cut(Image, ":")
	err := docker(ctx, client, http.MethodPost, "/images/create?fromSrc=-&repo="+url.QueryEscape(name)+"&tag="+url.QueryEscape(tag), reader)
	_ = reader.Close() // it has no errors
	return err
}

// docker asks Docker for something.
func docker(ctx context.Context, client *http.Client, method, path string, body io.Reader) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://docker"+path, body)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask Docker for %s: %w", path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && (resp.StatusCode != http.StatusOK || strings.Contains(string(answer), `"error"`)) { // of an import that fails halfway, the status is 200
		err = errors.New(resp.Status + ": " + string(answer))
	}
	if err != nil {
		return fmt.Errorf("ask Docker for %s: %w", path, err)
	}
	return nil
}

// pack writes a folder as a tar archive.
func pack(w io.Writer, root string) error {
	out := tar.NewWriter(w)
	if err := out.AddFS(os.DirFS(root)); err != nil {
		return err
	}
	return out.Close()
}
