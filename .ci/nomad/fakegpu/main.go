// Command fakegpu is a device plugin for Nomad that offers GPUs which do not exist: what the tests of the Nomad
// backend count and hand out on machines without any.
package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/hashicorp/nomad/plugins/shared/structs"
)

// settings is what the agent's configuration says.
type settings struct {
	Count  int    `codec:"count"`
	Model  string `codec:"model"`
	Prefix string `codec:"prefix"` // of the identifiers, so that nodes differ
}

type fakeGPUs struct{ settings }

func (*fakeGPUs) PluginInfo() (*base.PluginInfoResponse, error) {
	return &base.PluginInfoResponse{
		Type: base.PluginTypeDevice, PluginApiVersions: []string{device.ApiVersion010}, PluginVersion: "v0.1.0", Name: "fakegpu",
	}, nil
}

func (*fakeGPUs) ConfigSchema() (*hclspec.Spec, error) {
	attribute := func(name, kind, fallback string) *hclspec.Spec {
		return hclspec.NewDefault(hclspec.NewAttr(name, kind, false), hclspec.NewLiteral(fallback))
	}
	return hclspec.NewObject(map[string]*hclspec.Spec{
		"count": attribute("count", "number", "8"), "model": attribute("model", "string", `"H200"`), "prefix": attribute("prefix", "string", `"GPU"`),
	}), nil
}

func (f *fakeGPUs) SetConfig(c *base.Config) error {
	if len(c.PluginConfig) == 0 {
		return nil
	}
	return base.MsgPackDecode(c.PluginConfig, &f.settings)
}

// Fingerprint tells of the devices once: they never change.
func (f *fakeGPUs) Fingerprint(ctx context.Context) (<-chan *device.FingerprintResponse, error) {
	memory := int64(141)
	group := &device.DeviceGroup{
		Vendor: "nvidia", Type: device.DeviceTypeGPU, Name: f.Model,
		Attributes: map[string]*structs.Attribute{"memory": {Int: &memory, Unit: "GiB"}},
	}
	for i := range f.Count {
		group.Devices = append(group.Devices, &device.Device{ID: fmt.Sprintf("%s-%08d", f.Prefix, i), Healthy: true})
	}
	answers := make(chan *device.FingerprintResponse, 1)
	answers <- device.NewFingerprint(group)
	go func() { <-ctx.Done(); close(answers) }()
	return answers, nil
}

// Reserve gives a task its devices as NVIDIA's plugin does.
func (*fakeGPUs) Reserve(ids []string) (*device.ContainerReservation, error) {
	return &device.ContainerReservation{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(ids, ",")}}, nil
}

func (*fakeGPUs) Stats(ctx context.Context, _ time.Duration) (<-chan *device.StatsResponse, error) {
	answers := make(chan *device.StatsResponse)
	go func() { <-ctx.Done(); close(answers) }()
	return answers, nil
}

func main() {
	plugins.Serve(func(hclog.Logger) any { return &fakeGPUs{settings{Count: 8, Model: "H200", Prefix: "GPU"}} })
}
