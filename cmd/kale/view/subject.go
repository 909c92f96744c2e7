package view

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
)

// subject is who a problem is of: processes or partitions of one kind by their numbers, or what its first words say.
type subject struct {
	kind    string
	numbers [][2]int // ranges, both ends included; none: kind says all
}

// numbered is how a problem begins that is of partitions or servers: "partitions 0–2, 5: …", "parameter server 0 cannot start: …".
var numbered = regexp.MustCompile(`^(partition|parameter server)s? ([0-9]+(?:–[0-9]+)?(?:, [0-9]+(?:–[0-9]+)?)*)\b`)

// subjectOf is the subject of a problem that was cleaned.
func subjectOf(problem string) (s subject) {
	text, _, _ := strings.Cut(problem, core.LogEnds)
	if m := numbered.FindStringSubmatch(text); m != nil {
		s.kind = strings.Replace(m[1], "parameter server", backend.RoleServer, 1)
		for part := range strings.SplitSeq(m[2], ", ") {
			first, last, more := strings.Cut(part, "–")
			if !more {
				last = first
			}
			s.add(first, last)
		}
		return s
	}
	for rest := text; ; {
		name, after, _ := strings.Cut(rest, " ")
		id, err := backend.ParseID(strings.TrimRight(name, ",:"))
		if err != nil || s.kind != "" && s.kind != id.Role {
			break
		}
		s.kind, s.numbers = id.Role, append(s.numbers, [2]int{id.Rank, id.Rank})
		if rest = after; !strings.HasSuffix(name, ",") {
			break
		}
	}
	if s.kind == "" {
		text, _, _ = strings.Cut(text, ": ")
		s.kind = wordless(text)
	}
	return s
}

func (s *subject) add(first, last string) {
	a, err := strconv.Atoi(first)
	b, e := strconv.Atoi(last)
	if err == nil && e == nil { // what no int holds is no number of anything here
		s.numbers = append(s.numbers, [2]int{a, b})
	}
}

// processes says whether a problem is of workers or servers that it names.
func (s subject) processes() bool {
	return s.kind == backend.RoleServer || s.kind == backend.RoleWorker
}

// meets says whether two subjects have something in common.
func (s subject) meets(t subject) bool {
	if s.kind != t.kind {
		return false
	}
	for _, a := range s.numbers {
		for _, b := range t.numbers {
			if a[0] <= b[1] && b[0] <= a[1] {
				return true
			}
		}
	}
	return len(s.numbers) == 0 && len(t.numbers) == 0
}
