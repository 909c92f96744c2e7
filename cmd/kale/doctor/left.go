package doctor

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/cmd/internal/probe"
	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
)

// A look at the nodes that is killed leaves its probes, which end by themselves, and what they and it have written. All of it tells when its look is over,
// whatever became of that: the next one removes what is over, and leaves alone what another one is busy with at the same time.

const (
	// clockDifference is by how much clocks may differ before a look that goes on counts as over elsewhere.
	clockDifference = time.Minute
	// asidePrefix begins the names of the folders in which the local backend keeps what it knows of probes.
	asidePrefix = "kale-doctor-"
	// looksAtOnce is how many looks at the same time find ranks of their own. Backends remember the last workload of each rank until it is forgotten: they are to be few.
	looksAtOnce = 16
)

// freeRanks gives the first of the ranks for a look's probes that none of the list has. Of several such it is any: others may choose just now.
func freeRanks(list []backend.ID) int {
	var free []int
	for first := 0; first < looksAtOnce*probe.Most; first += probe.Most {
		if !slices.ContainsFunc(list, func(id backend.ID) bool { return first <= id.Rank && id.Rank < first+probe.Most }) {
			free = append(free, first)
		}
	}
	if len(free) == 0 {
		return probe.Most * mathrand.IntN(looksAtOnce)
	}
	return free[mathrand.IntN(len(free))]
}

// over is when a look at the nodes that begins now is over for certain, its probes too.
func (p Patient) over() time.Time { return time.Now().Add(p.ProbeLimit + 2*letGoLimit) }

// leavable names something that a look may leave behind when it is killed: when that is over, and what no other name has.
func leavable(over time.Time) string {
	return strconv.FormatInt(over.UnixMilli(), 36) + "-" + strings.ToLower(rand.Text()[:12])
}

// isOver says that a look is over, by the milliseconds that what it left tells.
func isOver(milli int64) bool { return time.Since(time.UnixMilli(milli)) > clockDifference }

// clear removes what earlier looks have left on the cluster and in the checkpoint folder, and gives the probes of those that are not over. What cannot be
// removed now is the next one's.
func (e *expedition) clear(ctx context.Context) (others []backend.ID) {
	list, _, err := e.b.List(ctx, e.p.Job.Name)
	if err != nil {
		return nil // send says why
	}
	var ids []backend.ID
	for _, st := range list {
		switch {
		case st.ID.Role != core.RoleProbe:
		case isOver(int64(st.ID.Generation)):
			ids = append(ids, st.ID)
		default:
			others = append(others, st.ID)
		}
	}
	if len(ids) > 0 {
		_ = e.b.Release(ctx, e.p.Job.Name, ids, backend.Forced)
	}
	clearFolders(probe.Folder(e.p.Job.Checkpoint.Dir, ""))
	return others
}

// clearFolders removes the folders whose names begin so and tell of a look that is over.
func clearFolders(prefix string) {
	entries, _ := os.ReadDir(filepath.Dir(prefix)) // none: nothing is left there
	for _, f := range entries {
		name, ok := strings.CutPrefix(f.Name(), filepath.Base(prefix))
		if !ok || !f.IsDir() {
			continue
		}
		at, _, ok := strings.Cut(name, "-")
		if milli, err := strconv.ParseInt(at, 36, 64); ok && err == nil && isOver(milli) {
			_ = os.RemoveAll(filepath.Join(filepath.Dir(prefix), f.Name())) // another user's stays
		}
	}
}
