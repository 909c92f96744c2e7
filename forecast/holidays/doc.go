// Package holidays says which days are holidays. Input are rules: the public holidays of a region, dates, stretches of days, and the events of iCalendar
// files (RFC 5545). Output is, for a date, the [Day] that it is. Dates are those on the wall calendar of the people whose day it is, without a time zone.
//
// What a holiday means for traffic is the business of package forecast.
package holidays
