package backend

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/kale-sched/kale/core/backend/backendpb"
)

// This file turns the contract's values into the wire's and back. A value that a newer peer sends and this one does
// not know becomes the most careful one: unknown state, unknown error, error severity.

var stateTable = []struct {
	state State
	pb    backendpb.State
}{
	{StatePending, backendpb.State_STATE_PENDING},
	{StateStarting, backendpb.State_STATE_STARTING},
	{StateRunning, backendpb.State_STATE_RUNNING},
	{StateStopping, backendpb.State_STATE_STOPPING},
	{StateExited, backendpb.State_STATE_EXITED},
	{StateFailed, backendpb.State_STATE_FAILED},
	{StateUnknown, backendpb.State_STATE_UNKNOWN},
}

func stateToPB(s State) backendpb.State {
	for _, row := range stateTable {
		if row.state == s {
			return row.pb
		}
	}
	return backendpb.State_STATE_UNKNOWN
}

func stateFromPB(pb backendpb.State) State {
	for _, row := range stateTable {
		if row.pb == pb {
			return row.state
		}
	}
	return StateUnknown
}

func each[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

func timeToPB(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeFromPB(pb *timestamppb.Timestamp) time.Time {
	if pb == nil {
		return time.Time{}
	}
	return pb.AsTime()
}

func idToPB(id ID) *backendpb.ID {
	return &backendpb.ID{Role: id.Role, Rank: int64(id.Rank), Generation: id.Generation}
}

func idFromPB(pb *backendpb.ID) ID {
	return ID{Role: pb.GetRole(), Rank: int(pb.GetRank()), Generation: pb.GetGeneration()}
}

func workloadToPB(w Workload) *backendpb.Workload {
	return &backendpb.Workload{
		Id: idToPB(w.ID), Argv: w.Argv, Env: w.Env, Files: w.Files,
		Resources: &backendpb.Resources{
			Gpus: int64(w.Resources.GPUs), CpuMilli: int64(w.Resources.CPUMilli), MemoryBytes: w.Resources.MemoryBytes,
		},
		StopGrace: durationpb.New(w.StopGrace), Avoid: w.Avoid, Beside: w.Beside,
	}
}

func workloadFromPB(pb *backendpb.Workload) Workload {
	r := pb.GetResources()
	return Workload{
		ID: idFromPB(pb.GetId()), Argv: pb.GetArgv(), Env: pb.GetEnv(), Files: pb.GetFiles(),
		Resources: Resources{GPUs: int(r.GetGpus()), CPUMilli: int(r.GetCpuMilli()), MemoryBytes: r.GetMemoryBytes()},
		StopGrace: pb.GetStopGrace().AsDuration(), Avoid: pb.GetAvoid(), Beside: pb.GetBeside(),
	}
}

func statusToPB(s Status) *backendpb.Status {
	return &backendpb.Status{
		Id: idToPB(s.ID), State: stateToPB(s.State), Node: s.Node, Address: s.Address, Devices: s.Devices,
		Pid: int64(s.PID), Restarts: int64(s.Restarts), ExitCode: int64(s.ExitCode), Reason: s.Reason,
		Started: timeToPB(s.Started), Finished: timeToPB(s.Finished), Error: errorToPB(s.Err),
		Submitted: timeToPB(s.Submitted), Deadline: timeToPB(s.Deadline), EndCause: string(s.EndCause), Beside: s.Beside, Behind: s.Behind, Away: s.Away, Asks: s.Asks,
		Remarks: each(s.Remarks, remarkToPB),
	}
}

func remarkToPB(r Remark) *backendpb.Remark {
	return &backendpb.Remark{At: timeToPB(r.At), Text: r.Text}
}

func remarkFromPB(pb *backendpb.Remark) Remark {
	return Remark{At: timeFromPB(pb.GetAt()), Text: pb.GetText()}
}

func statusFromPB(pb *backendpb.Status) Status {
	return Status{
		ID: idFromPB(pb.GetId()), State: stateFromPB(pb.GetState()), Node: pb.GetNode(), Address: pb.GetAddress(),
		Devices: pb.GetDevices(), PID: int(pb.GetPid()), Restarts: int(pb.GetRestarts()), ExitCode: int(pb.GetExitCode()),
		Reason: pb.GetReason(), Started: timeFromPB(pb.GetStarted()), Finished: timeFromPB(pb.GetFinished()),
		Submitted: timeFromPB(pb.GetSubmitted()), Deadline: timeFromPB(pb.GetDeadline()), EndCause: EndCause(pb.GetEndCause()), Beside: pb.GetBeside(), Behind: pb.GetBehind(), Away: pb.GetAway(), Asks: pb.GetAsks(), Err: errorFromPB(pb.GetError()),
		Remarks: each(pb.GetRemarks(), remarkFromPB),
	}
}

func positionToPB(p Position) *backendpb.Position {
	return &backendpb.Position{Line: int64(p.Line), Column: int64(p.Column), Byte: int64(p.Byte)}
}

func positionFromPB(pb *backendpb.Position) Position {
	return Position{Line: int(pb.GetLine()), Column: int(pb.GetColumn()), Byte: int(pb.GetByte())}
}

func rangeToPB(r Range) *backendpb.Range {
	return &backendpb.Range{Filename: r.Filename, Start: positionToPB(r.Start), End: positionToPB(r.End)}
}

func rangeFromPB(pb *backendpb.Range) Range {
	return Range{Filename: pb.GetFilename(), Start: positionFromPB(pb.GetStart()), End: positionFromPB(pb.GetEnd())}
}

func diagnosticToPB(d Diagnostic) *backendpb.Diagnostic {
	severity := backendpb.Severity_SEVERITY_ERROR
	if d.Severity == SeverityWarning {
		severity = backendpb.Severity_SEVERITY_WARNING
	}
	return &backendpb.Diagnostic{
		Severity: severity, Summary: d.Summary, Detail: d.Detail, Filename: d.Filename,
		Start: positionToPB(d.Start), End: positionToPB(d.End),
	}
}

func diagnosticFromPB(pb *backendpb.Diagnostic) Diagnostic {
	severity := SeverityError
	if pb.GetSeverity() == backendpb.Severity_SEVERITY_WARNING {
		severity = SeverityWarning
	}
	return Diagnostic{
		Severity: severity, Summary: pb.GetSummary(), Detail: pb.GetDetail(), Filename: pb.GetFilename(),
		Start: positionFromPB(pb.GetStart()), End: positionFromPB(pb.GetEnd()),
	}
}

func configToPB(cfg Config) *backendpb.ConfigureRequest {
	return &backendpb.ConfigureRequest{
		Job: cfg.Job, Source: cfg.Source, Filename: cfg.Filename, StateDir: cfg.StateDir, Variables: cfg.Variables, Shared: cfg.Shared,
		Start: positionToPB(Position{Line: cfg.StartLine, Column: cfg.StartColumn, Byte: cfg.StartByte}),
		Owner: &backendpb.Owner{Id: cfg.Owner.ID, Words: cfg.Owner.Words}, SharedAt: each(cfg.SharedAt, rangeToPB),
	}
}

func configFromPB(pb *backendpb.ConfigureRequest) Config {
	start := positionFromPB(pb.GetStart())
	return Config{
		Job: pb.GetJob(), Source: pb.GetSource(), Filename: pb.GetFilename(), StateDir: pb.GetStateDir(),
		StartLine: start.Line, StartColumn: start.Column, StartByte: start.Byte, Variables: pb.GetVariables(), Shared: pb.GetShared(),
		Owner: Owner{ID: pb.GetOwner().GetId(), Words: pb.GetOwner().GetWords()}, SharedAt: each(pb.GetSharedAt(), rangeFromPB),
	}
}

func reportToPB(r Report) *backendpb.PlanResponse {
	return &backendpb.PlanResponse{
		Placements: each(r.Placements, placementToPB), Shortage: r.Shortage, Mistakes: each(r.Mistakes, diagnosticToPB),
	}
}

func reportFromPB(pb *backendpb.PlanResponse) Report {
	return Report{
		Placements: each(pb.GetPlacements(), placementFromPB), Shortage: pb.GetShortage(), Mistakes: each(pb.GetMistakes(), diagnosticFromPB),
	}
}

func placementToPB(p Placement) *backendpb.Placement {
	return &backendpb.Placement{Id: idToPB(p.ID), Fits: p.Fits, Node: p.Node, Devices: p.Devices, Reason: p.Reason, Newest: p.Newest}
}

func placementFromPB(pb *backendpb.Placement) Placement {
	return Placement{
		ID: idFromPB(pb.GetId()), Fits: pb.GetFits(), Node: pb.GetNode(), Devices: pb.GetDevices(), Reason: pb.GetReason(), Newest: pb.GetNewest(),
	}
}

func deviceToPB(d Device) *backendpb.Device {
	return &backendpb.Device{
		Id: d.ID, Node: d.Node, Model: d.Model, MemoryBytes: d.MemoryBytes, HeldBy: d.HeldBy, Utilisation: d.Utilisation,
	}
}

func deviceFromPB(pb *backendpb.Device) Device {
	return Device{
		ID: pb.GetId(), Node: pb.GetNode(), Model: pb.GetModel(), MemoryBytes: pb.GetMemoryBytes(),
		HeldBy: pb.GetHeldBy(), Utilisation: pb.Utilisation,
	}
}

func inventoryToPB(inv Inventory) *backendpb.InventoryResponse {
	pb := &backendpb.InventoryResponse{
		Total: int64(inv.Total), Free: int64(inv.Free), Devices: each(inv.Devices, deviceToPB),
		CpuMilli: int64(inv.CPUMilli), MemoryBytes: inv.MemoryBytes, NodeCpuMilli: int64(inv.NodeCPUMilli), NodeMemoryBytes: inv.NodeMemoryBytes,
		Excluded: each(inv.Excluded, exclusionToPB), Silent: inv.Silent, Faults: inv.Faults,
	}
	if inv.QueueWait > 0 {
		pb.QueueWait = durationpb.New(inv.QueueWait)
	}
	return pb
}

func inventoryFromPB(pb *backendpb.InventoryResponse) Inventory {
	return Inventory{
		Total: int(pb.GetTotal()), Free: int(pb.GetFree()), Devices: each(pb.GetDevices(), deviceFromPB),
		CPUMilli: int(pb.GetCpuMilli()), MemoryBytes: pb.GetMemoryBytes(),
		NodeCPUMilli: int(pb.GetNodeCpuMilli()), NodeMemoryBytes: pb.GetNodeMemoryBytes(), QueueWait: pb.GetQueueWait().AsDuration(),
		Excluded: each(pb.GetExcluded(), exclusionFromPB), Silent: pb.GetSilent(), Faults: pb.GetFaults(),
	}
}

func exclusionToPB(x Exclusion) *backendpb.Exclusion {
	return &backendpb.Exclusion{Job: x.Job, Node: x.Node, Reason: x.Reason, Until: timeToPB(x.Until)}
}

func exclusionFromPB(pb *backendpb.Exclusion) Exclusion {
	return Exclusion{Job: pb.GetJob(), Node: pb.GetNode(), Reason: pb.GetReason(), Until: timeFromPB(pb.GetUntil())}
}

func howToPB(h How) backendpb.How {
	switch h {
	case Drained:
		return backendpb.How_HOW_DRAINED
	case Forced:
		return backendpb.How_HOW_FORCED
	}
	return backendpb.How_HOW_UNSPECIFIED
}

func howFromPB(pb backendpb.How) How {
	switch pb {
	case backendpb.How_HOW_DRAINED:
		return Drained
	case backendpb.How_HOW_FORCED:
		return Forced
	}
	return 0
}
