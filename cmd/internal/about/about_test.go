package about

import (
	"runtime/debug"
	"strings"
	"testing"
)

// TestRevision: a build of a clone names its commit and whether anything was changed, once.
func TestRevision(t *testing.T) {
	const revision = "0123456789abcdef0123456789abcdef01234567"
	for _, x := range []struct {
		version, modified, want string
	}{
		{"(devel)", "false", "kale (devel) (0123456789ab)\n"},
		{"v0.0.0-20260102030405-0123456789ab+dirty", "true", "kale (devel) (0123456789ab, modified)\n"},
		{"v1.2.3", "false", "kale v1.2.3 (0123456789ab)\n"},
	} {
		var v About
		v.read(&debug.BuildInfo{Main: debug.Module{Version: x.version}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: x.modified}}})
		var out strings.Builder
		if err := v.Write(&out, "kale"); err != nil || !strings.HasPrefix(out.String(), x.want) {
			t.Errorf("%s: %q, %v; want it to begin with %q", x.version, out.String(), err, x.want)
		}
	}
}
