package local

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/kale-sched/kale/core/backend"
)

// gpu is one device that a process can be given: a whole GPU, or one MIG instance of a GPU that is split.
type gpu struct {
	uuid        string // as CUDA_VISIBLE_DEVICES takes it
	model       string
	memory      int64    // bytes
	utilisation *float64 // busy share in [0,1] over the driver's last sample period; nil when it does not tell
	mig         bool
}

// gpuSource finds the machine's GPUs. found is empty on a machine without; an error means that they cannot be told.
type gpuSource interface {
	find() (found []gpu, err error)
	close()
}

// pool is every device of one folder, and who holds it.
type pool struct {
	gpus    bool // devices are GPUs, not slots
	mig     map[string]bool
	devices []backend.Device
}

// pool looks at the devices and the instances of the settings' folder.
func (l *local) pool(s settings) (*pool, error) {
	views, err := s.root().scan()
	if err != nil {
		return nil, err
	}
	for _, v := range views {
		if v.broken != nil && v.held && len(v.spec.Argv) == 0 {
			return nil, backend.Errorf(backend.Blocked,
				"%s of job %q runs, but what it holds cannot be read: %w; repair or remove the folder %s", v.id, v.job, v.broken, v.dir)
		}
	}
	p := &pool{mig: map[string]bool{}}
	node := hostName()
	if s.gpus {
		found, err := l.gpus.find()
		if err != nil {
			return nil, backend.Errorf(backend.Unavailable, "find this machine's GPUs: %w", err)
		}
		p.gpus = len(found) > 0
		for _, g := range found {
			p.mig[g.uuid] = g.mig
			p.devices = append(p.devices, backend.Device{
				ID: g.uuid, Node: node, Model: g.model, MemoryBytes: g.memory, Utilisation: g.utilisation,
			})
		}
	}
	if !p.gpus {
		for i := range s.slots {
			p.devices = append(p.devices, backend.Device{ID: "slot-" + strconv.Itoa(i), Node: node})
		}
	}
	p.hold(views)
	return p, nil
}

// hold marks what the instances have.
func (p *pool) hold(views []view) {
	holder := map[string]string{}
	for _, v := range views {
		if v.over() {
			continue
		}
		for _, d := range v.spec.Devices {
			holder[d] = v.job + "/" + v.id.String()
		}
	}
	for i := range p.devices {
		p.devices[i].HeldBy = holder[p.devices[i].ID]
	}
}

func (p *pool) free() int {
	n := 0
	for _, d := range p.devices {
		if d.HeldBy == "" {
			n++
		}
	}
	return n
}

// noun names so many devices.
func (p *pool) noun(n int) string {
	noun := "slots"
	if p.gpus {
		noun = "GPUs"
	}
	if n == 1 {
		noun = strings.TrimSuffix(noun, "s")
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// take gives n free devices to the holder, or says why it cannot. A process can use one MIG instance at most, so who
// needs several devices gets whole GPUs.
func (p *pool) take(n int, holder string) ([]string, error) {
	var chosen []int
	for i, d := range p.devices {
		if len(chosen) < n && d.HeldBy == "" && (n == 1 || !p.mig[d.ID]) {
			chosen = append(chosen, i)
		}
	}
	if len(chosen) < n {
		err := fmt.Errorf("needs %s, %d free of %d", p.noun(n), p.free(), len(p.devices))
		if p.free() >= n {
			err = fmt.Errorf("needs %s that are not split (MIG), %d free", p.noun(n), len(chosen))
		}
		return nil, err
	}
	var ids []string
	for _, i := range chosen {
		p.devices[i].HeldBy = holder
		ids = append(ids, p.devices[i].ID)
	}
	return ids, nil
}

// lock takes the folder's lock, which whoever gives out devices holds, and makes the folder when there is none.
func (r root) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(string(r), 0o700); err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "make the state folder: %w%s", err, dirAdvice)
	}
	f, err := backend.Lock(ctx, r.lockPath())
	if ctx.Err() != nil && f == nil {
		return nil, backend.Errorf(backend.Unavailable, "lock the state folder: %w", err)
	}
	if err != nil {
		return nil, backend.Errorf(backend.FileCode(err), "lock the state folder: %w%s", err, dirAdvice)
	}
	return func() { f.Close() }, nil
}
