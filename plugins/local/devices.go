package local

import (
	"context"
	"fmt"
	"os"
	"slices"
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
	claims  claims
	gpus    bool // devices are GPUs of the machine, not slots of the folder
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
	p := &pool{claims: l.claims, mig: map[string]bool{}}
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
			p.devices = append(p.devices, backend.Device{ID: slotPrefix + strconv.Itoa(i), Node: node})
		}
	}
	return p, p.hold(views)
}

// hold marks what the folder's instances have, and those GPUs that processes of other folders have.
func (p *pool) hold(views []view) error {
	own := map[string]view{}
	for _, v := range views {
		if v.over() {
			continue
		}
		for _, d := range v.spec.Devices {
			own[d] = v
		}
	}
	for i := range p.devices {
		d := &p.devices[i]
		v, known := own[d.ID]
		if known {
			d.HeldBy = v.name()
		}
		if !p.gpus || v.held { // by a supervisor that has the claim
			continue
		}
		by, held, err := p.claims.look(d.ID)
		if err != nil {
			return err
		}
		if held && !(known && by.Dir == v.dir) {
			d.HeldBy = by.String()
		}
	}
	return nil
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

// take gives n free devices to an instance, in the view of the pool alone, or says why it cannot. A process can use one MIG instance at most, so who
// needs several devices gets whole GPUs.
func (p *pool) take(n int, who instance) ([]string, error) {
	var chosen []int
	for i, d := range p.devices {
		if len(chosen) < n && d.HeldBy == "" && (n == 1 || !p.mig[d.ID]) {
			chosen = append(chosen, i)
		}
	}
	if len(chosen) < n {
		err := fmt.Errorf("needs %s, %d free of %d%s", p.noun(n), p.free(), len(p.devices), p.others(who.job))
		if p.free() >= n {
			err = fmt.Errorf("needs %s that are not split (MIG), %d free", p.noun(n), len(chosen))
		}
		return nil, backend.Errorf(backend.NoCapacity, "%w", err)
	}
	var ids []string
	for _, i := range chosen {
		p.devices[i].HeldBy = who.name()
		ids = append(ids, p.devices[i].ID)
	}
	return ids, nil
}

// claim is take with the claims of those that are GPUs. Who was faster in another folder has what it took, and the next ones are tried.
func (p *pool) claim(n int, who instance) (ids []string, claimed []*os.File, err error) {
	for {
		ids, err = p.take(n, who)
		if err != nil || !p.gpus || len(ids) == 0 {
			return ids, nil, err
		}
		claimed, by, err := p.claims.takeAll(ids, who)
		if err == nil && claimed != nil {
			return ids, claimed, nil
		}
		p.giveBack(ids, who)
		if err != nil {
			return nil, nil, err
		}
		for i := range p.devices {
			if p.devices[i].ID == by.device {
				p.devices[i].HeldBy = by.String()
			}
		}
	}
}

// giveBack makes those of the devices free that the instance has, and says how many.
func (p *pool) giveBack(devices []string, who instance) (n int) {
	for i := range p.devices {
		if p.devices[i].HeldBy == who.name() && slices.Contains(devices, p.devices[i].ID) {
			p.devices[i].HeldBy = ""
			n++
		}
	}
	return n
}

// others says which other jobs have all devices; "" when some are free, or they are the job's own.
func (p *pool) others(job string) string {
	var jobs []string
	for _, d := range p.devices {
		name, _, _ := strings.Cut(d.HeldBy, "/")
		switch {
		case name == "":
			return ""
		case name != job && !slices.Contains(jobs, name):
			jobs = append(jobs, name)
		}
	}
	const most = 3 // that are named
	more := ""
	if len(jobs) > most {
		more, jobs = fmt.Sprintf(" and %d more", len(jobs)-most), jobs[:most]
	}
	if len(jobs) == 0 {
		return ""
	}
	return "; held by " + strings.Join(jobs, ", ") + more
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
