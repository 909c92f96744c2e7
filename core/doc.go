// Package core is the scheduler's shell: it looks at Kafka, the chief and the backend, lets core/plan decide, and carries out what was
// decided. All judgement is in the pure packages; here is I/O, order and patience.
//
// One goroutine owns a job (Scheduler.Run). It has two beats: every watch interval it looks (look.go), brings what runs nearer to what is wanted
// (act.go, stop.go) and takes note of what does not stay up (trouble.go); every tick it decides (decide.go). While a stop or a rescale is under way it
// looks more often (Scheduler.pace). What it asks the backend to change goes on beside that (change.go), as does the arrival history (refill.go).
// Without a scheduler GlanceAt tells what becomes of a job. What must survive a restart is in core/state; everything else is found again from the
// backend and the chief, so the scheduler can stop at any moment and training goes on. What must survive even the loss of that state, the job's
// token and the shape of its model, is kept beside the checkpoint (checkpoint.go).
//
// Where to look, by what one asks:
//
//	who owns a job, and how it lives     keeper.go, custody.go, last.go (one scheduler per checkpoint), scheduler.go (what it is made of), run.go (its beats), configure.go (its backend), state.go, stop.go, kill.go, command.go (orders), snapshot.go
//	what is there                        look.go (one look), chief.go, kafka.go, gap.go and teach.go (what the looks teach), fields.go, retention.go
//	what shall be                        sight.go (what a policy sees), hottest.go, decide.go, share.go (jobs that share a pool), desired.go (what is wanted, and kept), foresight.go, beside.go (a model that takes long), rolling.go, shortage.go
//	how it comes about                   act.go, change.go (a backend that answers late), ranks.go (who leaves first), trouble.go (what does not stay up), hung.go (what does not answer), walltime.go, renew.go, renewserver.go
//	how processes find it                trainspec.go, rendezvous.go, checkpoint.go, probe.go
//	what people are shown                publish.go (the view), record.go, waits.go, standing.go, join.go, rollback.go; without a scheduler glance.go, preview.go, placement.go
//
// Two rules stand above all others. Unknown is never zero: what could not be looked up leads to hold, and hold freezes how many workers there are,
// never the repair of what is already wanted. And nothing is released before the chief says that it is drained, unless it is gone anyway.
package core
