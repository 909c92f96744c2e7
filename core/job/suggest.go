package job

import (
	"fmt"
	"strings"

	"github.com/agext/levenshtein"
)

// nearest returns the candidate closest to given, or "" when none is close. Ties go to the earlier candidate.
// Distance is Levenshtein's without regard to case: 1 for names of up to two letters, 2 for up to five, else 3.
func nearest(given string, candidates []string) string {
	best, bound := "", 4
	if len(given) <= 2 {
		bound = 2
	} else if len(given) <= 5 {
		bound = 3
	}
	for _, candidate := range candidates {
		if candidate == given {
			continue
		}
		d := levenshtein.Distance(strings.ToLower(given), strings.ToLower(candidate), nil)
		if d < bound {
			best, bound = candidate, d
		}
	}
	return best
}

// didYouMean returns "Did you mean "x"? " or "", ready to stand before the rest of a detail.
func didYouMean(given string, candidates []string) string {
	if best := nearest(given, candidates); best != "" {
		return fmt.Sprintf("Did you mean %q? ", best)
	}
	return ""
}
