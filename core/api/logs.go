package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/job"
)

// maxTail bounds how many lines of the past one request may ask for.
const maxTail = 1_000_000

// logs streams what a workload wrote. tail is a number of lines, 0 for all that is kept; follow goes on until the client leaves.
func (h *handler) logs(w http.ResponseWriter, r *http.Request) {
	stream, err := h.openLogs(r)
	if err != nil {
		h.fail(w, err)
		return
	}
	defer stream.Close()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil {
		h.lg.Debug("an API client is gone", "err", err)
		return
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := stream.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return // the client left
			}
			if ferr := flush.Flush(); ferr != nil {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && r.Context().Err() == nil {
				h.lg.Warn("a log stream ended early", "workload", r.PathValue("id"), "err", err)
			}
			return
		}
	}
}

func (h *handler) openLogs(r *http.Request) (io.ReadCloser, error) {
	if h.o.Logs == nil {
		return nil, failf(http.StatusNotImplemented, "this scheduler serves no logs")
	}
	var o backend.LogOptions
	var err error
	if o.Follow, err = truth(r, "follow"); err != nil {
		return nil, err
	}
	if text := r.URL.Query().Get("tail"); text != "" {
		if o.Tail, err = strconv.Atoi(text); err != nil || o.Tail > maxTail {
			return nil, failf(http.StatusBadRequest, "tail=%q: want a number of lines up to %d; 0 means all that is kept", text, maxTail)
		}
	}
	view := h.s.View()
	if view == nil {
		return nil, failf(http.StatusServiceUnavailable, "the scheduler has just started and has not looked yet: ask again in a moment")
	}
	id, err := Workload(view, r.PathValue("id"))
	if err != nil {
		return nil, failure{http.StatusNotFound, err}
	}
	rc, err := h.o.Logs(r.Context(), id, o)
	if err != nil {
		status := http.StatusBadGateway
		switch backend.CodeOf(err) {
		case backend.Gone:
			status = http.StatusNotFound
		case backend.Blocked:
			status = http.StatusConflict
		}
		return nil, failure{status, err} // it says what was read
	}
	return rc, nil
}

// Workload finds the process that a person means: "worker-3" is its newest generation in the view that does not wait for another one's end, "worker-3-g2" that one, whether the view
// still has it or not.
func Workload(v *core.View, name string) (backend.ID, error) {
	if id, err := backend.ParseID(name); err == nil {
		return id, nil
	}
	var found backend.ID
	var names []string
	look := func(text string) {
		id, err := backend.ParseID(text)
		if err != nil {
			return
		}
		short := fmt.Sprintf("%s-%d", id.Role, id.Rank)
		if short == name && id.Generation > found.Generation {
			found = id
		}
		if !slices.Contains(names, short) {
			names = append(names, short)
		}
	}
	for _, s := range v.Serving() {
		look(s.ID)
	}
	for _, w := range v.Workers {
		look(w.ID)
	}
	if found.Generation == 0 { // of a server that has gone there may be its successor
		for _, s := range v.Servers {
			look(s.ID)
		}
	}
	if found.Generation == 0 { // what it wrote is kept for a while
		there := len(names)
		for _, id := range v.Left {
			look(id)
		}
		names = names[:there]
	}
	if found.Generation > 0 {
		return found, nil
	}
	if len(names) == 0 {
		return backend.ID{}, fmt.Errorf("job %q has no process %q; it has none at all now", v.Job, name)
	}
	hint := ""
	if !strings.HasPrefix(name, "worker-") && !strings.HasPrefix(name, "ps-") { // of a number that there is not, another is no better
		hint = job.DidYouMean(name, names)
	}
	return backend.ID{}, fmt.Errorf("job %q has no process %q; it has %s", v.Job, name, strings.TrimSpace(strings.Join(names, ", ")+". "+hint))
}
