package doctor

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// deafening starts each probe on a node of its own; on some of them none begins, nor is seen to end.
type deafening struct {
	refusing
	nodes int
	deaf  []int // ones from 1
	away  bool  // the cluster knows it of those
	moves bool  // the cluster gives those up and starts them on n1
	lost  bool  // the cluster gives those up with their nodes
	list  []backend.Status
}

func (d *deafening) Ensure(_ context.Context, _ string, ws []backend.Workload) ([]backend.Status, error) {
	for i, st := range d.list {
		if st.ID == ws[0].ID {
			if d.moves && slices.Contains(d.deaf, i+1) {
				st.Node, st.State = "n1", backend.StateFailed
			}
			return []backend.Status{st}, nil
		}
	}
	n := len(d.list) + 1
	if n > d.nodes {
		return d.refusing.Ensure(context.Background(), "", ws)
	}
	st := backend.Status{ID: ws[0].ID, State: backend.StateRunning, Node: fmt.Sprintf("n%d", n)}
	if slices.Contains(d.deaf, n) {
		st.State, st.Reason = backend.StateStarting, "its script has not begun"
		if d.away {
			st.State, st.Reason, st.Away = backend.StateUnknown, "its node does not answer", true
		}
		if d.lost {
			st.State, st.Reason = backend.StateFailed, "its node was lost"
		}
	}
	d.list = append(d.list, st)
	return []backend.Status{st}, nil
}

func (d *deafening) Inventory(context.Context) (inv backend.Inventory, _ error) {
	for _, n := range d.deaf {
		if d.lost && len(d.list) >= n {
			inv.Silent = append(inv.Silent, fmt.Sprintf("n%d", n))
		}
	}
	return inv, nil
}

func (d *deafening) Plan(context.Context, string, []backend.Workload) (backend.Report, error) {
	return backend.Report{Shortage: "needs 1 CPU, 0 free"}, nil
}

func (d *deafening) List(context.Context, string) ([]backend.Status, bool, error) {
	for i, st := range d.list {
		if slices.Contains(d.released, st.ID) {
			d.list[i].State = backend.StateExited
			if slices.Contains(d.deaf, i+1) {
				if d.list[i].Away = d.lost; !d.lost {
					d.list[i].State = backend.StateStopping
				}
			}
		}
	}
	return slices.Clone(d.list), true, nil
}

func (d *deafening) Logs(_ context.Context, _ string, id backend.ID, _ backend.LogOptions) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

// A node on which a probe has a place and does not begin is named, with what to do, and what is left there is said; the others are tried all the same.
func TestNodesWhereNothingBegins(t *testing.T) {
	for name, c := range map[string]struct {
		b     deafening
		nodes string // the finding on the nodes tried
		want  []string
	}{
		"the first": {deafening{nodes: 3, deaf: []int{1}}, "ok tried from inside on n2, n3",
			[]string{"warn probe on n1: a probe was placed there and has not begun (its script has not begun)", "warn probes: left behind: doctor-0-g17 on node n1"}},
		"a later one": {deafening{nodes: 4, deaf: []int{3}}, "ok tried from inside on n1, n2, n4",
			[]string{"warn probe on n3: a probe was placed there and has not begun (its script has not begun)", "warn probes: left behind: doctor-2-g17 on node n3"}},
		"the cluster knows it": {deafening{nodes: 3, deaf: []int{2}, away: true}, "ok tried from inside on n1, n3",
			[]string{"warn probe on n2: a probe was placed there, and the node does not answer the cluster", "warn probes: left behind: doctor-1-g17 on node n2"}},
		"the cluster has given it up": {deafening{nodes: 3, deaf: []int{2}, lost: true}, "ok tried from inside on n1, n3",
			[]string{"warn probe on n2: a probe was placed there, and the node does not answer the cluster", "warn probes: left behind: doctor-1-g17 on node n2"}},
		"it is moved away": {deafening{nodes: 3, deaf: []int{2}, moves: true}, "ok tried from inside on n1, n3",
			[]string{"warn probe on n2: a probe was placed there, and the cluster has taken it away from there", "warn probes: left behind: doctor-1-g17 on node n2"}},
		"two of three": {deafening{nodes: 3, deaf: []int{1, 3}}, "warn only n2 could be tried: no second node was found: ",
			[]string{"warn probe on n1, n3: a probe was placed there", "warn probes: left behind: doctor-0-g17 on node n1, doctor-2-g17 on node n3"}},
		"all": {deafening{nodes: 2, deaf: []int{1, 2}}, "fail no probe has begun within 1m; they were placed on n1, n2",
			[]string{"warn probe on n1, n2: a probe was placed there", "warn probes: left behind: doctor-0-g17 on node n1, doctor-1-g17 on node n2"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := patient(t)
			p.ProbeLimit, p.Job.Backend.Name = time.Minute, "slurm"
			synctest.Test(t, func(t *testing.T) {
				b := &c.b
				e := &expedition{p: p, b: b, run: "r", over: time.UnixMilli(17)}
				ctx, cancel := context.WithTimeout(t.Context(), p.ProbeLimit)
				defer cancel()
				if err := e.send(ctx); err != nil {
					t.Fatal(err)
				}
				e.findLost(ctx)
				for _, one := range e.probes { // what comes of the others is another test's
					if !one.absent() {
						one.lines = expeditionOf(t, 1, func([]*probed) {}).probes[0].lines
					}
				}
				found := e.judge()
				left, err := e.letGo(t.Context())
				if err != nil {
					t.Error(err)
				}
				found = append(found, leftThere(left))
				var warned []string
				for _, f := range found {
					text := string(f.State) + " " + f.Check + ": " + f.Says
					switch {
					case f.Check == nodesCheck:
						if says := string(f.State) + " " + f.Says; !strings.HasPrefix(says, c.nodes) {
							t.Errorf("nodes: %q; want %q", says, c.nodes)
						}
					case strings.HasPrefix(f.Check, "probe"):
						if warned = append(warned, text); f.Do == "" {
							t.Errorf("%s: it does not say what to do", text)
						}
					}
				}
				if len(warned) != len(c.want) || !slices.EqualFunc(warned, c.want, strings.HasPrefix) {
					t.Errorf("%q; want %q", warned, c.want)
				}
			})
		})
	}
}

// Nodes that the cluster does not hear are named, though no probe is ever placed there.
func TestNodesThatDoNotAnswer(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "n3 does not answer the cluster": {"n3"}, "n3, n4 do not answer the cluster": {"n3", "n4"}} {
		late, found := silentNodes(backend.Inventory{Silent: append(names, "n9")}, []string{"n9"})
		if !slices.Equal(late, names) || len(found) != min(1, len(names)) || len(found) == 1 && (found[0].State != Warn || found[0].Says != want || found[0].Do == "") {
			t.Errorf("of %q: %+v", names, found)
		}
	}
}

// narrow has so many places on other nodes than those to avoid.
type narrow struct {
	deafening
	free int
}

func (n *narrow) Plan(_ context.Context, _ string, ws []backend.Workload) (r backend.Report, _ error) {
	for _, w := range ws {
		if r.Placements = append(r.Placements, backend.Placement{ID: w.ID, Fits: true}); !slices.Equal(w.Avoid, []string{"n2"}) {
			r.Shortage = fmt.Sprintf("it is asked about nodes but %q", w.Avoid)
		}
	}
	if len(ws) > n.free {
		r.Shortage = fmt.Sprintf("needs %d GPUs, %d free", len(ws), n.free)
	}
	return r, nil
}

// A node that is of no use is a failure where the rest has no room for the least that the job needs, and else a warning: the exit code follows that.
func TestRoomWithoutADeadNode(t *testing.T) {
	for free, want := range map[int]string{
		2: "fail room without n2: needs 3 GPUs, 2 free, for 2 workers (ctr.hcl:", // and a server
		3: "ok room without n2: there is for 2 workers",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := patient(t)
			p.ProbeLimit, p.Job.Backend.Name, p.Job.Workers.Min, p.Job.Servers.Count = time.Minute, "slurm", 2, 1
			e := &expedition{p: p, b: &narrow{deafening{nodes: 3, deaf: []int{2}}, free}, run: "r", over: time.UnixMilli(17)}
			ctx, cancel := context.WithTimeout(t.Context(), p.ProbeLimit)
			defer cancel()
			if err := e.send(ctx); err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, f := range e.useless(t.Context()) {
				said += string(f.State) + " " + f.Check + ": " + f.Says
			}
			if !strings.HasPrefix(said, want) {
				t.Errorf("with %d places elsewhere: %q; want %q", free, said, want)
			}
		})
	}
}

// What has to be mended in the cluster is a warning, with what helps.
func TestFaultsOfTheCluster(t *testing.T) {
	found := faults(backend.Inventory{Faults: []string{"Slurm counts 8 GPUs of node n1 as used, and no job there has any: scontrol reconfigure gives them back"}})
	if len(found) != 1 || found[0].State != Warn || found[0].Says != "Slurm counts 8 GPUs of node n1 as used, and no job there has any" || found[0].Do != "scontrol reconfigure gives them back." {
		t.Errorf("%+v", found)
	}
}

// What is told of the wait for probes is what was given for it; their end comes after that, and is told apart.
func TestTheWaitForProbesIsTheOneThatWasGiven(t *testing.T) {
	p := patient(t)
	p.ProbeLimit = time.Minute
	got := map[string]time.Duration{}
	for _, one := range p.backend().trials {
		Waits(func(check string, answer, end time.Duration) func() {
			if got[check] = answer; (end > 0) != (check == nodesCheck) {
				t.Errorf("%s: its end takes up to %v", check, end)
			}
			return func() {}
		}).begin(one)()
	}
	if got[nodesCheck] != p.ProbeLimit || got["room"] != pluginLimit {
		t.Errorf("it says %v", got)
	}
}
