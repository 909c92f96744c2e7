package slurmtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// accountingPrograms are what accounts need beside programs.
var accountingPrograms = []string{"slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-install-db"}

// MissingAccounting says what to install for Options.Accounting to work, "" when all is there.
func MissingAccounting() string {
	if why := Missing(); why != "" {
		return why
	}
	for _, p := range accountingPrograms {
		if _, err := find(p); err != nil {
			return p + " is not here: apt-get install slurmdbd mariadb-server (the harness starts its own; none need run)"
		}
	}
	return ""
}

// User is the name of the user that the cluster runs as.
func User() string {
	who, err := user.Current()
	if err != nil {
		return strconv.Itoa(os.Getuid())
	}
	return who.Username
}

// startAccounting makes an empty database and starts it, and slurmdbd over it, which knows the cluster and an account "kale" for this user.
func (c *Cluster) startAccounting(ctx context.Context) error {
	if why := MissingAccounting(); why != "" {
		return errors.New(why)
	}
	data := filepath.Join(c.dir, "db")
	who := "--user=" + User() // MariaDB asks root to say that it means it
	small := []string{"--no-defaults", who, "--datadir=" + data, "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=4M", "--innodb-use-native-aio=0"}
	install, err := find("mariadb-install-db")
	if err != nil {
		return err
	}
	for try := 1; ; try++ { // beside other starts it has been seen to fail, and then not again
		cmd := exec.CommandContext(ctx, install, append(small, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if try == 2 {
			return fmt.Errorf("make a database: %w: %s", err, tail(string(out)))
		}
		if err := os.RemoveAll(data); err != nil {
			return fmt.Errorf("make a database: %w", err)
		}
	}
	if c.database, err = c.launchFound(nil, "mariadbd", append(small, "--socket="+filepath.Join(c.dir, "db.sock"), "--pid-file="+filepath.Join(c.dir, "db.pid"),
		"--bind-address=127.0.0.1", "--port="+strconv.Itoa(c.dbPort), "--skip-networking=0", "--skip-grant-tables",
		"--innodb-flush-log-at-trx-commit=0", "--performance-schema=0")...); err != nil {
		return err
	}
	if err := c.wait(ctx, "the database answers", func(context.Context) error {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.dbPort)), time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir, "slurmdbd.conf"), []byte(c.dbdConf()), 0o600); err != nil { // slurmdbd demands the mode
		return err
	}
	if c.dbd, err = c.launchFound(nil, "slurmdbd", "-D"); err != nil {
		return err
	}
	if err := c.wait(ctx, "slurmdbd answers", func(ctx context.Context) error {
		_, err := c.Run(ctx, "sacctmgr", "--noheader", "show", "cluster")
		return err
	}); err != nil {
		return err
	}
	return c.enrol(ctx)
}

// enrol makes the accounts know the cluster, and this user there.
func (c *Cluster) enrol(ctx context.Context) error {
	for _, args := range []string{"add cluster " + c.opt.Name, "add account kale Description=kale Organization=kale cluster=" + c.opt.Name,
		"add user name=" + User() + " account=kale cluster=" + c.opt.Name} {
		if out, err := c.Run(ctx, "sacctmgr", append([]string{"--immediate"}, strings.Fields(args)...)...); err != nil && !strings.Contains(out+err.Error(), "already exist") {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

func (c *Cluster) dbdConf() string {
	jwt := ""
	if c.opt.Rest { // slurmrestd hands the tokens on
		jwt = "\nAuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=" + c.jwtKey()
	}
	return strings.Join([]string{
		"AuthType=auth/none" + jwt, "DbdHost=localhost", "DbdAddr=127.0.0.1", fmt.Sprintf("DbdPort=%d", c.dbdPort), "SlurmUser=" + User(),
		"StorageType=accounting_storage/mysql", "StorageHost=127.0.0.1", fmt.Sprintf("StoragePort=%d", c.dbPort), "StorageUser=root", "StorageLoc=slurm",
		"LogFile=" + c.log("slurmdbd"), "PidFile=" + filepath.Join(c.dir, "slurmdbd.pid"),
	}, "\n") + "\n"
}

// launchFound starts a daemon by the name of its program, with more variables.
func (c *Cluster) launchFound(env []string, program string, args ...string) (*daemon, error) {
	path, err := find(program)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.launch(program, env, append([]string{path}, args...)...)
}

func tail(s string) string { return s[max(0, len(s)-1000):] }
