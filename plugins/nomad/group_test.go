package nomad

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend/conformance"
)

// Why workers are no group with a count (doc.go): a client is lost, and the group is made smaller by those that were on it.
// When it is back Nomad keeps one of those, and stops a worker that was never lost and that nobody has drained.
func TestWhyNotOneGroup(t *testing.T) {
	const count = 2 * nodes
	r := newRig(t)
	jobs := r.raw(t).Jobs()
	name := "group"
	task := api.NewTask("t", "raw_exec")
	task.Config = map[string]any{"command": "/bin/sh", "args": []string{"-c", `trap 'exit 0' TERM; mkfifo local/p; while :; do read x <> local/p; done`}}
	task.KillSignal = "SIGTERM"
	g := api.NewTaskGroup("g", count)
	g.Tasks = []*api.Task{task}
	g.Spreads = []*api.Spread{api.NewSpread("${node.unique.name}", 100, nil)}
	g.ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Interval: ptr(time.Duration(0)), Unlimited: ptr(false)}
	g.Disconnect = &api.DisconnectStrategy{LostAfter: ptr(lostAfter), Replace: ptr(false), Reconcile: ptr(api.ReconcileOptionKeepOriginal)}
	if _, _, err := jobs.Register(&api.Job{ID: &name, Name: &name, Type: ptr(api.JobTypeBatch), Datacenters: []string{"*"}, TaskGroups: []*api.TaskGroup{g}}, nil); err != nil {
		t.Fatal(err)
	}
	// await waits until ok holds of the allocations, by index.
	await := func(what string, ok func(map[int]*api.AllocationListStub) bool) (byIndex map[int]*api.AllocationListStub) {
		t.Helper()
		conformance.Eventually(t, what, func() error {
			all, _, err := jobs.Allocations(name, true, nil)
			if err != nil {
				return err
			}
			byIndex = map[int]*api.AllocationListStub{}
			text := ""
			for _, a := range all {
				var i int
				if _, err := fmt.Sscanf(a.Name[strings.LastIndexByte(a.Name, '['):], "[%d]", &i); err != nil {
					return err
				}
				byIndex[i] = a
				text += fmt.Sprintf("%d on %s is %s, wanted %s; ", i, a.NodeName, a.ClientStatus, a.DesiredStatus)
			}
			if !ok(byIndex) {
				return fmt.Errorf("%s", text)
			}
			return nil
		})
		return byIndex
	}
	placed := await("all run", func(byIndex map[int]*api.AllocationListStub) bool {
		running := 0
		for _, a := range byIndex {
			if a.ClientStatus == api.AllocClientStatusRunning {
				running++
			}
		}
		return running == count
	})
	last, lost := count-1, 0 // the last is never lost; the first of those on another node is
	for placed[lost].NodeName == placed[last].NodeName {
		lost++
	}
	gone, node := 0, 0
	if _, err := fmt.Sscanf(placed[lost].NodeName, "n%d", &node); err != nil {
		t.Fatal(err)
	}
	for _, a := range placed {
		if a.NodeName == placed[lost].NodeName {
			gone++
		}
	}
	r.cluster.KillClient(node)
	back := false
	defer func() {
		if !back {
			_ = r.cluster.StartClient(context.Background(), node) // for the tests that follow; this one has failed
		}
	}()
	await("its client is lost", func(byIndex map[int]*api.AllocationListStub) bool {
		return byIndex[lost].ClientStatus == api.AllocClientStatusUnknown
	})
	if _, _, err := jobs.Scale(name, "g", ptr(count-gone), "those that are lost", false, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.cluster.StartClient(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	back = true
	await("the last, which was never lost, is stopped, and the first that was runs on", func(byIndex map[int]*api.AllocationListStub) bool {
		return byIndex[last].DesiredStatus == api.AllocDesiredStatusStop && byIndex[lost].DesiredStatus == api.AllocDesiredStatusRun && byIndex[lost].ClientStatus == api.AllocClientStatusRunning
	})
	if _, _, err := jobs.Deregister(name, true, nil); err != nil {
		t.Fatal(err)
	}
}
