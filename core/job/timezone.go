package job

import (
	"fmt"
	"time"
	_ "time/tzdata" // a container often has no time zones of its own

	"github.com/zclconf/go-cty/cty"
)

// LoadZone finds a time zone by its name in the IANA database, such as "Europe/Berlin".
func LoadZone(name string) (*time.Location, error) {
	zone, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" { // which differs from machine to machine
		return nil, fmt.Errorf("there is no time zone %q: write a name of the IANA database, such as \"Europe/Berlin\" or \"America/New_York\"", name)
	}
	return zone, nil
}

// timezone reads the name of a time zone.
func timezone(dst func(*Job) *string) field {
	return scalar[string]{"string", `a name of the IANA database, as "Europe/Berlin"`, dst, func(_ string, v cty.Value) (string, *problem) {
		s, p := asString(v)
		if p != nil {
			return s, p
		}
		if _, err := LoadZone(s); err != nil {
			return "", wrong("Unknown time zone", "There is no time zone %q. Write a name of the IANA database, such as \"Europe/Berlin\" or \"America/New_York\".", s)
		}
		return s, nil
	}}
}
