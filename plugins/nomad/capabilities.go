package nomad

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// needed are the capabilities on the namespace that no call which only looks would miss, with what does not work without each. That the others lack is said
// by the first call that needs them. Nomad looks for an allocation before it looks at the token, so that asking about one that there is not would tell nothing.
var needed = []struct {
	capability string
	also       string // is enough, too
	without    string
}{
	{"alloc-lifecycle", "", "a process that is released cannot be asked to drain, and has but the grace that Nomad itself grants"},
	{"read-logs", "read-fs", "there is no kale logs, and no end of a log where a process fails"},
	{"read-fs", "", "it is not known how processes end: that one is done, or another incarnation has its place"},
}

// neededOnVariables are the capabilities on variables of which the same is true: those of a job that has not begun yet are looked at by no other call.
var neededOnVariables = []struct {
	pattern string // by which the documented policy names them
	of      func(job string) []string
	needs   []capabilityOnVariables
}{
	{"kale/*", func(job string) []string { return []string{ledgerPath(job)} }, []capabilityOnVariables{
		{"write", "nothing of the job can be started"},
		{"destroy", "kale forget leaves whose the job's name is"},
	}},
	{"nomad/jobs/kale-*", func(job string) []string {
		return payloadPaths(nomadJob(job, backend.ID{Role: backend.RoleWorker, Generation: 1}))
	}, []capabilityOnVariables{
		{"read", "it is not known which allocation a process is bound to"},
		{"write", "nothing of the job can be started"},
		{"list", "the files of processes that others ended are not found, and stay there"},
		{"destroy", "what a process was given, its secrets too, stays there when it has ended, and its release is tried again and again"},
	}},
}

type capabilityOnVariables struct{ name, without string }

// lackingCapabilities warns of capabilities that the token lacks for a job. Where its policies cannot be read, as without access control, it says nothing.
func (s settings) lackingCapabilities(ctx context.Context, job string) (diags hcl.Diagnostics) {
	rules, known := s.rules(ctx)
	if !known {
		return nil
	}
	warn := func(summary, detail string, args ...any) {
		d := s.mistake(attrToken, summary, "On the namespace %q its policies do not grant "+detail+". plugins/nomad/README.md has the whole policy.", append([]any{s.namespace}, args...)...)
		d.Severity = hcl.DiagWarning
		diags = append(diags, d)
	}
	has := effective(ofNamespaces(rules), s.namespace)
	var lack, without []string
	for _, n := range needed {
		if !slices.Contains(has, n.capability) && (n.also == "" || !slices.Contains(has, n.also)) {
			lack, without = append(lack, fmt.Sprintf("%q", n.capability)), append(without, n.without)
		}
	}
	if len(lack) > 0 {
		noun := "capability"
		if len(lack) > 1 {
			noun = "capabilities"
		}
		warn("The token lacks the namespace "+noun+" "+strings.Join(lack, ", "), "%s: %s", strings.Join(lack, ", "), strings.Join(without, "; "))
	}
	for _, n := range neededOnVariables {
		var lack, without []string
		for _, c := range n.needs {
			if slices.ContainsFunc(n.of(job), func(path string) bool {
				return !slices.Contains(effective(ofVariables(rules), variable(s.namespace, path)), c.name)
			}) {
				lack, without = append(lack, fmt.Sprintf("%q", c.name)), append(without, c.without)
			}
		}
		if len(lack) > 0 {
			warn(fmt.Sprintf("The token lacks %s on the variables %q", strings.Join(lack, ", "), n.pattern), "%s on the variables %s: %s",
				strings.Join(lack, ", "), strings.Join(n.of(job), ", "), strings.Join(without, "; "))
		}
	}
	return diags
}

// namespaceRules are the rules of a policy for the namespaces whose names fit a pattern.
type namespaceRules struct {
	Name         string
	Capabilities []string // what its policy (read, write, …) stands for, too
	Variables    *struct {
		Paths []struct {
			PathSpec     string
			Capabilities []string
		}
	}
}

// rule is what is granted on that whose name fits a pattern.
type rule struct {
	pattern      string
	capabilities []string
}

func ofNamespaces(all []namespaceRules) (out []rule) {
	for _, r := range all {
		out = append(out, rule{r.Name, r.Capabilities})
	}
	return out
}

func ofVariables(all []namespaceRules) (out []rule) {
	for _, r := range all {
		if r.Variables == nil {
			continue
		}
		for _, p := range r.Variables.Paths {
			out = append(out, rule{variable(r.Name, p.PathSpec), p.Capabilities})
		}
	}
	return out
}

// variable is the name of a variable among those of all namespaces: rules for both name and path are held against it as one.
func variable(namespace, path string) string { return namespace + "\x00" + path }

// rules are those of the token's policies, which anybody may read whose token has them; known is false where they cannot be read.
func (s settings) rules(ctx context.Context) (all []namespaceRules, known bool) {
	if !s.hasToken {
		return nil, false
	}
	q, cancel := s.read(ctx)
	defer cancel()
	self, _, err := s.client.ACLTokens().Self(q)
	if err != nil || self.Type != "client" { // a management token may do all
		return nil, false
	}
	policies, _, err := s.client.ACLPolicies().List(q) // those that it has by its roles, too
	if err != nil {
		return nil, false
	}
	for _, p := range policies {
		rules, err := s.rulesOf(q, p.Name)
		if err != nil {
			return nil, false
		}
		all = append(all, rules...)
	}
	return all, true
}

// rulesOf gives a policy's rules for namespaces, as Nomad has read them.
func (s settings) rulesOf(q *api.QueryOptions, policy string) ([]namespaceRules, error) {
	var answer struct {
		RulesJSON *struct{ Namespaces []namespaceRules }
	}
	if _, err := s.client.Raw().Query("/v1/acl/policy/"+url.PathEscape(policy), &answer, q); err != nil {
		return nil, err
	}
	if answer.RulesJSON == nil {
		return nil, backend.Errorf(backend.Unsupported, "Nomad does not say what it read in the policy %q", policy)
	}
	return answer.RulesJSON.Namespaces, nil
}

// effective gives what rules grant on something: those for its name count, else those for the pattern that is closest to it. What is denied there is denied.
func effective(rules []rule, name string) (has []string) {
	closest, at, found := -1, "", false
	for _, r := range rules {
		distance := len(name) - len(r.pattern) + strings.Count(r.pattern, "*")
		switch {
		case r.pattern == name:
			distance = -1
		case !strings.Contains(r.pattern, "*") || !fits(r.pattern, name):
			continue
		}
		if !found || distance < closest {
			closest, at, found = distance, r.pattern, true
		}
	}
	for _, r := range rules {
		if found && r.pattern == at {
			has = append(has, r.capabilities...)
		}
	}
	if slices.Contains(has, "deny") {
		return nil
	}
	return has
}

// fits reports whether a name fits a pattern, in which "*" stands for anything, slashes too.
func fits(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok || len(parts) == 1 {
		return ok && rest == ""
	}
	for _, part := range parts[1 : len(parts)-1] {
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
