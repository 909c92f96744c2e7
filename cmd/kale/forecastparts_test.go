package main

import (
	"slices"
	"testing"
)

// Several pieces of work, each of which tells its own parts, are one progress that only grows and ends with the last of them.
func TestPartsOfOneProgress(t *testing.T) {
	var told []int
	part := partsOf(3, func(hundredths int) { told = append(told, hundredths) })
	first, second, third := part(0), part(1), part(2)
	first(1, 2)
	second(1, 100) // less than a hundredth more of all
	third(30, 30)
	first(2, 2)
	second(100, 100)
	if want := []int{16, 17, 50, 67, 100}; !slices.Equal(told, want) {
		t.Errorf("it tells %v, want %v", told, want)
	}
}
