package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core/backend"
)

// everybodys are all jobs that Slurm has, each with the fields that J takes.
func everybodys[J any](ctx context.Context, r *rest) ([]J, error) {
	var answer struct {
		Jobs []J `json:"jobs"`
	}
	err := r.call(ctx, askTimeout, http.MethodGet, slurmAPI, "/jobs", nil, nil, &answer)
	return answer.Jobs, err
}

func (r *rest) jobs(ctx context.Context) ([]row, error) {
	all, err := everybodys[restJob](ctx, r)
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, j := range all { // ours are told by their nonce
		if r, ok := j.row(); ok {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func (r *rest) nodes(ctx context.Context) ([]node, error) {
	var answer struct {
		Nodes []restNode `json:"nodes"`
	}
	if err := r.call(ctx, askTimeout, http.MethodGet, slurmAPI, "/nodes", nil, nil, &answer); err != nil {
		return nil, err
	}
	var nodes []node
	for _, n := range answer.Nodes {
		nodes = append(nodes, n.node())
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	return nodes, nil
}

func (r *rest) submit(ctx context.Context, within time.Duration, b batch) (jobRef, error) {
	var answer struct {
		ID restNumber `json:"job_id"`
	}
	body := func(version string) any { return b.submission(version) }
	if err := r.call(ctx, within, http.MethodPost, slurmAPI, "/job/submit", nil, body, &answer); err != nil {
		return jobRef{}, err
	}
	if answer.ID.value <= 0 {
		return jobRef{}, &slurmError{asking: "slurmrestd: POST /job/submit", err: errors.New("it named no job")}
	}
	return jobRef{id: strconv.FormatInt(answer.ID.value, 10)}, nil
}

func (r *rest) test(context.Context, batch) (string, error) { return "", errUntested }

func (r *rest) signal(ctx context.Context, sig string, job jobRef) error {
	// The old interface knows no flags. There it goes to what the script has started, too: they are told the same twice.
	err := r.call(ctx, cancelTimeout, http.MethodDelete, slurmAPI, "/job/"+job.id, url.Values{"signal": {sig}, "flags": {"BATCH_JOB"}}, nil, nil)
	return unlessGone(err)
}

func (r *rest) cancel(ctx context.Context, jobs ...jobRef) error {
	var errs []error
	for _, j := range jobs {
		errs = append(errs, unlessGone(r.call(ctx, cancelTimeout, http.MethodDelete, slurmAPI, "/job/"+j.id, nil, nil, nil)))
	}
	return errors.Join(errs...)
}

// unlessGone makes no error of what Slurm says of jobs that are over.
func unlessGone(err error) error {
	var e *slurmError
	if errors.As(err, &e) && (strings.Contains(e.said, "Invalid job id") || strings.Contains(e.said, "already completing or completed")) {
		return nil
	}
	return err
}

func (r *rest) names(ctx context.Context, attr string) (has []string, known bool, err error) {
	type named struct {
		Name string `json:"name"`
	}
	var answer struct {
		Partitions   []named `json:"partitions"`
		Reservations []named `json:"reservations"`
	}
	if attr == attrProperties {
		return r.properties(ctx)
	}
	path, known := map[string]string{attrPartition: "/partitions", attrReservation: "/reservations"}[attr]
	if !known {
		return nil, false, nil // accounts and QOS are judged when a job is submitted
	}
	if err := r.call(ctx, askTimeout, http.MethodGet, slurmAPI, path, nil, nil, &answer); err != nil {
		return nil, false, err
	}
	for _, n := range append(answer.Partitions, answer.Reservations...) {
		has = append(has, n.Name)
	}
	return has, true, nil
}

// properties gives the properties of a job that slurmrestd says it takes, in the version that is spoken.
func (r *rest) properties(ctx context.Context) (has []string, known bool, err error) {
	version, err := r.agreed(ctx)
	if err != nil {
		return nil, false, err
	}
	var answer struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	// It is megabytes, which slurmrestd writes anew for each question: more than two seconds where the machine is busy.
	if err := r.ask(ctx, submitTimeout, http.MethodGet, "/openapi/v3", nil, &answer); err != nil {
		return nil, false, err
	}
	for _, schema := range []string{"_job_properties", "_job_desc_msg"} { // up to v0.0.38, and since v0.0.40
		has = slices.AppendSeq(has, maps.Keys(answer.Components.Schemas[version+schema].Properties))
	}
	return has, len(has) > 0, nil
}

func (r *rest) longest(ctx context.Context) (limits map[string]time.Duration, fallback string, err error) {
	var answer struct {
		Partitions []restPartition `json:"partitions"`
	}
	if err := r.call(ctx, askTimeout, http.MethodGet, slurmAPI, "/partitions", nil, nil, &answer); err != nil {
		return nil, "", err
	}
	limits = map[string]time.Duration{}
	for _, p := range answer.Partitions {
		if limits[p.Name] = p.longest(); slices.Contains(p.Flags, "default") {
			fallback = p.Name
		}
	}
	return limits, fallback, nil
}

// longestOf does not know: slurmrestd tells of QOS by its database's interface alone, which sites may not have.
func (r *rest) longestOf(context.Context, string) (time.Duration, bool, error) { return 0, false, nil }

// mostEnded bounds how many jobs one look into the accounts asks for: the database is asked for them one by one.
const mostEnded = 32

func (r *rest) ended(ctx context.Context, _ time.Time, jobs []jobRef) ([]ending, error) {
	var all []ending
	for _, j := range jobs[:min(len(jobs), mostEnded)] {
		var answer struct {
			Jobs []restEnding `json:"jobs"`
		}
		err := r.call(ctx, askTimeout, http.MethodGet, dbAPI, "/job/"+j.id, nil, nil, &answer)
		if errors.Is(err, errNoPath) {
			return nil, fmt.Errorf("%w: %w", errNoAccounting, err)
		}
		if err != nil {
			return all, err
		}
		for _, e := range answer.Jobs {
			all = append(all, e.ending())
		}
	}
	return all, nil
}

// submission gives the job as slurmrestd takes it.
func (b batch) submission(version string) any {
	s, i, r := b.set, b.instance, b.record
	need := s.need(r.Resources)
	job := map[string]any{
		"name": jobName(i.job, i.id), "comment": noncePrefix + r.Nonce, "tasks": 1, "cpus_per_task": need.cpus,
		"current_working_directory": i.path(backend.AllocFolder), "standard_output": i.path(slurmLogFile), "open_mode": "append",
	}
	for attr, key := range map[string]string{attrPartition: "partition", attrAccount: "account", attrQOS: "qos", attrReservation: "reservation", attrConstraint: "constraints"} {
		if a, set := s.asked[attr]; set {
			job[key] = a.value
		}
	}
	if need.memoryMB > 0 {
		job["memory_per_node"] = need.memoryMB
	}
	if s.limit > 0 {
		job["time_limit"] = s.minutes()
	}
	if s.nice != nil {
		job["nice"] = *s.nice
	}
	if s.priority != nil {
		job["priority"] = *s.priority
	}
	exclude := b.excluded()
	env := jobEnvironment()
	if version == oldRest {
		// Its requeue is that of sbatch, which switches on what stands there, be it false.
		job["nodes"], job["environment"], job["no_requeue"] = 1, env, true
		if exclude != "" {
			job["exclude_nodes"] = exclude
		}
		if need.gpus > 0 {
			job["gres"] = s.gres(need.gpus, "")
		}
	} else {
		var list []string
		for _, name := range slices.Sorted(maps.Keys(env)) {
			list = append(list, name+"="+env[name])
		}
		job["nodes"], job["environment"], job["requeue"] = "1", list, false
		if exclude != "" {
			job["excluded_nodes"] = hosts(exclude)
		}
		if need.gpus > 0 {
			job["tres_per_node"] = s.gres(need.gpus, "gres/")
		}
	}
	for key, value := range s.properties {
		job[key] = value
	}
	return map[string]any{"script": "#!/bin/sh\n" + b.timer() + b.command(), "job": job}
}

// timer is a line that asks the script to stop some time before its time limit: slurmrestd's older versions cannot have Slurm itself do it.
func (b batch) timer() string {
	if b.record.Warning <= 0 {
		return ""
	}
	return fmt.Sprintf("(sleep %d && kill -TERM $$) </dev/null >/dev/null 2>&1 &\n", int((b.set.limit - b.record.Warning).Seconds()))
}

// gres gives what asks for so many GPUs, each device with the prefix before its name.
func (s settings) gres(gpus int, prefix string) string {
	_, template, _ := strings.Cut(s.gpuOption, "=")
	var out []string
	for device := range strings.SplitSeq(template, ",") {
		if strings.Contains(device, "%d") {
			device = fmt.Sprintf(device, gpus)
		}
		if !strings.HasPrefix(s.gpuOption, "--gres=") {
			device = "gpu:" + device
		}
		out = append(out, prefix+device)
	}
	return strings.Join(out, ",")
}

// jobEnvironment is what a job has of this process's environment: what sbatch passes with --export=HOME,USER,LOGNAME.
func jobEnvironment() map[string]string {
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin"}
	for _, name := range []string{"HOME", "USER", "LOGNAME"} {
		if value := os.Getenv(name); value != "" {
			env[name] = value
		}
	}
	return env
}
