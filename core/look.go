package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
	"github.com/kale-sched/kale/core/plan"
	"github.com/kale-sched/kale/core/rpc"
	"github.com/kale-sched/kale/core/traffic"
)

// lookTimeout bounds each question of one look, and those that follow from the answers.
const lookTimeout = 3 * time.Second

// staleAnswer is how long after its question an answer of Kafka's says nothing of the time at which it is taken.
const staleAnswer = lookTimeout + time.Second

// seen is what one look found. A part that failed has its error; it is unknown, and never taken for empty.
type seen struct {
	at       time.Time
	stopping bool // what is looked at is a job that is being stopped
	// since is how long before the look was over Kafka and the chief had both answered: lag is of that moment, however slow the backend is.
	since    time.Duration
	ends     map[int32]int64
	endsErr  error
	behind   behind
	chief    *rpc.JobStatus
	chiefErr error
	progress *rpc.AdvancesResponse
	// workerRoom and serverRoom say whether there is a place for one more; nil: not asked, or not known.
	workerRoom, serverRoom *room
	// moving is why the chief is away, where that is planned.
	moving string
	// cannotStart are the servers that say in the checkpoint folder why they cannot start.
	cannotStart []rpc.RestoreRecord
	// modelGone: the job had a checkpoint, and what it keeps in its folder is not there any more.
	modelGone bool
	list      []backend.Status
	complete  bool
	listErr   error
	util      float64
	utilKnown bool
	inventory *backend.Inventory // nil: not asked, or not known
	leaseErr  error              // why nothing may be touched
}

// look asks Kafka, the chief and the backend at the same time.
func (s *Scheduler) look(asked context.Context) *seen {
	ctx, cancel := context.WithTimeout(asked, lookTimeout)
	defer cancel()
	n := &seen{at: time.Now(), stopping: s.want.Stopping}
	chiefAt := n.at
	defer func() { n.since = time.Since(laterOf(n.at, chiefAt)) }()
	had := s.hasModel() && !s.want.Stopped
	if v := s.want.ServerRenewal; v != nil && v.Index == 0 && !v.Released.IsZero() {
		n.moving = "parameter server 0 is renewed, and the chief with it: " + v.String()
	} else if v != nil && v.Index == 0 && v.ends {
		n.moving = "parameter server 0 is ended by " + v.Cause.String() + ", and the chief with it; its successor has to wait for a place: " + v.NoRoom
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if n.endsErr = s.offline(); n.endsErr != nil {
			return
		}
		asked := time.Now().Round(0) // by the wall clock: the monotonic one stands still while a machine sleeps
		n.ends, n.endsErr = s.kafka.Ends(ctx)
		n.at = time.Now()
		if took := n.at.Sub(asked); n.endsErr == nil && took > staleAnswer {
			n.endsErr = fmt.Errorf("this scheduler stood still for %s before it could take the answer, which is too old by now", job.Length(took))
		}
	})
	wg.Go(func() {
		n.chief, n.chiefErr = s.chief.status(ctx)
		chiefAt = time.Now()
		if n.chiefErr == nil {
			n.progress, _ = s.chief.advances(ctx, s.progress.last) // a missing answer shows as a gap that is not known
		}
		n.cannotStart = n.servers(s.job)
		recorded, err := rpc.HasJobState(CheckpointFolder(s.job))
		n.modelGone = had && err == nil && !recorded
		s.modelSeen = s.modelSeen || recorded
	})
	wg.Go(func() { n.leaseErr = s.lease.Check(ctx) })
	wg.Go(func() { n.list, n.complete, n.listErr = s.opt.list(ctx) })
	if s.asksInventory() {
		wg.Go(func() {
			if inv, err := s.opt.Backend.Inventory(ctx); err == nil {
				n.inventory = &inv
				n.util, n.utilKnown = meanBusy(s.job.Name, inv.Devices)
			}
		})
	}
	worker, server := s.asksRoom()
	if worker {
		wg.Go(func() {
			n.workerRoom = s.workerAsk.lately(s.roomEvery, func() *room { return s.roomFor(ctx, s.want.Workers, s.loads.worker) })
		})
	}
	if server {
		wg.Go(func() {
			n.serverRoom = s.serverAsk.lately(s.roomEvery, func() *room { return s.roomFor(ctx, s.want.Servers, s.loads.server) })
		})
	}
	wg.Wait()
	if n.inventory != nil {
		s.excluded, s.faults = excludedFrom(s.job.Name, n.inventory), n.inventory.Faults
	}
	s.loads.begun = s.hasModel()
	if n.unlisted() == "" {
		s.listed, s.listedAt = n.list, n.at
	}
	if n.chiefErr == nil {
		s.said, s.saidAt = n.chief, chiefAt
	}
	n.cannotStart = append(n.cannotStart, s.troubledServers(n)...)
	s.gone = s.store == nil && s.want.Target > 0 && n.unlisted() == "" && silent(n.chiefErr) && !slices.ContainsFunc(n.list, func(st backend.Status) bool { return st.State.Live() })
	further, cancel := context.WithTimeout(asked, lookTimeout) // a backend that was slow leaves them no less
	defer cancel()
	s.lookBehind(further, n)
	s.lookKept(further, n)
	if asked.Err() != nil {
		return n // the scheduler ends: silence means nothing
	}
	s.note(&s.kafkaDown, n.endsErr, "Kafka")
	if s.begun() && n.moving == "" && !n.modelGone || !silent(n.chiefErr) {
		s.note(&s.chiefDown, n.chiefErr, "the chief")
	}
	s.note(&s.backendDown, n.listErr, "the backend")
	s.note(&s.leaseDown, n.leaseErr, "the checkpoint folder")
	return n
}

// offline says that the brokers have been asked in vain already, for a preview, which asks them once.
func (s *Scheduler) offline() error {
	if s.opt.Offline {
		return errors.New("the brokers do not answer")
	}
	return nil
}

// silent says that nobody answers for the chief. Before a job has begun that is no news: the record of its last chief stays in the checkpoint folder.
func silent(err error) bool {
	return errors.Is(err, rpc.ErrNoChief) || status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded
}

// warn logs what a problem or a note of the view tells too.
func (s *Scheduler) warn(msg string, args ...any) {
	level := slog.LevelWarn
	if s.opt.Told {
		level = slog.LevelInfo
	}
	s.lg.Log(context.Background(), level, msg, args...)
}

// note logs when something stops or starts to answer, once each. While the job is being stopped, silence is what is wanted; a preview says it in its decision.
func (s *Scheduler) note(down *bool, err error, who string) {
	switch {
	case s.store == nil:
	case err != nil && !*down && !s.want.Stopping:
		s.warn("no answer; holding what is", "from", who, "err", err)
	case err == nil && *down:
		s.lg.Info("answers again", "from", who)
	}
	*down = err != nil
}

// meanBusy is the mean busy share of this job's GPUs, where the backend's nodes report it. It leaves out devices of others and readings that are no share.
func meanBusy(job string, devices []backend.Device) (share float64, known bool) {
	n := 0
	for _, d := range devices {
		if u := d.Utilisation; u != nil && *u >= 0 && *u <= 1 && strings.HasPrefix(d.HeldBy, job+"/") {
			share += *u
			n++
		}
	}
	if n == 0 {
		return 0, false
	}
	return share / float64(n), true
}

// follow takes what was seen into the histories: arrivals, progress, throughput.
func (s *Scheduler) follow(now time.Time) {
	n := s.seen
	s.outages.heard(n.at, n.endsErr, s.job.Forecast.Interval, s.job.Forecast.Horizon)
	if n.endsErr == nil {
		if err := s.arrivals.Observe(n.at, n.ends); err != nil {
			if errors.Is(err, traffic.ErrShrunk) {
				n.endsErr = fmt.Errorf("%w: the topic was created again, or its log was cut short", err)
			}
			if !s.arrivalsDown {
				s.lg.Warn("arrivals cannot be followed", "err", err)
			}
			s.arrivalsDown = true
		} else {
			s.arrivalsDown = false
			if since, missed := s.arrivals.Missed(); missed {
				s.missed.from(since)
			}
		}
	}
	if n.progress != nil {
		s.progress.add(now, n.progress)
	}
	for _, m := range n.chief.GetMembers() {
		if m.GetState() == rpc.MemberState_MEMBER_STATE_READY {
			s.want.trains()
		}
	}
	s.remember()
	s.failing = s.snapshotFailures()
	s.absence.add(n.chief.GetTotals(), s.job.Features.Sparse, s.job.Features.Dense)
	s.teach(now)
}

// keepBeside puts the token and the shape beside the checkpoint once the chief has made its folder and taken the token.
func (s *Scheduler) keepBeside() {
	if s.seen.chiefErr != nil || s.kept || s.seen.leaseErr != nil || s.seen.modelGone {
		return
	}
	err := keepToken(s.job, s.want.Token)
	if r, ok := readJobRecord(s.job); ok && r.Fingerprint == s.job.Fingerprint() {
		err = errors.Join(err, keepShape(s.job))
	}
	s.keepOrder()
	if s.kept = true; err != nil {
		s.lg.Warn("the checkpoint folder cannot be written by the scheduler: if its own state is lost, the job must be stopped by force", "err", err)
	}
}

// applied is the trained watermark of each partition, nil when the chief is unknown.
func (n *seen) applied() map[int32]int64 {
	if n.chiefErr != nil {
		return nil
	}
	out := map[int32]int64{}
	for _, p := range n.chief.GetPartitions() {
		out[p.GetPartition()] = p.GetApplied()
	}
	return out
}

// member finds a worker's membership.
func (n *seen) member(rank int, generation uint64) *rpc.MemberStatus {
	if n.chiefErr != nil {
		return nil
	}
	for _, m := range n.chief.GetMembers() {
		if int(m.GetRank()) == rank && m.GetGeneration() == generation {
			return m
		}
	}
	return nil
}

func (n *seen) allocation(id backend.ID) (backend.Status, bool) {
	i := slices.IndexFunc(n.list, func(st backend.Status) bool { return st.ID == id })
	if i < 0 {
		return backend.Status{}, false
	}
	return n.list[i], true
}

// ListedInPart says that a backend's list is not complete, and why.
func ListedInPart(list []backend.Status) string {
	for _, st := range list {
		if st.Err != nil {
			return "the backend could not look everywhere: " + st.Err.Message
		}
	}
	return "the backend could not look everywhere: what is missing from its list is unknown"
}

// unseen is what stands in the way of a job whose look was blind: its backend tells nothing of its processes until a person has done something about it.
const unseen = "what runs cannot be seen"

func (n *seen) blind() bool { return n.listErr != nil && NeedsAPerson(n.listErr) }

// unlisted says why the list of processes may not be all that there is, or "".
func (n *seen) unlisted() string {
	switch {
	case n.blind():
		text := unseen + ": " + backend.AsError(n.listErr).Message
		if backend.CodeOf(n.listErr) == backend.Unauthorised {
			again := "the same kale run again with the new ones: training goes on"
			if n.stopping {
				again = "kale stop again with the new ones"
			}
			text += ". Where its credentials were replaced, end this scheduler (Ctrl-C) and give " + again
		}
		return text
	case n.listErr != nil:
		return backendSilent + n.listErr.Error()
	case !n.complete:
		return ListedInPart(n.list)
	}
	return ""
}

// noEnds says why the topic's end offsets are not known; "": they are.
func (n *seen) noEnds() string {
	if n.endsErr == nil {
		return ""
	}
	return endsUnknown + n.endsErr.Error()
}

// noTopic is what helps where the topic is not there.
const noTopic = ". Where it was deleted, what was not trained of it is gone: kale stop ends the job and keeps its model, and a topic that is created in its place is another one, for a job with " +
	"another checkpoint.dir. Where the brokers have only lost sight of it, or do not show it to this job any more, training goes on by itself once they do"

// What is unknown because the checkpoint folder is gone, which is a problem by itself.
const (
	leaseGone = "whether another scheduler has the job meanwhile cannot be seen while its checkpoint folder is gone"
	chiefGone = "what the chief does is unknown while the job's checkpoint folder is gone"
)

// unknown says why nothing may be decided on this look, or "".
func (n *seen) unknown(started bool) string {
	switch {
	case n.leaseErr != nil && n.modelGone:
		return leaseGone
	case n.leaseErr != nil:
		return "whether this is still the job's scheduler is unknown: " + n.leaseErr.Error()
	case n.blind():
		return unseen
	case n.unlisted() != "":
		return n.unlisted()
	case n.endsErr != nil:
		return n.noEnds()
	case started && status.Code(n.chiefErr) == codes.Unauthenticated:
		return "the chief refuses this scheduler: the job was started with another token, which is lost with the scheduler's state and its checkpoint folder's; " +
			"training goes on, but only kale stop -force and a new kale run bring it back under control"
	case n.chiefErr != nil && started && n.modelGone && silent(n.chiefErr):
		return chiefGone
	case n.chiefErr != nil && started && n.moving != "" && silent(n.chiefErr):
		return n.moving
	case n.chiefErr != nil && started:
		return chiefMute + n.chiefErr.Error()
	}
	return ""
}

// Who does not answer, before how that showed at a look.
const (
	backendSilent = "the backend does not answer: "
	endsUnknown   = "Kafka's end offsets are unknown: "
	chiefMute     = "the chief does not answer: "
)

// Behind is what is behind a problem that shows in one way at one look and in another at the next, and is one problem: who does not answer, that records cannot be
// decoded, or that brokers remove what is not trained; "": what it says itself.
func Behind(problem string) string {
	for _, h := range halting {
		if strings.HasPrefix(problem, h.stops+"partition") {
			return h.behind
		}
	}
	for _, what := range []string{backendSilent, endsUnknown, chiefMute, unseen + ": ", undecodable} {
		if strings.HasPrefix(problem, what) {
			return strings.TrimSuffix(what, ": ")
		}
	}
	if text, _, _ := strings.Cut(problem, LogEnds); strings.Contains(text, "retention") {
		return "retention is close to what is not trained, or beyond it"
	}
	return ""
}

// workers counts the wanted and leaving workers by what is known of them.
func (s *Scheduler) workers() plan.Workers {
	var w plan.Workers
	n := s.seen
	for _, rank := range s.want.Ranks {
		id := backend.ID{Role: backend.RoleWorker, Rank: rank, Generation: s.want.Workers[rank]}
		m := n.member(rank, id.Generation)
		switch {
		case m.GetState() == rpc.MemberState_MEMBER_STATE_READY:
			w.Running++
		case n.listErr != nil || n.chiefErr != nil && s.begun():
			w.Unknown++
		default:
			w.Pending++
		}
	}
	w.Draining = len(s.want.Draining)
	if n.listErr != nil && len(s.want.Ranks) == 0 { // of a job whose state is lost, its chief may tell whom nobody here has wanted
		for _, m := range n.chief.GetMembers() {
			if counted(m) {
				w.Unknown++
			}
		}
	}
	return w
}
