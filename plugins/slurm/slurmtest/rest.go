package slurmtest

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MissingRest says what to install for Options.Rest to work, "" when all is there.
func MissingRest() string {
	if why := Missing(); why != "" {
		return why
	}
	if _, err := find("slurmrestd"); err != nil {
		return "slurmrestd is not here: apt-get install slurmrestd slurm-wlm-jwt-plugin"
	}
	for _, pattern := range []string{"/usr/lib/*/slurm*/auth_jwt.so", "/usr/lib*/slurm*/auth_jwt.so", "/usr/local/lib/slurm*/auth_jwt.so", "/opt/slurm/lib/slurm*/auth_jwt.so"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return ""
		}
	}
	return "Slurm's plugin auth/jwt is not here: apt-get install slurm-wlm-jwt-plugin"
}

func (c *Cluster) jwtKey() string   { return filepath.Join(c.dir, "jwt.key") }
func (c *Cluster) restDir() string  { return filepath.Join(c.dir, "rest") }
func (c *Cluster) restSock() string { return filepath.Join(c.restDir(), "socket") }

// Rest is where slurmrestd listens, as a backend block's rest names it.
func (c *Cluster) Rest() string { return "unix:" + c.restSock() }

// TokenFile is a file with a token for this user that is good for a day.
func (c *Cluster) TokenFile() string { return filepath.Join(c.dir, "token") }

// layRest makes the key with which tokens are signed.
func (c *Cluster) layRest() error {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	return os.WriteFile(c.jwtKey(), key, 0o600)
}

// startRest starts slurmrestd, which takes tokens, and waits until it listens.
func (c *Cluster) startRest(ctx context.Context) error {
	if why := MissingRest(); why != "" {
		return errors.New(why)
	}
	if err := os.MkdirAll(c.restDir(), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(c.dir, 0o755); err != nil { // slurmrestd is somebody else, if this is root
		return err
	}
	args := []string{"-a", "rest_auth/jwt", "-s", c.restPlugins(ctx)}
	env := []string{"SLURM_JWT=daemon"}
	if os.Getuid() == 0 { // it refuses to be root, nor Slurm's own user
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return err
		}
		uid, err := strconv.Atoi(nobody.Uid)
		if err != nil {
			return err
		}
		if err := os.Chown(c.restDir(), uid, -1); err != nil {
			return err
		}
		args = append(args, "-u", nobody.Username)
	} else {
		env = append(env, "SLURMRESTD_SECURITY=disable_user_check")
	}
	var err error
	if c.restd, err = c.launchFound(env, "slurmrestd", append(args, c.Rest())...); err != nil {
		return err
	}
	token, err := c.Run(ctx, "scontrol", "token", "lifespan=86400", "username="+User())
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.TokenFile(), []byte(token), 0o600); err != nil {
		return err
	}
	return c.wait(ctx, "slurmrestd listens", func(context.Context) error {
		if !c.restd.alive() {
			return errors.New("slurmrestd has ended")
		}
		conn, err := net.DialTimeout("unix", c.restSock(), time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// restPlugins gives the interfaces that this slurmrestd has; the database's only with accounts, without which they are fatal.
func (c *Cluster) restPlugins(ctx context.Context) string {
	path, err := find("slurmrestd")
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-s", "list")
	if nobody, err := user.Lookup("nobody"); err == nil && os.Getuid() == 0 {
		cmd = exec.CommandContext(ctx, "setpriv", "--reuid="+nobody.Uid, "--regid="+nobody.Gid, "--clear-groups", path, "-s", "list")
	}
	cmd.Env = c.Env()
	out, _ := cmd.CombinedOutput() // it ends as if that were a mistake
	var plugins []string
	for word := range strings.FieldsSeq(string(out)) {
		database := strings.HasPrefix(word, "openapi/dbv") || word == "openapi/slurmdbd"
		if strings.HasPrefix(word, "openapi/") && (!database || c.opt.Accounting) {
			plugins = append(plugins, word)
		}
	}
	return strings.Join(plugins, ",")
}
