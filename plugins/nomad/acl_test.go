package nomad

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// documentedPolicy takes the least-privilege policy out of README.md, which has the same one as the package's documentation.
func documentedPolicy(t *testing.T, namespace string) string {
	t.Helper()
	policy := func(file, margin, name string) string {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?ms)^` + margin + `namespace "` + name + `".*?^` + margin + `node \{.*?$`).FindString(string(raw))
		if found == "" {
			t.Fatalf("%s has no policy", file)
		}
		return strings.ReplaceAll(regexp.MustCompile(`(?m)^`+margin).ReplaceAllString(found, ""), `"`+name+`"`, `"`+namespace+`"`)
	}
	told := policy("README.md", "    ", "default")
	if diff := cmp.Diff(told, policy("doc.go", "//\t", "NS")); diff != "" {
		t.Errorf("the policy in doc.go is another one than that in README.md (-README +doc.go):\n%s", diff)
	}
	return told
}

// The policy in the documentation is enough for everything that the backend does, and without it nothing works and the
// error says what is needed.
func TestLeastPrivilege(t *testing.T) {
	if why := nomadtest.Missing(); why != "" {
		t.Skip(why)
	}
	c, err := nomadtest.Start(t.Context(), nomadtest.Options{GPUs: 1, ACL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := rigOn(t, c)
	admin := r.raw(t)
	token := func(name, rules string) string {
		t.Helper()
		if _, err := admin.ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: rules}, nil); err != nil {
			t.Fatal(err)
		}
		tok, _, err := admin.ACLTokens().Create(&api.ACLToken{Name: name, Type: "client", Policies: []string{name}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return tok.SecretID
	}
	as := func(secret string) *nomad {
		t.Helper()
		n := open(t)
		cfg := r.config("j")
		cfg.Source = []byte(strings.Replace(string(cfg.Source), c.Token(), secret, 1))
		if diags, err := n.Configure(t.Context(), cfg); err != nil || diags.HasErrors() {
			t.Fatal(diags, err)
		}
		return n
	}
	revoked, _, err := admin.ACLTokens().Create(&api.ACLToken{Name: "revoked", Type: "client", Policies: []string{"none"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := as(revoked.SecretID)
	if _, err := admin.ACLTokens().Delete(revoked.AccessorID, nil); err != nil {
		t.Fatal(err)
	}
	conformance.Eventually(t, "a token that was revoked is told as such", func() error { // servers know tokens for a while
		_, _, err := n.List(t.Context(), "j")
		if err == nil || backend.CodeOf(err) != backend.Unauthorised || !strings.Contains(err.Error(), "the token is not known to Nomad") {
			return fmt.Errorf("List: %w", err)
		}
		return nil
	})
	stranger := as(token("stranger", `namespace "default" { policy = "read" }`))
	if _, complete, err := stranger.List(t.Context(), "j"); err == nil || complete || backend.CodeOf(err) != backend.Unauthorised {
		t.Errorf("List without rights: complete %v, %v; want code %q", complete, err, backend.Unauthorised)
	}
	w := r.workload("j", workerID(0, 1), conformance.Stubborn)
	w.Resources.GPUs = 1
	if _, err := stranger.Ensure(t.Context(), "j", []backend.Workload{w}); err == nil || backend.CodeOf(err) != backend.Unauthorised || !strings.Contains(err.Error(), "kale/*") {
		t.Errorf("Ensure without rights: %v; want code %q, and what is needed", err, backend.Unauthorised)
	}
	// A token that is not known, one that may not, and none at all: at the token, or where the block begins. Which of the calls made at once is refused
	// first is not known, and so not which right is named.
	isMistake(t, r.planWith(t, `token = "11111111-2222-3333-4444-555555555555"`), 42, 9, "token", "is not known")
	isMistake(t, r.planWith(t, "token = \""+token("nobody", `agent { policy = "read" }`)+"\""), 42, 9, "token")
	isMistake(t, r.planWith(t, ""), 40, 19, "NOMAD_TOKEN")
	// What no look would miss is told, too.
	without := func(capabilities ...string) string {
		policy := documentedPolicy(t, r.namespace)
		for _, c := range capabilities {
			policy = strings.Replace(policy, `, "`+c+`"`, "", 1)
		}
		return token("less"+strings.Join(capabilities, ""), policy)
	}
	r.wantLacking(t, without("alloc-lifecycle"), `The token lacks the namespace capability "alloc-lifecycle"`)
	r.wantLacking(t, without("alloc-lifecycle", "read-logs", "read-fs"), `The token lacks the namespace capabilities "alloc-lifecycle", "read-logs", "read-fs"`)
	r.wantLacking(t, without("read-fs"), `The token lacks the namespace capability "read-fs"`)
	r.wantLacking(t, without("read-logs"), "") // who reads files reads logs
	r.wantLacking(t, c.Token(), "")
	onVariables := func(name, path, capabilities string) string {
		whole := regexp.MustCompile(`(?m)^(\s*path "` + regexp.QuoteMeta(path) + `"\s*\{ capabilities = ).*$`)
		return token(name, whole.ReplaceAllString(documentedPolicy(t, r.namespace), `${1}[`+capabilities+`] }`))
	}
	r.wantLacking(t, onVariables("keeps", "nomad/jobs/kale-*", `"read", "write", "list"`), `The token lacks "destroy" on the variables "nomad/jobs/kale-*"`)
	r.wantLacking(t, onVariables("reads", "nomad/jobs/kale-*", `"read"`), `The token lacks "write", "destroy" on the variables "nomad/jobs/kale-*"`) // who reads lists
	r.wantLacking(t, onVariables("remembers", "kale/*", `"read", "write", "list"`), `The token lacks "destroy" on the variables "kale/*"`)
	role, _, err := admin.ACLRoles().Create(&api.ACLRole{Name: "kale", Policies: []*api.ACLRolePolicyLink{{Name: "lessread-fs"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	byRole, _, err := admin.ACLTokens().Create(&api.ACLToken{Name: "by role", Type: "client", Roles: []*api.ACLTokenRoleLink{{ID: role.ID}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.wantLacking(t, byRole.SecretID, `The token lacks the namespace capability "read-fs"`)
	all := token("kale", documentedPolicy(t, r.namespace))
	r.wantLacking(t, all, "")
	n = as(all)
	if report, err := n.Plan(t.Context(), "j", []backend.Workload{w}); err != nil || !report.Fits() || report.Placements[0].Reason != nodeLater {
		t.Errorf("Plan = %+v, %v", report, err)
	}
	ensure(t, n, "j", w)
	conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
	if inv, err := n.Inventory(t.Context()); err != nil || inv.Total != 1 || inv.Free != 0 {
		t.Errorf("Inventory = %+v, %v; want 1 GPU, held", inv, err)
	}
	awaitLog(t, n, "j", w.ID, "started")
	if err := n.Release(t.Context(), "j", []backend.ID{w.ID}, backend.Drained); err != nil {
		t.Error(err)
	}
	conformance.Drop(t, n, "j") // by force: it ignores the request
	done := r.workload("j", workerID(1, 1), conformance.Fenced)
	ensure(t, n, "j", done)
	if st := conformance.WaitFor(t, n, "j", done.ID, "ends", in(backend.StateFailed)); st.ExitCode != 3 {
		t.Errorf("it ended as %+v, want code 3", st)
	}
	conformance.Drop(t, n, "j")
}
