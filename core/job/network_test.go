package job

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func withNetwork(body, backend string) string {
	return strings.Replace(minimal, `backend "local"`, "network {\n"+body+"\n}\nbackend \""+backend+`"`, 1)
}

func TestNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		body, backend string
		want          Network
		says          string // an error or a warning
	}{
		"nothing":              {"", "local", Network{}, ""},
		"a network":            {`interface = "10.0.0.0/8"`, "local", Network{Interface: "10.0.0.0/8"}, ""},
		"a v6 network":         {`interface = "fd00::/64"`, "other", Network{Interface: "fd00::/64"}, ""},
		"a name":               {`interface = "ib0"`, "other", Network{Interface: "ib0"}, ""},
		"a vlan":               {`interface = "bond0.17"`, "other", Network{Interface: "bond0.17"}, ""},
		"all":                  {"interface = \"ib0\"\nlisten = \":7700\"\nadvertise = \"login-1:0\"\nports = \"20000 - 20999\"", "other", Network{"ib0", ":7700", "login-1:0", PortRange{20000, 20999}}, ""},
		"one port":             {`ports = "20000-20000"`, "other", Network{Ports: PortRange{20000, 20000}}, ""},
		"an address":           {`interface = "10.1.2.3"`, "other", Network{}, `as in "10.1.2.0/24"`},
		"host bits":            {`interface = "10.1.2.3/8"`, "other", Network{}, `"10.0.0.0/8": write that`},
		"a long name":          {`interface = "a-name-of-more-than-15"`, "other", Network{}, "ip link"},
		"a name with a space":  {`interface = "i b"`, "other", Network{}, "ip link"},
		"no bits":              {`interface = "10.0.0.0/"`, "other", Network{}, "ADDRESS/BITS"},
		"no port":              {`listen = "login-1"`, "other", Network{}, "Write host:port"},
		"a port too high":      {`listen = ":70000"`, "other", Network{}, `"70000" is not a port`},
		"anywhere":             {"listen = \":1\"\nadvertise = \"[::]:1\"", "other", Network{}, "Nobody can reach"},
		"advertise no host":    {`advertise = ":1"`, "other", Network{}, "Write host:port"},
		"not listening":        {`advertise = "a:1"`, "local", Network{}, "Nothing to advertise"},
		"no range":             {`ports = "20000"`, "other", Network{}, "FIRST-LAST"},
		"port zero":            {`ports = "0-20"`, "other", Network{}, `"0" is not a port`},
		"loopback":             {`listen = "127.0.0.1:1"`, "other", Network{Listen: "127.0.0.1:1"}, "Other machines cannot reach"},
		"loopback, local":      {`listen = "127.0.0.1:1"`, "local", Network{Listen: "127.0.0.1:1"}, ""},
		"loopback, advertised": {"listen = \"127.0.0.1:1\"\nadvertise = \"gate:1\"", "other", Network{Listen: "127.0.0.1:1", Advertise: "gate:1"}, ""},
		"its own port":         {"listen = \":20005\"\nports = \"20000-20010\"", "other", Network{}, "among those of trainers"},
	} {
		t.Run(name, func(t *testing.T) {
			job, files, diags := Parse([]byte(withNetwork(c.body, c.backend)), "job.hcl", Options{})
			text := strings.Join(strings.Fields(rendered(files, diags)), " ")
			if c.says != "" && !strings.Contains(text, c.says) || c.says == "" && strings.Contains(text, "network.") {
				t.Errorf("it says %s, want %q", text, c.says)
			}
			if wantErr := c.want == (Network{}) && c.says != ""; diags.HasErrors() != wantErr {
				t.Fatalf("errors: %v, want %v: %s", diags.HasErrors(), wantErr, text)
			}
			if job == nil {
				return
			}
			if diff := cmp.Diff(c.want, job.Network); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			plain, _, _ := Parse([]byte(minimal), "job.hcl", Options{})
			if plain.Fingerprint() != job.Fingerprint() {
				t.Error("the network is part of the checkpoint's fingerprint")
			}
		})
	}
}
