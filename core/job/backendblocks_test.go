package job

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The reference describes what the plugins decode, no more and no less.
func TestBackendBodiesAreThePlugins(t *testing.T) {
	structs := regexp.MustCompile("(?ms)^type block struct {$(.*?)^}$")
	tags := regexp.MustCompile("`hcl:\"([a-z_]+)(?:,(?:optional|block))?\"`")
	for _, b := range backendBodies {
		src, err := os.ReadFile(filepath.Join("..", "..", "plugins", b.label, "block.go"))
		if err != nil {
			t.Fatal(err)
		}
		body := structs.FindSubmatch(src)
		if body == nil {
			t.Fatalf("%s: no block is decoded in block.go", b.label)
		}
		var decoded, described []string
		for _, m := range tags.FindAllSubmatch(body[1], -1) {
			decoded = append(decoded, string(m[1]))
		}
		for _, a := range b.attrs {
			described = append(described, a.name)
		}
		slices.Sort(decoded)
		slices.Sort(described)
		if diff := cmp.Diff(decoded, described); diff != "" {
			t.Errorf("backend %q (-decoded +described):\n%s", b.label, diff)
		}
	}
}
