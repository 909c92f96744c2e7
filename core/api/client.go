package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kale-sched/kale/core"
	"github.com/kale-sched/kale/core/backend"
	"github.com/kale-sched/kale/core/hindsight"
)

// callTimeout bounds a call whose context has no deadline; longer than the server waits for an order to be taken.
const callTimeout = orderTimeout + 10*time.Second

// Client speaks with one scheduler. It is safe for concurrent use.
type Client struct {
	path string
	http *http.Client
}

// Dial makes a client of the scheduler that listens at path and sees whether it is there. ErrNoScheduler: it is not.
func Dial(ctx context.Context, path string) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := dial(ctx, path)
	if err != nil {
		return nil, err
	}
	conn.Close()
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path) },
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
	}}}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// ErrSilent says that a scheduler is there, and has not answered in time.
var ErrSilent = errors.New("it does not answer")

// silence is ErrSilent where the time for an answer was over, else err.
func silence(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (%w)", ErrSilent, context.DeadlineExceeded)
	}
	return err
}

// Error is an answer of the scheduler that says no.
type Error struct {
	Status  int // HTTP's
	Message string
}

func (e *Error) Error() string { return e.Message }

// Temporary says that asking again later may help.
func (e *Error) Temporary() bool { return e.Status == http.StatusServiceUnavailable }

// ChiefSilent says that the order was not taken since the job's chief, which it is for too, does not answer: it may do so a moment later.
func (e *Error) ChiefSilent() bool { return e.Status == http.StatusFailedDependency }

// Ended says that the scheduler's loop has ended: its process is about to.
func (e *Error) Ended() bool { return e.Status == http.StatusGone }

// Alive asks whether the scheduler's process answers at all, until ctx ends. ErrSilent: it does not.
func (c *Client) Alive(ctx context.Context) error {
	_, err := call[json.RawMessage](ctx, c, "/v1/alive", nil, nil)
	if said := new(Error); errors.As(err, &said) {
		return nil // one of before, which does not know the question
	}
	return err
}

// Status is the scheduler's newest picture. An *Error that is Temporary says that there is none yet.
func (c *Client) Status(ctx context.Context) (*core.View, error) {
	return call[*core.View](ctx, c, "/v1/status", nil, nil)
}

// Decisions are the last n decisions, oldest first; with changes, only those that scale.
func (c *Client) Decisions(ctx context.Context, n int, changes bool) ([]core.Record, error) {
	return call[[]core.Record](ctx, c, "/v1/decisions", url.Values{"n": {strconv.Itoa(n)}, "changes": {strconv.FormatBool(changes)}}, nil)
}

// Samples is what was observed since a time; see the function of that name.
func (c *Client) Samples(ctx context.Context, since time.Time) ([]core.Sample, error) {
	q := url.Values{}
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	return call[[]core.Sample](ctx, c, "/v1/samples", q, nil)
}

// Rescales are the last n finished rescales, oldest first.
func (c *Client) Rescales(ctx context.Context, n int) ([]core.Rescale, error) {
	return call[[]core.Rescale](ctx, c, "/v1/rescales", url.Values{"n": {strconv.Itoa(n)}}, nil)
}

// Hindsight is how past forecasts came out; see hindsight.Of.
func (c *Client) Hindsight(ctx context.Context, o hindsight.Options) (hindsight.Review, error) {
	q := url.Values{"bins": {strconv.Itoa(o.Bins)}}
	if !o.From.IsZero() {
		q.Set("from", o.From.UTC().Format(time.RFC3339Nano))
	}
	var leads []string
	for _, lead := range o.Leads {
		leads = append(leads, lead.String())
	}
	q.Set("leads", strings.Join(leads, ","))
	return call[hindsight.Review](ctx, c, "/v1/hindsight", q, nil)
}

// Wanted is what the scheduler wants to run, as it wrote it down; nil: nothing yet.
func (c *Client) Wanted(ctx context.Context) (*core.Wanted, error) {
	return call[*core.Wanted](ctx, c, "/v1/wanted", nil, nil)
}

// untilHeader says when an order's giver has no more patience, in a header since a scheduler of before refuses fields that it does not know.
const untilHeader = "Kale-Order-Until"

// orderSlack is for how long an answer to an order that was taken at the last moment is waited for.
const orderSlack = 2 * time.Second

// Order hands over an order and returns when the scheduler has taken it, not when it is carried out. One that it does not take before orderTimeout, or within
// ctx's deadline less orderSlack, it does not carry out later either.
func (c *Client) Order(ctx context.Context, o core.Order) error {
	began := time.Now()
	o.Until = began.Add(orderTimeout)
	if d, ok := ctx.Deadline(); ok && d.Add(-orderSlack).Before(o.Until) {
		o.Until = d.Add(-orderSlack)
	}
	bounded, cancel := context.WithDeadline(ctx, o.Until.Add(orderSlack))
	defer cancel()
	_, err := call[json.RawMessage](bounded, c, "/v1/orders", nil, o)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the scheduler did not take the order %q within %s, and will not carry it out later: its process hangs or is stopped: give the order again when it answers: %w",
			o.Kind, time.Since(began).Round(time.Second), err)
	}
	return err
}

// Logs is what a process wrote, by its name: see Workload. The reader must be closed; with Follow it goes on until then, or until ctx ends.
func (c *Client) Logs(ctx context.Context, name string, o backend.LogOptions) (io.ReadCloser, error) {
	q := url.Values{"tail": {strconv.Itoa(o.Tail)}, "follow": {strconv.FormatBool(o.Follow)}}
	resp, err := c.send(ctx, "/v1/workloads/"+url.PathEscape(name)+"/logs", q, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Report writes the scheduler's report, an HTML page, to w.
func (c *Client) Report(ctx context.Context, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.send(ctx, "/v1/report", nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return fmt.Errorf("read the scheduler's report: %w", err)
	}
	return nil
}

// call asks and decodes the answer.
func call[T any](ctx context.Context, c *Client, path string, q url.Values, body any) (v T, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.send(ctx, path, q, body)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		return v, fmt.Errorf("read the scheduler's answer to %s: %w", path, silence(err))
	}
	return v, nil
}

// send asks for a path that is escaped already and gives a good answer, whose body the caller closes, or an error.
func (c *Client) send(ctx context.Context, path string, q url.Values, body any) (*http.Response, error) {
	method, reader := http.MethodGet, io.Reader(http.NoBody)
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("ask the scheduler: %w", err)
		}
		method, reader = http.MethodPost, bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://kale"+path+"?"+q.Encode(), reader)
	if err != nil {
		return nil, fmt.Errorf("ask the scheduler: %w", err)
	}
	req.Header.Set(VersionHeader, Version)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if o, ok := body.(core.Order); ok {
		req.Header.Set(untilHeader, o.Until.Format(time.RFC3339Nano))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // its text names a host that does not exist
		}
		return nil, fmt.Errorf("ask the scheduler at %s: %w", c.path, silence(err))
	}
	if err := check(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// check refuses answers of another version, and turns errors into *Error.
func check(resp *http.Response) error {
	if v := resp.Header.Get(VersionHeader); v != Version {
		return fmt.Errorf("the scheduler speaks version %q of the API and this program version %s: use a kale of the scheduler's version", v, Version)
	}
	if resp.StatusCode < 300 {
		return nil
	}
	var e errorBody
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxOrderBytes))
	if err != nil || json.Unmarshal(raw, &e) != nil || e.Error == "" {
		e.Error = "the scheduler answered " + resp.Status
	}
	return &Error{Status: resp.StatusCode, Message: e.Error}
}
