package nomad

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/kale-sched/kale/core/backend"
)

// Nomad's variables allow 128 characters of [A-Za-z0-9-_~/] in a path, and a task may read only those under the name of
// its own job: so job names are short and use nothing else. '~' occurs in no name of Kale's, so names stay apart.
const (
	maxJobPart = 48
	maxIDPart  = 45
	groupName  = "kale"
	taskName   = "trainer"
)

// shorten gives s, or its beginning and a digest of it when it is longer than limit.
func shorten(s string, limit int) string {
	s = strings.ReplaceAll(s, ".", "~")
	if len(s) <= limit {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return s[:limit-9] + "~" + hex.EncodeToString(sum[:4])
}

// jobPrefix is what the names of all Nomad jobs of a job begin with. Another job's may begin with it too: who lists by
// it looks at metaJob.
func jobPrefix(job string) string { return "kale-" + shorten(job, maxJobPart) + "-" }

// nomadJob is the name of the workload's Nomad job.
func nomadJob(job string, id backend.ID) string {
	return jobPrefix(job) + shorten(id.String(), maxIDPart)
}

// ledgerPath is the variable that remembers the job's generations.
func ledgerPath(job string) string { return "kale/" + shorten(job, maxJobPart) }

// payloadPaths are the variables that hold a workload's files and environment: those that its task may read.
func payloadPaths(nomadJob string) []string {
	own := "nomad/jobs/" + nomadJob
	return []string{own, own + "/" + groupName, own + "/" + groupName + "/" + taskName}
}

// The metadata of our Nomad jobs.
const (
	metaJob   = "kale_job"   // Kale's job
	metaID    = "kale_id"    // the workload: "worker-3-g2"
	metaGrace = "kale_grace" // its StopGrace
	metaSince = "kale_since" // when it was submitted: Nomad's own time of that is the job's last change
	metaAvoid = "kale_avoid" // the nodes that it is kept off, by ID: see avoid
	metaSpec  = "kale_spec"  // a digest of what was submitted, to tell what others changed
)
