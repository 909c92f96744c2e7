//go:build cgo

package local

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
)

// dgx is the library's mock of a machine with eight A100, GPU i being busy i*10 %.
func dgx() *dgxa100.Server {
	server := dgxa100.New()
	for i, d := range server.Devices {
		d.(*dgxa100.Device).GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: uint32(10 * i)}, nvml.SUCCESS
		}
	}
	return server
}

func uuidOf(server *dgxa100.Server, i int) string { return server.Devices[i].(*dgxa100.Device).UUID }

// split puts GPU i into MIG mode with n instances, at even indexes, as the driver numbers them with gaps.
func split(server *dgxa100.Server, i, n int) {
	d := server.Devices[i].(*dgxa100.Device)
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	d.GetUtilizationRatesFunc = nil // the driver does not support it in MIG mode; asking would panic
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		if index%2 != 0 || index/2 >= n {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return &mock.Device{
			GetUUIDFunc: func() (string, nvml.Return) { return fmt.Sprintf("MIG-%d-%d", i, index), nvml.SUCCESS },
			GetNameFunc: func() (string, nvml.Return) { return "Mock NVIDIA A100 MIG 1g.5gb", nvml.SUCCESS },
			GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) {
				return nvml.Memory{Total: 5 << 30}, nvml.SUCCESS
			},
		}, nvml.SUCCESS
	}
}

func TestFindGPUs(t *testing.T) {
	server := dgx()
	split(server, 7, 2)
	found, err := (&nvmlGPUs{lib: server}).find()
	if err != nil || len(found) != 9 {
		t.Fatalf("found %d GPUs, %v; want 7 and 2 MIG instances", len(found), err)
	}
	for i, g := range found[:7] {
		if g.uuid != uuidOf(server, i) || g.mig || g.memory != 42949672960 || g.utilisation == nil || *g.utilisation != float64(i)/10 {
			t.Errorf("GPU %d: %+v", i, g)
		}
	}
	for i, g := range found[7:] {
		if g.uuid != fmt.Sprintf("MIG-7-%d", 2*i) || !g.mig || g.memory != 5<<30 || g.utilisation != nil || !strings.Contains(g.model, "MIG") {
			t.Errorf("MIG instance %d: %+v", i, g)
		}
	}
}

// After an Init that failed nothing else may be called: the mock panics on all but Init, NVML ends the process.
func TestNoCallAfterAFailedInit(t *testing.T) {
	inits := 0
	gpus := &nvmlGPUs{lib: &mock.Interface{InitFunc: func() nvml.Return {
		inits++
		return nvml.ERROR_LIBRARY_NOT_FOUND
	}}}
	for range 2 {
		if found, err := gpus.find(); err != nil || len(found) != 0 {
			t.Errorf("find = %v, %v, want none", found, err)
		}
	}
	gpus.close()
	if inits != 1 {
		t.Errorf("Init was called %d times, want once", inits)
	}
}

// A GPU that fails is an error, not a machine without GPUs: nothing may be placed on what is not known.
func TestLostGPU(t *testing.T) {
	server := dgx()
	server.Devices[3].(*dgxa100.Device).GetUUIDFunc = func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }
	c := newCluster(t)
	b := inProcess(t, &nvmlGPUs{lib: server})
	configure(t, b, gpuConfig(c, "j"))
	if _, err := b.Inventory(t.Context()); err == nil || backend.CodeOf(err) != backend.Unavailable || !strings.Contains(err.Error(), "device 3") {
		t.Errorf("Inventory = %v, want code %q and the device", err, backend.Unavailable)
	}
}

func gpuConfig(c cluster, job string) backend.Config {
	cfg := c.config(job)
	cfg.Source = []byte("\n  slots = 2\n")
	return cfg
}

// showDevices prints what the process was given.
func showDevices(c cluster, job string, rank, gpus int) backend.Workload {
	w := c.workload(job, backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: 1}, conformance.Steady)
	w.Argv[2] = `echo "devices=$CUDA_VISIBLE_DEVICES."; ` + w.Argv[2]
	w.Resources.GPUs = gpus
	return w
}

// GPUs are given out once, over all jobs that share the folder, and reach the process by UUID.
func TestGPUsAreExclusive(t *testing.T) {
	server := dgx()
	c := newCluster(t)
	one, two := inProcess(t, &nvmlGPUs{lib: server}), inProcess(t, &nvmlGPUs{lib: server})
	two.claims = one.claims
	configure(t, one, gpuConfig(c, "j1"))
	configure(t, two, gpuConfig(c, "j2"))
	first, err := one.Ensure(t.Context(), "j1", []backend.Workload{showDevices(c, "j1", 0, 3), showDevices(c, "j1", 1, 0)})
	if err != nil || first[0].Err != nil || first[1].Err != nil {
		t.Fatal(first, err)
	}
	report, err := two.Plan(t.Context(), "j2", []backend.Workload{showDevices(c, "j2", 0, 6)})
	if err != nil || report.Fits() || report.Shortage != "needs 6 GPUs, 5 free" {
		t.Errorf("Plan = %+v, %v", report, err)
	}
	second, err := two.Ensure(t.Context(), "j2", []backend.Workload{
		showDevices(c, "j2", 0, 6), showDevices(c, "j2", 1, 5), showDevices(c, "j2", 2, 1),
	})
	if err != nil || second[0].Err == nil || second[0].Err.Code != backend.NoCapacity || second[1].Err != nil || second[2].Err == nil {
		t.Fatalf("Ensure = %+v, %v; want that only the second fits", second, err)
	}
	if want := "needs 1 GPU, 0 free of 8"; !strings.Contains(second[2].Err.Message, want) {
		t.Errorf("%v; want %q", second[2].Err, want)
	}
	holders := map[string]int{}
	inv, err := one.Inventory(t.Context())
	if err != nil || inv.Free != 0 || inv.Total != 8 {
		t.Fatalf("Inventory = %+v, %v", inv, err)
	}
	for _, d := range inv.Devices {
		holders[d.HeldBy]++
		if d.Utilisation == nil || d.Model == "" {
			t.Errorf("device %+v has no utilisation or model", d)
		}
	}
	if holders["j1/worker-0-g1"] != 3 || holders["j2/worker-1-g1"] != 5 {
		t.Errorf("held: %v", holders)
	}
	for rank, want := range []string{strings.Join(first[0].Devices, ","), ""} {
		id := backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: 1}
		conformance.Eventually(t, "it shows its devices", func() error {
			r, err := one.Logs(t.Context(), "j1", id, backend.LogOptions{})
			if err != nil {
				return err
			}
			defer r.Close()
			var got string
			if _, err := fmt.Fscan(r, &got); err != nil {
				return err
			}
			if got != "devices="+want+"." {
				t.Fatalf("%s was given %q, want %q", id, got, want)
			}
			return nil
		})
	}
	conformance.Drop(t, one, "j1")
	conformance.Drop(t, two, "j2")
}

// A process can use one MIG instance only; who needs more gets whole GPUs.
func TestMIG(t *testing.T) {
	server := dgx()
	for i := range 7 {
		split(server, i, 1)
	}
	c := newCluster(t)
	b := inProcess(t, &nvmlGPUs{lib: server})
	configure(t, b, gpuConfig(c, "j"))
	st, err := b.Ensure(t.Context(), "j", []backend.Workload{showDevices(c, "j", 0, 2), showDevices(c, "j", 1, 1)})
	if err != nil || st[0].Err == nil || st[0].Err.Code != backend.NoCapacity || !strings.Contains(st[0].Err.Message, "MIG") {
		t.Fatalf("two MIG instances for one process: %+v, %v", st, err)
	}
	if st[1].Err != nil || len(st[1].Devices) != 1 || st[1].Devices[0] != "MIG-0-0" {
		t.Errorf("one MIG instance: %+v", st[1])
	}
	conformance.Drop(t, b, "j")
}

// TestGPUsOfThisMachine holds what NVML tells here, driver and all, against what the driver's own program tells.
func TestGPUsOfThisMachine(t *testing.T) {
	smi, err := exec.LookPath("nvidia-smi")
	if err != nil {
		t.Skip("needs a GPU: nvidia-smi, which comes with NVIDIA's driver, is not installed")
	}
	out, err := exec.CommandContext(t.Context(), smi, "--query-gpu=uuid,name,memory.total,mig.mode.current", "--format=csv,noheader,nounits").Output()
	if err != nil {
		t.Skipf("needs a GPU: nvidia-smi finds none (%v: %s)", err, out)
	}
	gpus := newGPUs()
	t.Cleanup(gpus.close)
	found, err := gpus.find()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if strings.Contains(string(out), "Enabled") {
		t.Skip("a GPU of this machine is split by MIG, whose instances nvidia-smi lists otherwise")
	}
	if len(found) != len(lines) {
		t.Fatalf("NVML finds %d GPUs, nvidia-smi %d:\n%s", len(found), len(lines), out)
	}
	for i, line := range lines {
		g, field := found[i], strings.Split(line, ", ")
		mib, err := strconv.ParseInt(field[2], 10, 64)
		if err != nil {
			t.Fatalf("nvidia-smi says %q: %v", line, err)
		}
		if g.uuid != field[0] || g.model != field[1] || g.memory>>20 != mib || g.mig {
			t.Errorf("GPU %d is %+v; nvidia-smi says %q", i, g, line)
		}
		if g.utilisation == nil || *g.utilisation < 0 || *g.utilisation > 1 {
			t.Errorf("GPU %d tells no share of time that it is busy: %+v", i, g)
		}
	}
}
