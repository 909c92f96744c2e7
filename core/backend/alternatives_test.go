package backend

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"gpu", "gpu-long", "debug", "cpu"}
	for want, close := range map[string]string{"GPU": "gpu", "gpus": "gpu", "gpulong": "gpu-long", "debgu": "debug", "debgug": "debug", "weekend": "", "": ""} {
		if got := nearest(want, names); got != close {
			t.Errorf("nearest to %q is %q, want %q", want, got, close)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}, {"hihg", "high", 1}} {
		if got := distance(tt.a, tt.b); got != tt.want || distance(tt.b, tt.a) != tt.want {
			t.Errorf("distance of %q and %q is %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
