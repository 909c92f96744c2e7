package e2e_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/cmd/kale/chaos"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/stream/kafkatest"
	"github.com/kale-sched/kale/plugins/nomad"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// onNomad is a private Nomad of two nodes with fake GPUs.
var onNomad = &site{backend: "nomad", always: true, shares: nomadShares}

func init() { onNomad.start = startNomad } // which refers to it

const nomadNodes = 2

// startNomad starts one for a rig, or skips the test.
func startNomad(r *rig) *site {
	r.t.Helper()
	s, c, client, relay := nomadOf(r, nomadtest.Options{Clients: nomadNodes, GPUs: stormWorkers})
	if err := allowPreemption(client); err != nil {
		r.t.Fatal(err)
	}
	s.faults = nomadFaults(c, client, relay)
	return s
}

// nomadOf starts one of a size.
func nomadOf(r *rig, o nomadtest.Options) (*site, *nomadtest.Cluster, *api.Client, *chaos.Relay) {
	r.t.Helper()
	if why := nomadtest.Missing(); why != "" {
		r.t.Skip(why)
	}
	c, err := nomadtest.Start(r.t.Context(), o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			r.t.Error(err)
		}
	})
	relay, err := chaos.OpenRelay(c.Address())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(relay.Close)
	client, err := c.Client()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(client.Close)
	s := *onNomad
	// The rig's mark is given to the job's processes alone: the cluster outlives the job.
	s.block = fmt.Sprintf("    address      = %q\n    shared_paths = [%q]\n    env          = { %s = %q }\n", relay.URL(), r.dir, marker, r.dir)
	s.gpus = 1
	s.look = func(*rig) backend.Backend { return nomad.New(nil) }
	s.files = func(*rig, string) string { return "" }
	s.spec = func(r *rig) ([]byte, error) { return specOnNomad(client, r.name()) }
	return &s, c, client, relay
}

// specOnNomad reads what the first parameter server of a job is given, as an administrator can.
func specOnNomad(client *api.Client, name string) ([]byte, error) {
	vars, _, err := client.Variables().PrefixList("nomad/jobs/kale-"+name+"-ps-0-", &api.QueryOptions{})
	if err != nil {
		return nil, err
	}
	if len(vars) == 0 {
		return nil, errors.New("no server of the job has been started yet")
	}
	v, _, err := client.Variables().Read(vars[0].Path, &api.QueryOptions{})
	if err != nil {
		return nil, err
	}
	for _, item := range v.Items {
		raw, err := base64.StdEncoding.DecodeString(item)
		if err == nil && strings.HasPrefix(string(raw), "{") {
			return raw, nil
		}
	}
	return nil, errors.New("the server's variable holds no specification")
}

// The same job on a real Nomad: by forecast it grows from one worker to six before noon and shrinks to one after it, its first worker trains on through all of it, and every record is trained once.
func TestGrowsAndShrinksOnNomad(t *testing.T) {
	t.Parallel()
	growsAndShrinks(t, kafkatest.Embedded(t), onNomad, toSix)
}
