package nomad

import (
	"context"
	"fmt"
	"iter"
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

// neededOfVariables are likewise those on a job's variables: to read and list them is missed at once.
var neededOfVariables = []struct{ capability, without string }{
	{"write", "no process can be given its files"},
	{"destroy", "what a process that is gone was given stays in Nomad, and the job cannot be forgotten"},
}

// lackingCapabilities warns of capabilities that the token lacks for a job. Where its policies cannot be read, as without access control, it says nothing.
func (s settings) lackingCapabilities(ctx context.Context, job string) (diags hcl.Diagnostics) {
	rules, known := s.capabilities(ctx)
	if !known {
		return nil
	}
	if d := s.lackingOfNamespace(rules); d != nil {
		diags = append(diags, d)
	}
	if d := s.lackingOfVariables(rules, job); d != nil {
		diags = append(diags, d)
	}
	return diags
}

// lackingOfVariables warns of what the token may not do with a job's variables; nil: nothing.
func (s settings) lackingOfVariables(rules []namespaceRules, job string) *hcl.Diagnostic {
	var lack, without []string
	for _, n := range neededOfVariables {
		for _, path := range []string{ledgerPath(job), payloadPaths(jobPrefix(job))[0]} {
			if !slices.Contains(ofVariable(rules, path), n.capability) && !slices.Contains(without, n.without) {
				lack, without = append(lack, fmt.Sprintf("%q", n.capability)), append(without, n.without)
			}
		}
	}
	if len(lack) == 0 {
		return nil
	}
	d := s.mistake(attrToken, "The token may not "+strings.ReplaceAll(strings.Join(lack, " or "), `"`, "")+" the job's variables",
		"On the namespace %q its policies do not grant %s on variables of \"kale/*\" and \"nomad/jobs/kale-*\": %s. plugins/nomad/README.md has the whole policy.", s.namespace, strings.Join(lack, ", "), strings.Join(without, "; "))
	d.Severity = hcl.DiagWarning
	return d
}

// lackingOfNamespace warns of what the token may not do in the namespace; nil: nothing.
func (s settings) lackingOfNamespace(rules []namespaceRules) *hcl.Diagnostic {
	var has []string
	for _, r := range rules {
		has = append(has, r.Capabilities...)
	}
	if slices.Contains(has, "deny") {
		has = nil
	}
	var lack, without []string
	for _, n := range needed {
		if !slices.Contains(has, n.capability) && (n.also == "" || !slices.Contains(has, n.also)) {
			lack, without = append(lack, fmt.Sprintf("%q", n.capability)), append(without, n.without)
		}
	}
	if len(lack) == 0 {
		return nil
	}
	noun := "capability"
	if len(lack) > 1 {
		noun = "capabilities"
	}
	d := s.mistake(attrToken, "The token lacks the namespace "+noun+" "+strings.Join(lack, ", "),
		"On the namespace %q its policies do not grant %s: %s. plugins/nomad/README.md has the whole policy.", s.namespace, strings.Join(lack, ", "), strings.Join(without, "; "))
	d.Severity = hcl.DiagWarning
	return d
}

// namespaceRules are the rules of a policy for the namespaces whose names fit a pattern.
type namespaceRules struct {
	Name         string
	Capabilities []string // what its policy (read, write, …) stands for, too
	Variables    *struct{ Paths []variableRules }
}

// variableRules are the rules for variables whose paths fit a pattern.
type variableRules struct {
	PathSpec     string
	Capabilities []string
}

// capabilities are the token's rules for the namespace, by its policies, which anybody may read whose token has them; known is false where they cannot be read.
func (s settings) capabilities(ctx context.Context) (rules []namespaceRules, known bool) {
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
	var all []namespaceRules
	for _, p := range policies {
		rules, err := s.rulesOf(q, p.Name)
		if err != nil {
			return nil, false
		}
		all = append(all, rules...)
	}
	return effective(all, s.namespace), true
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

// effective gives the rules that count in a namespace: those for its name, else those for the pattern that is closest to it.
func effective(rules []namespaceRules, namespace string) (count []namespaceRules) {
	at := closest(namespace, matches, func(yield func(string) bool) {
		for _, r := range rules {
			if !yield(r.Name) {
				return
			}
		}
	})
	for _, r := range rules {
		if at != "" && r.Name == at {
			count = append(count, r)
		}
	}
	return count
}

// ofVariable gives what rules of one namespace grant on a variable. What is denied there is denied.
func ofVariable(rules []namespaceRules, path string) (has []string) {
	var all []variableRules
	for _, r := range rules {
		if r.Variables != nil {
			all = append(all, r.Variables.Paths...)
		}
	}
	at := closest(path, globs, func(yield func(string) bool) {
		for _, r := range all {
			if !yield(r.PathSpec) {
				return
			}
		}
	})
	for _, r := range all {
		if at != "" && r.PathSpec == at {
			has = append(has, r.Capabilities...)
		}
	}
	if slices.Contains(has, "deny") {
		return nil
	}
	return has
}

// closest is the pattern that counts for a name, as Nomad chooses it: the name itself, else the one that differs least from it; "": none fits.
func closest(name string, fits func(pattern, name string) bool, patterns iter.Seq[string]) (at string) {
	least := -1
	for p := range patterns {
		distance := len(name) - len(p) + strings.Count(p, "*")
		switch {
		case p == name:
			distance = -1
		case !strings.Contains(p, "*") || !fits(p, name):
			continue
		}
		if at == "" || distance < least {
			least, at = distance, p
		}
	}
	return at
}

// globs tells whether a name fits a pattern in which * stands for anything, slashes included.
func globs(pattern, name string) bool {
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
