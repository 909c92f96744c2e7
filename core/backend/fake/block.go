package fake

import (
	"errors"
	"io/fs"
	"os"

	"github.com/hashicorp/hcl/v2"

	"github.com/kale-sched/kale/core/backend"
)

type block struct {
	Slots      *int      `hcl:"slots,optional"`
	SlotsRange hcl.Range `hcl:"slots,attr_value_range"`
	CrashOn    *string   `hcl:"crash_on,optional"`
	HangOn     *string   `hcl:"hang_on,optional"`
	Once       *string   `hcl:"once,optional"`
}

func decode(cfg backend.Config) (block, backend.Diagnostics) {
	var b block
	diags := backend.DecodeBlock(cfg, &b)
	if b.Slots != nil && *b.Slots < 0 {
		diags = append(diags, backend.Mistake(b.SlotsRange, "Negative number of slots", "slots says how many workloads with one GPU fit; give 0 or more."))
	}
	return b, backend.FromHCL(cfg, diags)
}

// arm scripts the crash and the hang that the block asks for, unless the file that it names exists.
func (b *Backend) arm(blk block) error {
	f, err := os.OpenFile(*blk.Once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if blk.CrashOn != nil {
		b.CrashNext(Op(*blk.CrashOn), func() {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			if err != nil {
				panic("fake: cannot kill itself: " + err.Error())
			}
			select {} // the signal is on its way
		})
	}
	if blk.HangOn != nil {
		b.HangNext(Op(*blk.HangOn))
	}
	return nil
}
