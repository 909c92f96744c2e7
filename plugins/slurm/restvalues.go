package slurm

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// restNumber is a number of slurmrestd's: plain, or as {"set":true,"infinite":false,"number":5}, or absent.
type restNumber struct {
	value int64
	set   bool // false too when it is infinite
}

// UnmarshalJSON implements json.Unmarshaler.
func (n *restNumber) UnmarshalJSON(raw []byte) error {
	*n = restNumber{}
	switch {
	case bytes.Equal(raw, []byte("null")):
		return nil
	case raw[0] == '{':
		var long struct {
			Set      bool        `json:"set"`
			Infinite bool        `json:"infinite"`
			Number   json.Number `json:"number"`
		}
		if err := json.Unmarshal(raw, &long); err != nil {
			return err
		}
		n.value, n.set = whole(long.Number.String()), long.Set && !long.Infinite
	default:
		s := strings.Trim(string(raw), `"`)
		if s == "" || s == "UNLIMITED" || s == "INFINITE" {
			return nil
		}
		n.value, n.set = whole(s), true
	}
	return nil
}

// whole reads a number's whole part; 0 for what is none.
func whole(s string) int64 {
	s, _, _ = strings.Cut(s, ".")
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// time gives the moment that the number is, in seconds since 1970; zero for none.
func (n restNumber) time() time.Time {
	if !n.set || n.value <= 0 {
		return time.Time{}
	}
	return time.Unix(n.value, 0).UTC()
}

// restStrings are words: an array, or one string, parted by commas.
type restStrings []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *restStrings) UnmarshalJSON(raw []byte) error {
	*s = nil
	if raw[0] != '"' {
		return json.Unmarshal(raw, (*[]string)(s))
	}
	var one string
	if err := json.Unmarshal(raw, &one); err != nil || one == "" {
		return err
	}
	*s = strings.Split(one, ",")
	return nil
}

// restFlags are the states that slurmrestd gives beside a base state, in the order in which squeue shows them instead of it.
var restFlags = []string{
	"COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING",
}

// state gives the one state that squeue would show.
func (s restStrings) state() string {
	for _, flag := range restFlags {
		for _, word := range s {
			if word == flag {
				return flag
			}
		}
	}
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// restJob is a job in the queue.
type restJob struct {
	ID        restNumber  `json:"job_id"`
	Name      string      `json:"name"`
	Comment   string      `json:"comment"`
	State     restStrings `json:"job_state"`
	Reason    string      `json:"state_reason"`
	Nodes     string      `json:"nodes"`
	Start     restNumber  `json:"start_time"`
	End       restNumber  `json:"end_time"`
	TimeLimit restNumber  `json:"time_limit"` // minutes
}

// row gives the job as squeue's line would, if it is one of ours.
func (j restJob) row() (row, bool) {
	nonce := nonceOf(j.Name, j.Comment)
	if nonce == "" {
		return row{}, false
	}
	r := row{
		id: strconv.FormatInt(j.ID.value, 10), name: j.Name, nonce: nonce, state: j.State.state(), reason: j.Reason, nodes: j.Nodes, started: j.Start.time(),
	}
	if r.phase() == phaseQueued {
		r.started = time.Time{} // when Slurm expects it to start
	} else {
		limit := endless
		if j.TimeLimit.set {
			limit = lasting(j.TimeLimit.value, time.Minute)
		}
		r.deadline, r.cause = deadlineOf(r.started, limit, j.End.time())
	}
	return r, true
}

// restNode is a node.
type restNode struct {
	Name       string      `json:"name"`
	Address    string      `json:"address"`
	State      restStrings `json:"state"`
	Flags      restStrings `json:"state_flags"`
	Partitions restStrings `json:"partitions"`
	CPUs       restNumber  `json:"cpus"`
	CPUsUsed   restNumber  `json:"alloc_cpus"`
	Memory     restNumber  `json:"real_memory"`
	MemoryUsed restNumber  `json:"alloc_memory"`
	Since      restNumber  `json:"slurmd_start_time"`
	ReasonAt   restNumber  `json:"reason_changed_at"`
	GRES       string      `json:"gres"`
	GRESUsed   string      `json:"gres_used"`
}

func (n restNode) node() node {
	out := node{
		name: n.Name, address: n.Address, partitions: n.Partitions, gpus: parseGPUs(n.GRES, n.GRESUsed), since: n.Since.time(), reasonAt: n.ReasonAt.time(),
		state: strings.ToUpper(strings.Join(append(n.State, n.Flags...), "+")),
		cpus:  int(n.CPUs.value), cpusUsed: int(n.CPUsUsed.value), memoryMB: int(n.Memory.value), memoryUsedMB: int(n.MemoryUsed.value),
	}
	if out.address == "" {
		out.address = out.name
	}
	return out
}

// restPartition is a partition.
type restPartition struct {
	Name     string      `json:"name"`
	Flags    restStrings `json:"flags"`          // in the old form; in the new one nothing says which is the default
	Longest  restNumber  `json:"max_time_limit"` // minutes, in the old form; -1 for no limit
	Maximums struct {
		Time restNumber `json:"time"` // the same in the new form
	} `json:"maximums"`
}

// longest gives how long a job may run in the partition.
func (p restPartition) longest() time.Duration {
	for _, limit := range []restNumber{p.Longest, p.Maximums.Time} {
		if limit.set && limit.value > 0 {
			return lasting(limit.value, time.Minute)
		}
	}
	return endless
}

// restEnding is a job in the database.
type restEnding struct {
	ID      restNumber `json:"job_id"`
	Name    string     `json:"name"`
	Cluster string     `json:"cluster"`
	Nodes   string     `json:"nodes"`
	State   struct {
		Current restStrings `json:"current"`
		Reason  string      `json:"reason"`
	} `json:"state"`
	Exit struct {
		Code   restNumber `json:"return_code"`
		Signal struct {
			ID    restNumber `json:"id"`
			OldID restNumber `json:"signal_id"`
		} `json:"signal"`
	} `json:"exit_code"`
	Time struct {
		Submission restNumber `json:"submission"`
	} `json:"time"`
	KillUser string `json:"kill_request_user"`
}

func (e restEnding) ending() ending {
	out := ending{
		jobRef: jobRef{id: strconv.FormatInt(e.ID.value, 10)}, name: e.Name, state: e.State.Current.state(), exitCode: int(e.Exit.Code.value),
		submitted: e.Time.Submission.time(),
	}
	if e.Nodes != "None assigned" {
		out.node = e.Nodes
	}
	if sig := max(e.Exit.Signal.ID.value, e.Exit.Signal.OldID.value); sig > 0 {
		out.exitCode = 128 + int(sig)
	}
	switch {
	case e.KillUser != "":
		out.reason = "by user " + e.KillUser
	case e.State.Reason != "None":
		out.reason = e.State.Reason
	}
	return out
}
