package backend

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// maxNameLength keeps job and role names fit for file names and host names with room for a suffix.
const maxNameLength = 100

// ValidJob checks a job's name: letters, digits, '-', '_' and '.', beginning with a letter or a digit.
func ValidJob(job string) error {
	if job == "" || len(job) > maxNameLength {
		return Invalidf("job", "job name %q: it must have 1 to %d characters", job, maxNameLength)
	}
	for i, r := range job {
		if first := isLower(r) || isDigit(r) || r >= 'A' && r <= 'Z'; !first && (i == 0 || !strings.ContainsRune("-_.", r)) {
			return Invalidf("job", "job name %q: use letters, digits, '-', '_' and '.', and begin with a letter or a digit", job)
		}
	}
	return nil
}

func isLower(r rune) bool { return r >= 'a' && r <= 'z' }
func isDigit(r rune) bool { return r >= '0' && r <= '9' }

// Validate checks an ID.
func (id ID) Validate() error {
	if id.Role == "" || len(id.Role) > maxNameLength {
		return Invalidf("id.role", "workload %s: its role must have 1 to %d characters", id, maxNameLength)
	}
	for i, r := range id.Role {
		if !isLower(r) && (i == 0 || !isDigit(r) && r != '-') {
			return Invalidf("id.role", "workload %s: a role has lower-case letters, digits and '-', and begins with a letter", id)
		}
	}
	if id.Rank < 0 {
		return Invalidf("id.rank", "workload %s: its rank is negative", id)
	}
	if id.Generation == 0 {
		return Invalidf("id.generation", "workload %s: generations begin at 1", id)
	}
	return nil
}

// Validate checks a workload. The error is an InvalidField with the path inside the workload.
func (w Workload) Validate() error {
	if err := w.ID.Validate(); err != nil {
		return err
	}
	if len(w.Argv) == 0 || w.Argv[0] == "" {
		return Invalidf("argv", "workload %s: it names no program to run", w.ID)
	}
	for i, a := range w.Argv {
		if strings.ContainsRune(a, 0) {
			return Invalidf(fmt.Sprintf("argv[%d]", i), "workload %s: an argument contains a zero byte", w.ID)
		}
	}
	for k, v := range w.Env {
		if k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0) {
			return Invalidf("env", "workload %s: environment variable %q: a name has no '=', and neither has a zero byte", w.ID, k)
		}
	}
	for name := range w.Files {
		if name != filepath.Base(name) || name == "." || name == ".." || strings.ContainsRune(name, 0) {
			return Invalidf("files", "workload %s: file %q: give a plain file name, without a folder", w.ID, name)
		}
	}
	for i, node := range w.Avoid {
		if node == "" || strings.ContainsAny(node, ", \t\r\n\x00") {
			return Invalidf(fmt.Sprintf("avoid[%d]", i), "workload %s: %q is no node's name", w.ID, node)
		}
	}
	if w.Resources.GPUs < 0 || w.Resources.CPUMilli < 0 || w.Resources.MemoryBytes < 0 {
		return Invalidf("resources", "workload %s: resources cannot be negative: %+v", w.ID, w.Resources)
	}
	if w.StopGrace < 0 {
		return Invalidf("stop_grace", "workload %s: its stop grace is negative: %v", w.ID, w.StopGrace)
	}
	return nil
}

// ValidateAll checks the job's name and each workload, and that no role and rank comes twice. each has,
// by index, what is wrong with one workload, nil where it is sound; err is what is wrong with the call.
func ValidateAll(job string, ws []Workload) (each []*Error, err error) {
	if err := ValidJob(job); err != nil {
		return nil, err
	}
	type place struct {
		role string
		rank int
	}
	each = make([]*Error, len(ws))
	seen := make(map[place]bool, len(ws))
	for i, w := range ws {
		if err := w.Validate(); err != nil {
			e := *AsError(err)
			e.Field = fmt.Sprintf("workloads[%d].%s", i, e.Field)
			each[i] = &e
			continue
		}
		p := place{w.ID.Role, w.ID.Rank}
		if seen[p] {
			each[i] = Invalidf(fmt.Sprintf("workloads[%d].id", i), "workload %s: another generation of this role and rank is in the same call", w.ID)
		}
		seen[p] = true
	}
	return each, nil
}

// AvoidedByAll gives the nodes that every one of the workloads is to keep off: what is free there is free for none of them.
func AvoidedByAll(ws []Workload) (nodes []string) {
	if len(ws) == 0 {
		return nil
	}
	for _, node := range ws[0].Avoid {
		if !slices.ContainsFunc(ws, func(w Workload) bool { return !slices.Contains(w.Avoid, node) }) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}
