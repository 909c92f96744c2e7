//go:build cgo

package local

import (
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// nvmlGPUs finds GPUs through NVML. After an Init that failed no other function of NVML may be called: the process
// would end. So every use goes through find.
type nvmlGPUs struct {
	lib nvml.Interface

	mu     sync.Mutex
	tried  bool
	usable bool
}

func newGPUs() gpuSource { return &nvmlGPUs{lib: nvml.New()} }

// errNVML makes an error of what NVML returned. The library's own texts must not be asked for: that is a call too.
func errNVML(doing string, ret nvml.Return) error {
	return fmt.Errorf("NVML: %s: return code %d", doing, int(ret))
}

func (n *nvmlGPUs) find() ([]gpu, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.tried {
		n.tried = true
		n.usable = n.lib.Init() == nvml.SUCCESS // otherwise: no driver, no library, or no GPU
	}
	if !n.usable {
		return nil, nil
	}
	count, ret := n.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, errNVML("count devices", ret)
	}
	var found []gpu
	for i := range count {
		device, ret := n.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, errNVML(fmt.Sprintf("open device %d", i), ret)
		}
		gpus, err := describe(device)
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		found = append(found, gpus...)
	}
	return found, nil
}

// describe gives the device, or its MIG instances when it is in MIG mode, in which it cannot be used as a whole.
func describe(device nvml.Device) ([]gpu, error) {
	mode, _, ret := device.GetMigMode()
	if ret != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE { // older GPUs do not support the question
		g, err := describeOne(device)
		if err != nil {
			return nil, err
		}
		if use, ret := device.GetUtilizationRates(); ret == nvml.SUCCESS {
			share := float64(use.Gpu) / 100
			g.utilisation = &share
		}
		return []gpu{g}, nil
	}
	most, ret := device.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil, errNVML("count MIG instances", ret)
	}
	var instances []gpu
	for i := range most {
		mig, ret := device.GetMigDeviceHandleByIndex(i)
		if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INVALID_ARGUMENT {
			continue // there is none at this index
		}
		if ret != nvml.SUCCESS {
			return nil, errNVML(fmt.Sprintf("open MIG instance %d", i), ret)
		}
		g, err := describeOne(mig)
		if err != nil {
			return nil, fmt.Errorf("MIG instance %d: %w", i, err)
		}
		g.mig = true // the driver does not tell the utilisation of an instance
		instances = append(instances, g)
	}
	return instances, nil
}

func describeOne(device nvml.Device) (gpu, error) {
	uuid, ret := device.GetUUID()
	if ret != nvml.SUCCESS || uuid == "" {
		return gpu{}, errors.Join(errNVML("read the UUID", ret), errors.New("without it the GPU cannot be pinned"))
	}
	g := gpu{uuid: uuid}
	if name, ret := device.GetName(); ret == nvml.SUCCESS {
		g.model = name
	}
	if memory, ret := device.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.memory = int64(memory.Total)
	}
	return g, nil
}

func (n *nvmlGPUs) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.usable {
		n.usable = false
		_ = n.lib.Shutdown() // the process is about to end: nothing is left to do about a failure
	}
}
