package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// controller is a cluster's slurmctld, and its database where it has one, as the backend asks it. The command line (cli.go) and slurmrestd (rest.go) are
// two ways to it. Each call has a deadline of its own beside ctx's. Whatever fails without being a refusal (refused) leaves open what came of it.
type controller interface {
	// jobs gives our jobs of this user that the queue shows, those among them that ended lately too.
	jobs(ctx context.Context) ([]row, error)
	// nodes gives all nodes.
	nodes(ctx context.Context) ([]node, error)
	// held gives what the jobs on a node have of it, everybody's that this user may see. The error is errUntested where that is not told.
	held(ctx context.Context, cluster, node string) (holding, error)
	// submit hands a job over, within the time that it may take.
	submit(ctx context.Context, within time.Duration, b batch) (jobRef, error)
	// test asks whether such a job would be taken, and has no effect; partition is where it would run, "" where it is not told. The error is errUntested where
	// that cannot be asked.
	test(ctx context.Context, b batch) (partition string, err error)
	// pending gives the jobs that wait in the partitions (a list, parted by commas), everybody's that this user may see; it may give those of other partitions too.
	pending(ctx context.Context, partitions string) ([]waiter, error)
	// signal sends a signal to a job's script, and not to what the script has started where the way allows that.
	signal(ctx context.Context, sig string, job jobRef) error
	// cancel ends jobs. One that is not there is no error.
	cancel(ctx context.Context, jobs ...jobRef) error
	// names gives the partitions, accounts, … that there are for this user, by the block's attribute. known is false where it cannot tell.
	names(ctx context.Context, attr string) (has []string, known bool, err error)
	// longest gives how long a job may run in each partition; fallback is the partition of jobs that name none, "" where it is not known.
	longest(ctx context.Context) (limits map[string]time.Duration, fallback string, err error)
	// longestOf gives how long a job of a QOS may run, where that is enforced. known is false where it is not, or cannot be told.
	longestOf(ctx context.Context, qos string) (limit time.Duration, known bool, err error)
	// ended asks the database how jobs ended that were submitted since then. The error is errNoAccounting where there is none.
	ended(ctx context.Context, since time.Time, jobs []jobRef) ([]ending, error)
}

var (
	errUntested     = errors.New("it cannot be asked without submitting the job")
	errNoAccounting = errors.New("the cluster keeps no accounts of its jobs")
)

// jobRef names a job of Slurm's.
type jobRef struct {
	id      string // its number
	cluster string // empty where the block names no clusters
}

// batch is a job to submit.
type batch struct {
	set      settings
	instance instance
	record   record
	exclude  []string // nodes to keep off, beside the block's
}

// ending is how a job ended, by the accounts.
type ending struct {
	jobRef
	name      string
	state     string
	reason    string // who cancelled it, and the like
	node      string
	exitCode  int // 128+n when signal n ended it
	submitted time.Time
}

// Deadlines: Slurm's clients wait for nine seconds and more when slurmctld is down.
const (
	askTimeout    = 2 * time.Second  // for what only looks: the scheduler's own look is bounded too
	submitTimeout = 10 * time.Second // Slurm's own MessageTimeout
	cancelTimeout = 5 * time.Second
)

// slurmError is a question or an order that Slurm did not take, or did not answer in time.
type slurmError struct {
	asking string // the client, or the method and path
	said   string // what Slurm said; empty when it said nothing
	err    error
}

func (e *slurmError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("%s: %v", e.asking, e.err)
	}
	return fmt.Sprintf("%s: %s", e.asking, strings.Join(strings.FieldsFunc(e.said, func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// words are what Slurm said, without who said it.
func (e *slurmError) words() string {
	var out []string
	for line := range strings.Lines(e.said) {
		for _, prefix := range []string{"sbatch: ", "error: ", "allocation failure: "} {
			line = strings.TrimPrefix(line, prefix)
		}
		out = append(out, strings.TrimSuffix(strings.TrimSpace(line), "."))
	}
	return strings.Join(out, "; ")
}

func (e *slurmError) Unwrap() error { return e.err }

// refusals are what Slurm says when it refused a job for good, in lower case, with what that means, which attribute of the block it is about, and what to
// do. Anything else leaves the outcome open.
var refusals = []struct {
	says   string
	code   backend.Code
	attr   string // empty where no attribute is at fault, or where waiting may help
	advice string
}{
	{"invalid partition", backend.Blocked, attrPartition, "set partition to one that sinfo shows"},
	{"invalid account", backend.Unauthorised, attrAccount, "set account to one that you may use there (sacctmgr show assoc user=$USER)"},
	{"invalid qos", backend.Blocked, attrQOS, "set qos to one that your account has"},
	{"invalid user id", backend.Unauthorised, "", "ask the site for an account"},
	{"access/permission denied", backend.Unauthorised, "", "ask the site for access"},
	{"user's group not permitted", backend.Unauthorised, attrPartition, "ask the site for access to the partition, or set another"},
	{"requested node configuration is not available", backend.Blocked, "", "no node of the partition could ever run it: lower its GPUs, CPUs or memory, or change partition, constraint or gres"},
	{"more processors requested than permitted", backend.Blocked, "", "lower workers.cpu"},
	{"violates accounting/qos policy", backend.NoCapacity, "", "a limit of the account or QOS is reached"},
	{"reached limit on jobs", backend.NoCapacity, "", "a limit on submitted jobs is reached"},
	{"requested time limit is invalid", backend.Blocked, attrTime, "lower time to what the partition allows"},
	{"job dependency problem", backend.Blocked, attrDirectives, "correct directives"},
	{"invalid feature", backend.Blocked, attrConstraint, "set constraint to features that sinfo -o %f shows"},
	{"reservation is invalid", backend.Blocked, attrReservation, "set reservation to one that scontrol show reservation shows"},
	{"reservation is not usable", backend.Blocked, "", "wait for the reservation, or leave it out"},
	{"invalid generic resource", backend.Blocked, attrGRES, "set gres to what sinfo -o %G shows"},
	{"invalid trackable resource", backend.Blocked, attrGRES, "set gpus or gres to what sinfo -o %G shows"},
	{"unrecognized option", backend.Blocked, attrDirectives, "correct directives"},
	{"invalid option", backend.Blocked, attrDirectives, "correct directives"},
	{"invalid directive", backend.Blocked, attrDirectives, "correct directives"},
	{"invalid --", backend.Blocked, attrDirectives, "correct directives"},
	{"node count specification invalid", backend.Blocked, "", "no node of the partition could ever run it"},
	{"invalid license", backend.Blocked, attrDirectives, "correct directives: scontrol show licenses says what there is"},
	{"invalid node name", backend.Blocked, attrExclude, "set exclude to nodes that sinfo -N shows"},
	{"partition is in a state that doesn't allow", backend.Blocked, "", "the partition is closed: ask the site, or set another"},
	{"batch job submission is disabled", backend.Blocked, "", "ask the site"},
	{"known by database", backend.Blocked, attrClusters, "set clusters to names that sacctmgr show clusters lists"},
	{"authentication fail", backend.Unauthorised, "", adviceMunge},
	{"protocol authentication error", backend.Unauthorised, "", adviceMunge},
	{"failure during parsing", backend.Blocked, attrProperties, "correct properties: slurmrestd does not take the job as it is"},
	{"unknown key", backend.Blocked, attrProperties, "correct properties: slurmrestd does not take the job as it is"},
}

const (
	// adviceMunge is what to do where Slurm does not trust its own clients.
	adviceMunge = "see that munged runs on this machine, with the cluster's key"
	// adviceConf is what to do where Slurm's clients cannot read their configuration.
	adviceConf = "let whoever runs kale read Slurm's configuration on this machine and the folders that it is in, or name one that can be read in kale's environment, as SLURM_CONF"
	// adviceToken is the same of slurmrestd.
	adviceToken = "give a token that is good, which scontrol token prints: in the file that token_file names, which is read anew each time, or else in the environment as SLURM_JWT"
)

// throughREST reports whether slurmrestd was asked.
func (e *slurmError) throughREST() bool { return strings.HasPrefix(e.asking, restName) }

// refusal is that Slurm refused a job for good.
type refusal struct {
	*backend.Error
	attr       string // of the block, which is at fault; empty where none is
	said       string // what Slurm said
	advice     string
	directives []judged // those that are at fault, where the job was tried
}

// refused tells whether a job that was not taken was refused for good; nil when the outcome is open.
func refused(err error) *refusal {
	var e *slurmError
	if !errors.As(err, &e) {
		return nil
	}
	switch {
	case errors.Is(err, errNoToken): // whose file may be the one that is not there
		return &refusal{Error: backend.Errorf(backend.Unavailable, "%w; %s", err, adviceToken)}
	case lackingProgram(err) != "":
		return &refusal{Error: backend.Errorf(backend.Blocked, "%w; install Slurm's clients here, or set bin_dir to where they are", err)}
	case lackingConf(err) != "":
		return &refusal{Error: backend.Errorf(backend.Blocked, "%w; %s", err, adviceConf)}
	case lackingSocket(err):
		return &refusal{Error: backend.Errorf(backend.Unavailable, "%w; start slurmrestd, or correct rest", err)}
	case e.throughREST() && errors.Is(err, syscall.ECONNREFUSED):
		return &refusal{Error: backend.Errorf(backend.Unavailable, "%w; nobody listens there: start slurmrestd, or correct rest", err)}
	}
	said := strings.ToLower(e.said)
	for _, r := range refusals {
		if strings.Contains(said, r.says) {
			if r.advice == adviceMunge && e.throughREST() {
				r.advice = adviceToken
			}
			return &refusal{Error: backend.Errorf(r.code, "%w; %s", err, r.advice), attr: r.attr, said: e.words(), advice: r.advice}
		}
	}
	return nil
}

// lackingProgram names the client that this machine does not have, for which Slurm could not be asked; empty where it is another thing.
func lackingProgram(err error) string {
	var e *slurmError
	if !errors.As(err, &e) || lackingSocket(err) || !errors.Is(e.err, exec.ErrNotFound) && !errors.Is(e.err, fs.ErrNotExist) {
		return ""
	}
	return e.asking
}

// unreadFile is what Slurm's clients say of a file of their configuration that they cannot read, or do not find: they look for it again for a minute then.
var unreadFile = regexp.MustCompile(`s_p_parse_file: (?:unable to read|cannot stat file) "?([^"\n]*?)"?: ([^,\n]+)`)

// lackingConf says why Slurm's clients could not read their configuration, and which; empty where it is another thing.
func lackingConf(err error) string {
	var e *slurmError
	if !errors.As(err, &e) {
		return ""
	}
	if m := unreadFile.FindStringSubmatch(e.said); m != nil {
		return fmt.Sprintf("%s: %s", m[1], strings.ToLower(m[2]))
	}
	if strings.Contains(e.said, "establish a configuration source") {
		return "there is no slurm.conf here, and no server gives one"
	}
	return ""
}

// lackingSocket reports whether slurmrestd could not be asked since its socket is not there.
func lackingSocket(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && errors.Is(op, fs.ErrNotExist)
}
