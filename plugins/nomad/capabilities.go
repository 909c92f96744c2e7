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

// lackingCapabilities warns of capabilities that the token lacks. Where its policies cannot be read, as without access control, it says nothing.
func (s settings) lackingCapabilities(ctx context.Context) hcl.Diagnostics {
	has, known := s.capabilities(ctx)
	if !known {
		return nil
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
	return hcl.Diagnostics{d}
}

// namespaceRules are the rules of a policy for the namespaces whose names fit a pattern.
type namespaceRules struct {
	Name         string
	Capabilities []string // what its policy (read, write, …) stands for, too
}

// capabilities are what the token may do in the namespace, by its policies, which anybody may read whose token has them; known is false where they cannot be read.
func (s settings) capabilities(ctx context.Context) (has []string, known bool) {
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

// effective gives what rules grant in a namespace: those for its name count, else those for the pattern that is closest to it. What is denied there is denied.
func effective(rules []namespaceRules, namespace string) (has []string) {
	closest, at := -1, ""
	for _, r := range rules {
		distance := len(namespace) - len(r.Name) + strings.Count(r.Name, "*")
		switch {
		case r.Name == namespace:
			distance = -1
		case !strings.Contains(r.Name, "*") || !matches(r.Name, namespace):
			continue
		}
		if at == "" || distance < closest {
			closest, at = distance, r.Name
		}
	}
	for _, r := range rules {
		if r.Name == at {
			has = append(has, r.Capabilities...)
		}
	}
	if slices.Contains(has, "deny") {
		return nil
	}
	return has
}
