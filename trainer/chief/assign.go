package chief

import (
	"time"

	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/trainer/spans"
)

// assign gives every partition a reader, evens out their number over the members that are ready, and grants again whatever lies below a
// partition's position without being applied everywhere or held by a live member (rule 12).
func (m *machine) assign(now time.Time) {
	if !m.progressKnown() {
		return
	}
	m.revoke(now)
	if m.inGrace(now) || m.halted != nil || m.opt.TopicID != "" && !m.verified {
		return // a member that has not registered again may still answer for what nobody seems to hold
	}
	m.place()
	m.repair()
}

// patience is how long a member may go without an answer from any broker before others read in its place: longer than a broker needs to be restarted in a
// rolling upgrade's usual pause, shorter than a person needs to notice.
func (m *machine) patience() time.Duration { return 2 * m.opt.LeaseTimeout }

// giveBack says that what a member has still to read goes to others: the brokers do not answer it, they do answer this chief, and somebody else can read. When
// they answer nobody, nothing is moved.
func (m *machine) giveBack(now time.Time, w *member) bool {
	if !w.cutOff || now.Sub(m.kafkaSeen) > m.opt.LeaseTimeout {
		return false
	}
	for _, o := range m.members {
		if o.eligible() {
			return true
		}
	}
	return false
}

// revoke takes leases back from members that drain or that no broker answers, from everybody when the topic is gone, and one at a time from the most to the least loaded.
func (m *machine) revoke(now time.Time) {
	load := map[string]int{}
	var eligible []*member
	for _, w := range m.sortedMembers() {
		if w.eligible() {
			eligible = append(eligible, w)
		}
	}
	free := 0
	for _, p := range m.sorted() {
		if p.lease == nil || p.lease.revoking {
			free++
			continue
		}
		w := m.members[p.lease.member]
		if w == nil || w.session != p.lease.session || !w.live() {
			p.lease = nil
			free++
			continue
		}
		if m.halted != nil || w.drain || m.giveBack(now, w) {
			p.lease.revoking = true
			free++
			continue
		}
		load[w.name]++
	}
	if len(eligible) < 2 || free > 0 {
		return
	}
	least := eligible[0]
	for _, w := range eligible {
		if load[w.name] < load[least.name] {
			least = w
		}
	}
	most := m.mostLoaded(load)
	if load[most]-load[least.name] < 2 {
		return
	}
	for _, p := range m.sorted() {
		if p.lease.member == most {
			p.lease.revoking = true
			return
		}
	}
}

func (m *machine) mostLoaded(load map[string]int) string {
	best := ""
	for _, w := range m.sortedMembers() {
		if best == "" || load[w.name] > load[best] {
			best = w.name
		}
	}
	return best
}

// place grants free partitions to the ready members with the fewest.
func (m *machine) place() {
	load := map[string]int{}
	for _, p := range m.partitions {
		if p.lease != nil && !p.lease.revoking {
			load[p.lease.member]++
		}
	}
	members := m.sortedMembers()
	for _, p := range m.sorted() {
		if p.lease != nil {
			continue
		}
		var to *member
		for _, w := range members {
			if w.eligible() && (to == nil || load[w.name] < load[to.name]) {
				to = w
			}
		}
		if to == nil {
			return
		}
		load[to.name]++
		m.epochs++
		p.grants++
		p.lease = &lease{
			member: to.name, session: to.session, epoch: &rpc.Epoch{Chief: m.opt.Incarnation, Counter: m.epochs},
			grant: p.grants, position: p.position,
		}
	}
}

// repair grants, to the holder of each partition, the spans below its position that nobody answers for.
func (m *machine) repair() {
	for _, p := range m.sorted() {
		if p.lease == nil || p.lease.revoking {
			continue
		}
		missing := m.unheld(p)
		if len(missing) == 0 {
			continue
		}
		p.grants++
		p.lease.grant = p.grants
		for _, sp := range missing {
			p.lease.repairs = append(p.lease.repairs, repair{grant: p.grants, span: sp})
		}
	}
}

// unheld returns the spans below the holder's position that are neither applied everywhere, nor outstanding with a live member, nor granted
// and not yet taken in. The limit is the position that the holder itself has reported: what lies above it, it is still going to read, even
// when a push of its own has overtaken its report.
func (m *machine) unheld(p *partition) []spans.Span {
	missing := p.applied.Missing(p.start, p.lease.position)
	if len(missing) == 0 {
		return nil
	}
	held := spans.Of()
	for _, w := range m.members {
		if !w.live() {
			continue
		}
		for _, sp := range orEmpty(w.outstanding[p.id]).Spans() {
			held.Add(sp.Begin, sp.End)
		}
	}
	for _, r := range p.lease.repairs {
		held.Add(r.span.Begin, r.span.End)
	}
	var out []spans.Span
	for _, sp := range missing {
		out = append(out, held.Missing(sp.Begin, sp.End)...)
	}
	return out
}

// idleBeats is how many beats a second the members that read nothing may send together.
const idleBeats = 500

// pace is after how long a member is to beat again. While it reads, joins or drains that is as often as can be, since a partition rests for so long when it
// changes hands. The others share idleBeats, so that a chief with hundreds of them has time for those that read; each beats ten times within a lease.
func (m *machine) pace(w *member) time.Duration {
	if !w.eligible() {
		return m.opt.Beat
	}
	for _, p := range m.partitions {
		if p.lease != nil && p.lease.session == w.session {
			return m.opt.Beat
		}
	}
	live := 0
	for _, o := range m.members {
		if o.live() {
			live++
		}
	}
	return max(m.opt.Beat, min(time.Duration(live)*time.Second/idleBeats, m.opt.LeaseTimeout/10))
}

// still says that nobody is to train: a person has paused the job, or its topic is gone.
func (m *machine) still() bool { return m.paused || m.halted != nil }

// directive renders the desired state of one member.
func (m *machine) directive(now time.Time, w *member, interested []int32) *rpc.Directive {
	d := &rpc.Directive{
		Fence: m.fence(), Drain: w.drain, Paused: m.still(),
		NextBeatMs: m.pace(w).Milliseconds(), Servers: m.serverInfos(), Peers: m.peers(w), GiveBack: m.giveBack(now, w),
		OnUndecodable: m.opt.Policies.GetOnUndecodable(),
	}
	wanted := map[int32]bool{}
	for _, id := range interested {
		wanted[id] = true
	}
	for id := range w.outstanding {
		wanted[id] = true
	}
	for _, p := range m.sorted() {
		mine := p.lease != nil && p.lease.session == w.session
		if mine && !p.lease.revoking {
			g := &rpc.Grant{Id: p.lease.grant, Partition: p.id, Epoch: p.lease.epoch, Position: p.lease.position, Replay: true}
			for _, r := range p.lease.repairs {
				g.Repair = append(g.Repair, &rpc.Span{Partition: p.id, Begin: r.span.Begin, End: r.span.End})
			}
			d.Grants = append(d.Grants, g)
			for _, sp := range p.lost.Spans() {
				for _, miss := range p.applied.Missing(sp.Begin, sp.End) {
					d.Lost = append(d.Lost, &rpc.Span{Partition: p.id, Begin: miss.Begin, End: miss.End})
				}
			}
		}
		if m.progressKnown() && (mine || wanted[p.id]) {
			d.Applied = append(d.Applied, offsetSet(p.id, p.watermark, p.applied))
		}
	}
	return d
}

func offsetSet(id int32, watermark int64, applied *spans.Set) *rpc.OffsetSet {
	o := &rpc.OffsetSet{Partition: id, Watermark: watermark}
	for _, sp := range applied.Spans() {
		if sp.End > watermark {
			o.Above = append(o.Above, &rpc.Span{Partition: id, Begin: sp.Begin, End: sp.End})
		}
	}
	return o
}

// peers lists the members that can receive chunks, those without partitions first.
func (m *machine) peers(w *member) []*rpc.PeerInfo {
	holds := map[string]bool{}
	for _, p := range m.partitions {
		if p.lease != nil {
			holds[p.lease.member] = true
		}
	}
	var idle, busy []*rpc.PeerInfo
	for _, o := range m.sortedMembers() {
		if o == w || !o.live() || o.state == rpc.MemberState_MEMBER_STATE_JOINING {
			continue
		}
		// One that drains still finishes what it has accepted: dropping it here would make its origins queue those chunks again.
		i := &rpc.PeerInfo{Member: o.name, Address: o.address, HasPartitions: holds[o.name]}
		if holds[o.name] {
			busy = append(busy, i)
		} else {
			idle = append(idle, i)
		}
	}
	return append(idle, busy...)
}
