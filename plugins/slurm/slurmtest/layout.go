package slurmtest

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kale-sched/kale/core/backend/loopback"
)

// existing are character devices that every Linux has: fake GPUs for who may not make devices.
var existing = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// lay makes the folders, the devices and the configuration.
func (c *Cluster) lay() error {
	dirs := []string{"state", "log", "shared", "private", "dev", "bin"}
	for n := 1; n <= c.opt.Nodes; n++ {
		dirs = append(dirs, filepath.Join("nodes", Node(n), "private"), filepath.Join("nodes", Node(n), "spool"))
	}
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(c.dir, d), 0o755); err != nil {
			return err
		}
	}
	devices, err := c.devices()
	if err != nil {
		return err
	}
	ports, err := loopback.FreePorts(3 + c.opt.Nodes)
	if err != nil {
		return err
	}
	c.port, c.dbPort, c.dbdPort, c.ports = ports[0], ports[1], ports[2], ports[3:]
	if c.opt.Beside != nil {
		c.dbdPort = c.opt.Beside.dbdPort
	}
	c.private = canMount(c.dir)
	gres := ""
	for n := 1; n <= c.opt.Nodes && len(devices) > 0; n++ {
		for _, d := range devices {
			gres += fmt.Sprintf("NodeName=%s Name=gpu Type=h200 File=%s\n", Node(n), d)
		}
	}
	if err := os.WriteFile(filepath.Join(c.dir, "gres.conf"), []byte(gres), 0o644); err != nil {
		return err
	}
	conf, err := c.conf(len(devices))
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.Conf(), []byte(conf), 0o644); err != nil {
		return err
	}
	if c.opt.Rest {
		if err := c.layRest(); err != nil {
			return err
		}
	}
	return c.wrap()
}

// wrap makes the clients of Bin.
func (c *Cluster) wrap() error {
	for _, name := range []string{"sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct", "sacctmgr"} {
		path, err := find(name)
		if err != nil {
			if strings.HasPrefix(name, "sacct") && !c.opt.Accounting && c.opt.Beside == nil {
				continue // some packages have them apart
			}
			return err
		}
		script := fmt.Sprintf("#!/bin/sh\nSLURM_CONF='%s' exec '%s' \"$@\"\n", c.Conf(), path)
		if err := os.WriteFile(filepath.Join(c.Bin(), name), []byte(script), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// MostGPUs is how many fake GPUs a node may have at most: root makes as many as are asked for, others have the character devices that are there.
func MostGPUs() int {
	if os.Geteuid() != 0 {
		return len(existing)
	}
	return math.MaxInt
}

// devices gives the fake GPUs of a node; all nodes have the same.
func (c *Cluster) devices() ([]string, error) {
	var out []string
	for i := range max(c.opt.GPUsPerNode, 0) {
		path := filepath.Join(c.dir, "dev", "nvidia"+strconv.Itoa(i))
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			if c.opt.GPUsPerNode > len(existing) {
				return nil, fmt.Errorf("make %d fake GPUs: %w; without root a node has %d at most", c.opt.GPUsPerNode, err, len(existing))
			}
			return existing[:c.opt.GPUsPerNode], nil
		}
		out = append(out, path)
	}
	return out, nil
}

// canMount tries whether a process here may have a mount namespace of its own.
func canMount(dir string) bool {
	return exec.Command("unshare", "--mount", "--propagation", "private", "mount", "--bind", dir, dir).Run() == nil
}

// conf writes slurm.conf. Everything that needs a database, cgroups or another account is off; everything that waits is short.
func (c *Cluster) conf(gpus int) (string, error) {
	who, err := user.Current()
	if err != nil {
		return "", err
	}
	lines := []string{
		"ClusterName=" + c.opt.Name, "SlurmctldHost=localhost(127.0.0.1)", fmt.Sprintf("SlurmctldPort=%d", c.port),
		"SlurmUser=" + who.Username, "SlurmdUser=" + who.Username, "AuthType=auth/none", "CredType=cred/none",
		"StateSaveLocation=" + filepath.Join(c.dir, "state"), "SlurmdSpoolDir=" + filepath.Join(c.dir, "nodes", "%n", "spool"),
		"SlurmctldPidFile=" + filepath.Join(c.dir, "slurmctld.pid"), "SlurmdPidFile=" + filepath.Join(c.dir, "nodes", "%n", "slurmd.pid"),
		"SlurmctldLogFile=" + c.log("slurmctld"), "SlurmdLogFile=" + filepath.Join(c.dir, "log", "%n.log"),
		"ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "SwitchType=switch/none", "MpiDefault=none",
		"JobAcctGatherType=jobacct_gather/none", "ReturnToService=2",
		"SlurmdParameters=config_overrides", "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=64",
		"SchedulerType=sched/backfill", "SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_window=60",
		"KillWait=5", "MinJobAge=300", "SlurmdTimeout=60", "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny",
	}
	if c.opt.Accounting || c.opt.Beside != nil {
		lines = append(lines, "AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=127.0.0.1",
			fmt.Sprintf("AccountingStoragePort=%d", c.dbdPort), "AccountingStoreFlags=job_comment")
	} else {
		lines = append(lines, "AccountingStorageType=accounting_storage/none")
	}
	if c.opt.Rest {
		lines = append(lines, "AuthAltTypes=auth/jwt", "AuthAltParameters=jwt_key="+c.jwtKey())
	}
	node := fmt.Sprintf("NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=%d Sockets=1 CoresPerSocket=%d ThreadsPerCore=1 RealMemory=%d State=UNKNOWN",
		c.opt.CPUs, c.opt.CPUs, c.opt.MemoryMB)
	if gpus > 0 {
		lines = append(lines, "GresTypes=gpu")
		node += fmt.Sprintf(" Gres=gpu:h200:%d", gpus)
	}
	for n := 1; n <= c.opt.Nodes; n++ {
		lines = append(lines, fmt.Sprintf("NodeName=%s Port=%d %s", Node(n), c.ports[n-1], node))
	}
	partition := true
	for _, l := range c.opt.Conf {
		lines = append(lines, l)
		partition = partition && !strings.HasPrefix(l, "PartitionName=")
	}
	if partition {
		lines = append(lines, "PartitionName=kale Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
	}
	return strings.Join(lines, "\n") + "\n", nil
}

func (c *Cluster) log(name string) string { return filepath.Join(c.dir, "log", name+".log") }
