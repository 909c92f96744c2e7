package holidays

import (
	"maps"
	"slices"
	"strings"

	"github.com/rickar/cal/v2"
	"github.com/rickar/cal/v2/at"
	"github.com/rickar/cal/v2/au"
	"github.com/rickar/cal/v2/be"
	"github.com/rickar/cal/v2/bg"
	"github.com/rickar/cal/v2/br"
	"github.com/rickar/cal/v2/ca"
	"github.com/rickar/cal/v2/ch"
	"github.com/rickar/cal/v2/cz"
	"github.com/rickar/cal/v2/de"
	"github.com/rickar/cal/v2/dk"
	"github.com/rickar/cal/v2/ecb"
	"github.com/rickar/cal/v2/es"
	"github.com/rickar/cal/v2/fr"
	"github.com/rickar/cal/v2/gb"
	"github.com/rickar/cal/v2/gr"
	"github.com/rickar/cal/v2/hr"
	"github.com/rickar/cal/v2/ie"
	"github.com/rickar/cal/v2/it"
	"github.com/rickar/cal/v2/jp"
	"github.com/rickar/cal/v2/lt"
	"github.com/rickar/cal/v2/lv"
	"github.com/rickar/cal/v2/nl"
	"github.com/rickar/cal/v2/no"
	"github.com/rickar/cal/v2/nz"
	"github.com/rickar/cal/v2/pl"
	"github.com/rickar/cal/v2/ro"
	"github.com/rickar/cal/v2/se"
	"github.com/rickar/cal/v2/si"
	"github.com/rickar/cal/v2/sk"
	"github.com/rickar/cal/v2/ua"
	"github.com/rickar/cal/v2/us"
	"github.com/rickar/cal/v2/za"
)

// regions are public holidays by ISO 3166 code: of whole countries, and of states where these differ. ecb is the European Central Bank's payment system.
var regions = map[string][]*cal.Holiday{
	"at": at.Holidays, "be": be.Holidays, "bg": bg.Holidays, "br": br.Holidays, "ca": ca.Holidays, "ch": ch.Holidays, "cz": cz.Holidays,
	"de": de.Holidays, "dk": dk.Holidays, "ecb": ecb.Holidays, "es": es.Holidays, "fr": fr.Holidays, "gb": gb.Holidays, "gr": gr.Holidays, "hr": hr.Holidays,
	"ie": ie.Holidays, "it": it.Holidays, "jp": jp.Holidays, "lt": lt.Holidays, "lv": lv.Holidays, "nl": nl.Holidays, "no": no.Holidays, "nz": nz.Holidays,
	"pl": pl.Holidays, "ro": ro.Holidays, "se": se.Holidays, "si": si.Holidays, "sk": sk.Holidays, "ua": ua.Holidays, "us": us.Holidays, "za": za.Holidays,
	"au-act": au.HolidaysACT, "au-nsw": au.HolidaysNSW, "au-nt": au.HolidaysNT, "au-qld": au.HolidaysQLD, "au-sa": au.HolidaysSA,
	"au-tas": au.HolidaysTAS, "au-vic": au.HolidaysVIC, "au-wa": au.HolidaysWA,
	"ch-ag": ch.HolidaysAG, "ch-ai": ch.HolidaysAI, "ch-ar": ch.HolidaysAR, "ch-be": ch.HolidaysBE, "ch-bl": ch.HolidaysBL, "ch-bs": ch.HolidaysBS,
	"ch-fr": ch.HolidaysFR, "ch-ge": ch.HolidaysGE, "ch-gl": ch.HolidaysGL, "ch-gr": ch.HolidaysGR, "ch-ju": ch.HolidaysJU, "ch-lu": ch.HolidaysLU,
	"ch-ne": ch.HolidaysNE, "ch-nw": ch.HolidaysNW, "ch-ow": ch.HolidaysOW, "ch-sg": ch.HolidaysSG, "ch-sh": ch.HolidaysSH, "ch-so": ch.HolidaysSO,
	"ch-sz": ch.HolidaysSZ, "ch-tg": ch.HolidaysTG, "ch-ti": ch.HolidaysTI, "ch-ur": ch.HolidaysUR, "ch-vd": ch.HolidaysVD, "ch-vs": ch.HolidaysVS,
	"ch-zg": ch.HolidaysZG, "ch-zh": ch.HolidaysZH,
	"de-bb": de.HolidaysBB, "de-be": de.HolidaysBE, "de-bw": de.HolidaysBW, "de-by": de.HolidaysBY, "de-hb": de.HolidaysHB, "de-he": de.HolidaysHE,
	"de-hh": de.HolidaysHH, "de-mv": de.HolidaysMV, "de-ni": de.HolidaysNI, "de-nw": de.HolidaysNW, "de-rp": de.HolidaysRP, "de-sh": de.HolidaysSH,
	"de-sl": de.HolidaysSL, "de-sn": de.HolidaysSN, "de-st": de.HolidaysST, "de-th": de.HolidaysTH,
}

// Regions are the codes whose holidays are known, in alphabetical order.
func Regions() []string { return slices.Sorted(maps.Keys(regions)) }

// countries are the regions' countries, with "-…" behind those whose states are known too.
func countries() string {
	var out []string
	for _, code := range Regions() {
		country, _, state := strings.Cut(code, "-")
		if state {
			country += "-…"
		}
		out = append(out, country)
	}
	return strings.Join(slices.Compact(out), ", ")
}

// observed ends the name of the day on which a holiday is made up for.
const observed = " (observed)"

// regionDays calls out with the holidays of a region that belong to a year.
func regionDays(code string, year int, out func(Date, string)) {
	for _, h := range regions[code] {
		on, instead := h.Calc(year)
		if on.IsZero() {
			continue
		}
		out(DateOf(on), h.Name)
		if !instead.IsZero() && DateOf(instead) != DateOf(on) {
			out(DateOf(instead), h.Name+observed)
		}
	}
}
