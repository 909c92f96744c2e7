package ps

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kale-sched/kale/trainer/checkpoint"
)

// tabletLost says that a tablet had snapshots, by its folder or by the manifest, and has none that can be used.
type tabletLost struct {
	tablet int
	had    checkpoint.Written
	known  bool // had is of the manifest
	bad    []error
}

func (l tabletLost) Error() string {
	if len(l.bad) > 0 {
		return fmt.Sprintf("tablet %d has %s and none can be used: %s", l.tablet, snapshots(len(l.bad)), whys(l.bad))
	}
	return fmt.Sprintf("tablet %d had a snapshot (%s) and has none now", l.tablet, words(l.had))
}

// unrestorable are the tablets of one server that cannot be restored.
type unrestorable []tabletLost

// add takes in an error that is one's.
func (u *unrestorable) add(err error) bool {
	var l tabletLost
	if !errors.As(err, &l) {
		return false
	}
	*u = append(*u, l)
	return true
}

// mostTold bounds how many tablets are told of one by one.
const mostTold = 3

// err says what is lost and what can be done.
func (u unrestorable) err(store *checkpoint.Store, of int) error {
	var what []string
	for _, l := range u[:min(len(u), mostTold)] {
		text := l.Error()
		if len(l.bad) == 0 {
			text += " in " + store.TabletDir(l.tablet)
		}
		what = append(what, text)
	}
	if more := len(u) - mostTold; more > 0 {
		what = append(what, fmt.Sprintf("and %d more tablets likewise", more))
	}
	order := "touch " + shellWord(store.AnewPath(u[0].tablet))
	if len(u) > 1 {
		order += " (and likewise for each of the others, by its number)"
	}
	return fmt.Errorf("%w: %d of %d tablets: %s. Bring the files back from a backup; or give up what the tablet had learnt: %s; "+
		"it then begins anew and is trained again with what the topic still has from the pinned start on. Either is taken up within seconds",
		ErrUnrestorable, len(u), of, strings.Join(what, "; "), order)
}

// shellWord is a path as a shell reads it.
func shellWord(path string) string {
	if strings.ContainsAny(path, " \t\n'\"\\$`!*?[](){}<>|&;#~") {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}

// fallbackWords says why a tablet was not restored from its newest snapshot, and what is trained again for it.
func (s *Server) fallbackWords(to retained, had checkpoint.Written, known bool, bad []error) string {
	id := to.generation.Tablet
	text := fmt.Sprintf("tablet %d was restored from snapshot %s of %s", id, to.generation.Name(), stamp(to.written))
	if known && to.generation.Compare(had.Of(id)) < 0 {
		text += fmt.Sprintf(" instead of %s", words(had))
		if lacks := had.Records - min(had.Records, to.records()); lacks > 0 {
			text += ", and is trained again with at least " + records(lacks)
		} else {
			text += ", which it has as well"
		}
	}
	if len(bad) > 0 {
		return text + ", because of damage: " + whys(bad)
	}
	return text + ", because the newer one is missing from " + s.opt.Store.TabletDir(id)
}

// anewWords says that a tablet begins anew by order.
func anewWords(store *checkpoint.Store, id int, had checkpoint.Written, known bool) string {
	text := fmt.Sprintf("tablet %d could not be restored and begins anew, as ordered by %s", id, store.AnewPath(id))
	if known {
		text += fmt.Sprintf("; it had been trained with %s, and is trained again with those that the topic still has", records(had.Records))
	}
	return text
}

func words(w checkpoint.Written) string {
	return fmt.Sprintf("%s of %s with %s", w.Of(0).Name(), stamp(w.UnixMs), records(w.Records))
}

// stamp is a moment as it is the same wherever it is read.
func stamp(unixMS int64) string {
	if unixMS == 0 {
		return "an unknown time"
	}
	return time.UnixMilli(unixMS).UTC().Format(time.RFC3339)
}

func records(n uint64) string {
	if n == 1 {
		return "1 record"
	}
	return fmt.Sprintf("%d records", n)
}

func snapshots(n int) string {
	if n == 1 {
		return "1 snapshot"
	}
	return fmt.Sprintf("%d snapshots", n)
}

// whys says of each file why it cannot be used.
func whys(bad []error) string {
	out := make([]string, len(bad))
	for i, err := range bad {
		out[i] = err.Error()
		if _, file, ok := strings.Cut(out[i], checkpoint.ErrDamaged.Error()+": "); ok {
			out[i] = file // which begins with its path
		}
	}
	return strings.Join(slices.Compact(out), "; ")
}
