package job

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agext/levenshtein"
)

// Nearest returns the candidate that given was probably meant to be, or "" when none is close. Ties go to the earlier candidate.
// Close is, without regard to case, a Levenshtein distance of 1 for names of up to three letters, 2 for up to seven, else 3; two letters
// that changed places count as 1. What is farther than a third of its letters was meant only where it begins alike.
func Nearest(given string, candidates []string) string {
	lower := strings.ToLower(given)
	best, bound := "", 4
	if n := utf8.RuneCountInString(given); n <= 3 {
		bound = 2
	} else if n <= 7 {
		bound = 3
	}
	for _, candidate := range candidates {
		if candidate == given {
			continue
		}
		other := strings.ToLower(candidate)
		d := levenshtein.Distance(lower, other, nil)
		if d == 2 && letters(lower) == letters(other) {
			d = 1
		}
		if d > max(1, utf8.RuneCountInString(given)/3) && (lower == "" || other == "" || lower[0] != other[0]) {
			continue
		}
		if d < bound {
			best, bound = candidate, d
		}
	}
	return best
}

// letters are those of a word, sorted.
func letters(word string) string {
	return string(slices.Sorted(slices.Values([]rune(word))))
}

// DidYouMean returns "Did you mean "x"? " or "", ready to stand before the rest of a detail.
func DidYouMean(given string, candidates []string) string {
	if best := Nearest(given, candidates); best != "" {
		return fmt.Sprintf("Did you mean %q? ", best)
	}
	return ""
}
