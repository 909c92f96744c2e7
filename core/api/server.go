package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/hindsight"
	"github.com/kale-sched/kale/core/state"
)

// scheduler is what the API needs of a core.Scheduler.
type scheduler interface {
	View() *core.View
	Do(ctx context.Context, o core.Order) error
	Store() *state.Store
}

// Options are what the API serves beside the scheduler.
type Options struct {
	// Logs gives what a workload wrote; nil: there are no logs. It is backend.Backend's Logs for the scheduler's job.
	Logs func(ctx context.Context, id backend.ID, o backend.LogOptions) (io.ReadCloser, error)
	// Report serves GET /v1/report; nil: there is none.
	Report http.Handler
}

// Limits of answers and of waiting.
const (
	defaultDecisions = 5
	defaultBins      = 10
	maxEntries       = 100_000
	maxOrderBytes    = 1 << 16
	maxBodyBytes     = 1 << 20          // read of a request that is refused, so that its sender reads why and not of a broken pipe
	orderTimeout     = 20 * time.Second // for the scheduler to take an order: it may be in the middle of a look
	closeTimeout     = 2 * time.Second
)

// Serve answers on l until ctx ends, and has closed l and every connection when it returns.
func Serve(ctx context.Context, lg *slog.Logger, l net.Listener, s scheduler, o Options) error {
	if lg == nil {
		lg = slog.New(slog.DiscardHandler)
	}
	srv := &http.Server{
		Handler: Handler(lg, s, o), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }, // log streams end with ctx
		ErrorLog:    slog.NewLogLogger(lg.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	// Owned by Serve, which waits for it; ends when the listener is closed.
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the scheduler's API: %w", err)
	case <-ctx.Done():
	}
	shut, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := srv.Shutdown(shut)
	if err != nil {
		err = srv.Close() // somebody does not let go
	}
	if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

// Handler is the API as a handler, for any listener.
func Handler(lg *slog.Logger, s scheduler, o Options) http.Handler {
	h := &handler{lg: lg, s: s, o: o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/alive", h.answer(func(*http.Request) (any, error) { return true, nil }))
	mux.HandleFunc("GET /v1/status", h.answer(h.status))
	mux.HandleFunc("GET /v1/decisions", h.answer(h.decisions))
	mux.HandleFunc("GET /v1/samples", h.answer(h.samples))
	mux.HandleFunc("GET /v1/rescales", h.answer(h.rescales))
	mux.HandleFunc("GET /v1/hindsight", h.answer(h.hindsight))
	mux.HandleFunc("GET /v1/wanted", h.answer(func(*http.Request) (any, error) { return core.WantedIn(h.s.Store()) }))
	mux.HandleFunc("POST /v1/orders", h.answer(h.order))
	mux.HandleFunc("GET /v1/workloads/{id}/logs", h.logs)
	if o.Report != nil {
		mux.Handle("GET /v1/report", o.Report)
	}
	mux.HandleFunc("/", h.answer(func(r *http.Request) (any, error) {
		return nil, failf(http.StatusNotFound, "there is no %s %s in version %s of the scheduler's API", r.Method, r.URL.Path, Version)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = drained{w, r.Body}
		w.Header().Set(VersionHeader, Version)
		if v := r.Header.Get(VersionHeader); v != "" && v != Version {
			h.fail(w, failf(http.StatusBadRequest, "the client speaks version %q of the API and this scheduler version %s: use a kale of the scheduler's version", v, Version))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// drained reads what the sender of a refused request still writes before it answers: a server that closes a connection
// with bytes unread resets it, and its sender, still writing, is told of a broken pipe and never of the reason.
type drained struct {
	http.ResponseWriter
	body io.Reader
}

func (d drained) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		// A sender that is slower, or sends more, has the broken pipe; not every ResponseWriter has a deadline.
		_ = http.NewResponseController(d.ResponseWriter).SetReadDeadline(time.Now().Add(closeTimeout))
		_, _ = io.CopyN(io.Discard, d.body, maxBodyBytes)
	}
	d.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController], which the logs flush by.
func (d drained) Unwrap() http.ResponseWriter { return d.ResponseWriter }

type handler struct {
	lg *slog.Logger
	s  scheduler
	o  Options
}

// failure is an error with its HTTP status.
type failure struct {
	status int
	error
}

func (f failure) Unwrap() error { return f.error }

func failf(status int, format string, args ...any) error {
	return failure{status, fmt.Errorf(format, args...)}
}

// answer makes a handler of a function that gives a value to be sent as JSON.
func (h *handler) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			h.fail(w, err)
			return
		}
		var body bytes.Buffer
		if err := json.NewEncoder(&body).Encode(v); err != nil {
			h.fail(w, fmt.Errorf("write the answer to %s as JSON: %w", r.URL.Path, err))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		h.write(w, body.Bytes())
	}
}

func (h *handler) fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var f failure
	if errors.As(err, &f) {
		status = f.status
	} else {
		h.lg.Warn("an API request failed", "err", err)
	}
	Fail(w, status, err)
}

// Fail answers with an error as the API does, for handlers that others bring.
func Fail(w http.ResponseWriter, status int, err error) {
	body, jerr := json.Marshal(errorBody{err.Error()})
	if jerr != nil {
		body = []byte(`{"error":"the error cannot be written"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that is gone needs no answer
}

// write sends to a client that may be gone, which is its own affair.
func (h *handler) write(w io.Writer, body []byte) {
	if _, err := w.Write(body); err != nil {
		h.lg.Debug("an API client is gone", "err", err)
	}
}

func (h *handler) status(*http.Request) (any, error) {
	v := h.s.View()
	if v == nil {
		return nil, failf(http.StatusServiceUnavailable, "the scheduler has just started and has not looked yet: ask again in a moment")
	}
	now := *v
	now.Now = time.Now() // when it was observed is the sample's time
	return &now, nil
}

func (h *handler) decisions(r *http.Request) (any, error) {
	n, err := number(r, "n", defaultDecisions)
	if err != nil {
		return nil, err
	}
	changes, err := truth(r, "changes")
	if err != nil {
		return nil, err
	}
	return Decisions(h.s.Store(), n, changes)
}

// Decisions reads the last n decisions, oldest first; with changes, only those that scale.
func Decisions(st *state.Store, n int, changes bool) ([]core.Record, error) {
	if !changes {
		return orEmpty(state.Last[core.Record](st, state.Decisions, n))
	}
	var out []core.Record
	err := state.Scan(st, state.Decisions, time.Time{}, func(r core.Record) bool {
		if r.Changes() {
			out = append(out, r)
		}
		return true
	})
	return orEmpty(out[max(0, len(out)-n):], err)
}

// orEmpty makes JSON's [] of nothing.
func orEmpty[T any](v []T, err error) ([]T, error) {
	if v == nil && err == nil {
		v = []T{}
	}
	return v, err
}

func (h *handler) samples(r *http.Request) (any, error) {
	since, err := moment(r, "since")
	if err != nil {
		return nil, err
	}
	return Samples(h.s.Store(), since)
}

func (h *handler) hindsight(r *http.Request) (any, error) {
	var o hindsight.Options
	var err error
	if o.From, err = moment(r, "from"); err != nil {
		return nil, err
	}
	if o.Bins, err = number(r, "bins", defaultBins); err != nil {
		return nil, err
	}
	for text := range strings.SplitSeq(r.URL.Query().Get("leads"), ",") {
		if text == "" {
			continue
		}
		lead, err := time.ParseDuration(text)
		if err != nil {
			return nil, failf(http.StatusBadRequest, "leads: %q is not a length of time such as 15m", text)
		}
		o.Leads = append(o.Leads, lead)
	}
	review, err := hindsight.Of(h.s.Store(), o)
	if errors.Is(err, hindsight.ErrNone) || errors.Is(err, hindsight.ErrLead) {
		return nil, failure{http.StatusConflict, err}
	}
	return review, err
}

// Samples reads what was observed since a time, at most the first 100,000 entries: ask again from the last one's time for the rest.
func Samples(st *state.Store, since time.Time) ([]core.Sample, error) {
	out := []core.Sample{}
	err := state.Scan(st, state.Samples, since, func(s core.Sample) bool {
		out = append(out, s)
		return len(out) < maxEntries
	})
	return out, err
}

func (h *handler) rescales(r *http.Request) (any, error) {
	n, err := number(r, "n", maxEntries)
	if err != nil {
		return nil, err
	}
	return orEmpty(state.Last[core.Rescale](h.s.Store(), state.Rescales, n))
}

func (h *handler) order(r *http.Request) (any, error) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, failf(http.StatusUnsupportedMediaType, "an order is JSON: send it with Content-Type: application/json")
	}
	dec := json.NewDecoder(io.LimitReader(r.Body, maxOrderBytes))
	dec.DisallowUnknownFields()
	var o core.Order
	if err := dec.Decode(&o); err != nil {
		return nil, failf(http.StatusBadRequest, `an order is {"kind": "…", "target": 3}: %w`, err)
	}
	if text := r.Header.Get(untilHeader); text != "" {
		var err error
		if o.Until, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, failf(http.StatusBadRequest, "%s: %q is not a time such as 2026-01-31T06:00:00Z", untilHeader, text)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), orderTimeout)
	defer cancel()
	switch err := h.s.Do(ctx, o); {
	case err == nil:
		return map[string]any{"taken": o}, nil
	case errors.Is(err, core.ErrNotRunning), undecided(err) && r.Context().Err() != nil: // else nobody waits, and the API ends after the loop
		return nil, failure{http.StatusGone, err}
	case errors.Is(err, core.ErrUnsettled):
		return nil, failf(http.StatusServiceUnavailable, "the scheduler has begun to take the order %q and was not done with it within %s: kale status tells whether it holds", o.Kind, orderTimeout)
	case errors.Is(err, core.ErrNotTaken):
		return nil, failf(http.StatusServiceUnavailable, "the scheduler did not take the order %q within %s: it is starting, or ending; ask again", o.Kind, orderTimeout)
	case errors.Is(err, core.ErrChiefSilent):
		return nil, failure{http.StatusFailedDependency, err}
	default:
		return nil, failure{http.StatusConflict, err}
	}
}

// undecided says that an order was neither taken nor refused.
func undecided(err error) bool {
	return errors.Is(err, core.ErrNotTaken) || errors.Is(err, core.ErrUnsettled)
}

// moment is a time that a question names; zero: it names none.
func moment(r *http.Request, name string) (at time.Time, err error) {
	if text := r.URL.Query().Get(name); text != "" {
		if at, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return at, failf(http.StatusBadRequest, "%s=%q is not a time such as 2026-01-31T06:00:00Z", name, text)
		}
	}
	return at, nil
}

func number(r *http.Request, name string, otherwise int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxEntries {
		return 0, failf(http.StatusBadRequest, "%s=%q: want a number from 1 to %d", name, text, maxEntries)
	}
	return n, nil
}

func truth(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, failf(http.StatusBadRequest, "%s=%q: want true or false", name, text)
	}
	return b, nil
}
