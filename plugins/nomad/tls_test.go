package nomad

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/backend/conformance"
	"github.com/kale-sched/kale/plugins/nomad/nomadtest"
)

// A Nomad that speaks TLS only, and asks who speaks to it for a certificate: with the right files, from the block or from
// the environment, all works; with wrong ones the error says which attribute is wrong.
func TestTLS(t *testing.T) {
	if why := nomadtest.Missing(); why != "" {
		t.Skip(why)
	}
	c, err := nomadtest.Start(t.Context(), nomadtest.Options{TLS: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	r := rigOn(t, c)
	for _, name := range []string{"NOMAD_ADDR", "NOMAD_NAMESPACE", "NOMAD_CACERT", "NOMAD_CLIENT_CERT", "NOMAD_CLIENT_KEY"} {
		t.Setenv(name, "")
		_ = os.Unsetenv(name) // t.Setenv puts it back
	}
	stranger := t.TempDir()
	strangersCA, err := nomadtest.WriteCA(stranger)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := c.ClientCert()
	open := func(t *testing.T, source string) *nomad {
		t.Helper()
		n := open(t)
		if diags, err := n.Configure(t.Context(), backend.Config{Job: "j", Source: []byte(source)}); err != nil || diags.HasErrors() {
			t.Fatal(diags, err)
		}
		return n
	}
	block := func(address, ca, cert, key string) string {
		text := fmt.Sprintf("address = %q\nnamespace = %q\n", address, r.namespace)
		for name, value := range map[string]string{"ca_cert": ca, "client_cert": cert, "client_key": key} {
			if value != "" {
				text += fmt.Sprintf("%s = %q\n", name, value)
			}
		}
		return text
	}
	for _, tt := range []struct{ name, source, want string }{
		{"another authority", block(c.Address(), strangersCA, cert, key), "ca_cert (NOMAD_CACERT)"},
		{"no authority", block(c.Address(), "", cert, key), "ca_cert (NOMAD_CACERT)"},
		{"no certificate", block(c.Address(), c.CACert(), "", ""), "client_cert and client_key (NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY)"},
		{"another authority's certificate", block(c.Address(), c.CACert(), filepath.Join(stranger, "cert.pem"), filepath.Join(stranger, "key.pem")), "client_cert and client_key (NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY)"},
		{"another name", block(c.Address(), c.CACert(), cert, key) + "tls_server_name = \"elsewhere.example\"\n", "tls_server_name"},
		{"without TLS", block(strings.Replace(c.Address(), "https", "http", 1), "", "", ""), "https://"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, complete, err := open(t, tt.source).List(t.Context(), "j")
			if err == nil || complete || backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("List: complete %v, %v; want code %q and advice on %q", complete, err, backend.Blocked, tt.want)
			}
			if report, err := open(t, tt.source).Plan(t.Context(), "j", []backend.Workload{r.workload("j", workerID(0, 1), conformance.Steady)}); err != nil || !report.Mistakes.HasErrors() {
				t.Errorf("Plan: %+v, %v; want a mistake of the block", report, err)
			}
		})
	}
	for _, tt := range []struct {
		name, source string
		env          map[string]string
	}{
		{"by the block", block(c.Address(), c.CACert(), cert, key), nil},
		{
			"by the environment", fmt.Sprintf("namespace = %q\n", r.namespace),
			map[string]string{"NOMAD_ADDR": c.Address(), "NOMAD_CACERT": c.CACert(), "NOMAD_CLIENT_CERT": cert, "NOMAD_CLIENT_KEY": key},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			n := open(t, tt.source)
			w := r.workload("j", workerID(len(tt.env), 1), conformance.Steady)
			ensure(t, n, "j", w)
			conformance.WaitFor(t, n, "j", w.ID, "runs", in(backend.StateRunning))
			awaitLog(t, n, "j", w.ID, "started")
			conformance.Drop(t, n, "j")
		})
	}
}

// An https address where no TLS is spoken.
func TestNoTLSWhereItIsAskedFor(t *testing.T) {
	r := newRig(t)
	n := open(t)
	source := fmt.Appendf(nil, "address = %q\n", strings.Replace(r.cluster.Address(), "http://", "https://", 1))
	if diags, err := n.Configure(t.Context(), backend.Config{Job: "j", Source: source}); err != nil || diags.HasErrors() {
		t.Fatal(diags, err)
	}
	if _, _, err := n.List(t.Context(), "j"); err == nil || backend.CodeOf(err) != backend.Blocked || !strings.Contains(err.Error(), "http://") {
		t.Errorf("List: %v; want code %q and advice to use http://", err, backend.Blocked)
	}
	cfg := r.config("j")
	cfg.Source = append([]byte("\n"), source...)
	if diags, err := n.Configure(t.Context(), cfg); err != nil || diags.HasErrors() {
		t.Fatal(diags, err)
	}
	report, err := n.Plan(t.Context(), "j", []backend.Workload{r.workload("j", workerID(0, 1), conformance.Steady)})
	if err != nil {
		t.Fatal(err)
	}
	isMistake(t, report, 41, 11, "begin with http://")
}
