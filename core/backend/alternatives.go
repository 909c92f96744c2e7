package backend

import (
	"fmt"
	"strings"
)

// Alternatives ends a message that there is no such name: which one may have been meant, and which there are. It begins with its punctuation.
func Alternatives(want string, has []string) string {
	if len(has) == 0 {
		return ": there is none."
	}
	maybe := "."
	if close := nearest(want, has); close != "" {
		maybe = fmt.Sprintf(". Did you mean %q?", close)
	}
	return maybe + " There is " + listed(has) + "."
}

// mostListed is how many names a message holds: beyond that nobody reads them.
const mostListed = 20

func listed(names []string) string {
	if more := len(names) - mostListed; more > 0 {
		return strings.Join(names[:mostListed], ", ") + fmt.Sprintf(", and %d more", more)
	}
	return strings.Join(names, ", ")
}

// nearest gives the name that differs least from want, if by no more than about a third of its letters; "" when there is none.
func nearest(want string, names []string) string {
	best, least := "", max(1, (len(want)+1)/3)
	for _, n := range names {
		if d := distance(strings.ToLower(want), strings.ToLower(n)); d <= least && (best == "" || d < least) {
			best, least = n, d
		}
	}
	return best
}

// distance counts the letters to put in, take out, change or swap with their neighbour to make b of a (optimal string alignment).
func distance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for k := range d[i] {
			switch {
			case i == 0 || k == 0:
				d[i][k] = i + k
			case a[i-1] == b[k-1]:
				d[i][k] = d[i-1][k-1]
			default:
				d[i][k] = 1 + min(d[i-1][k-1], d[i-1][k], d[i][k-1])
				if i > 1 && k > 1 && a[i-1] == b[k-2] && a[i-2] == b[k-1] {
					d[i][k] = min(d[i][k], 1+d[i-2][k-2])
				}
			}
		}
	}
	return d[len(a)][len(b)]
}
