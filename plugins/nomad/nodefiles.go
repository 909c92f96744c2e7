package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Files of allocations are read through the servers, by the one client that all calls share. The api package would ask the
// node itself: with a client of its own for each call, whose connection stays open for a minute and a half (an agent takes a
// hundred from one address), and at an address that only has to be reachable from the servers.

// open reads an allocation's files on its node: what is one of the ways that Nomad offers. The caller closes.
func (s settings) open(q *api.QueryOptions, what string, a *api.AllocationListStub, params map[string]string) (io.ReadCloser, error) {
	q.Params = params
	return s.client.Raw().Response("/v1/client/fs/"+what+"/"+a.ID, q)
}

// readFile gives the beginning of a file of the allocation.
func (s settings) readFile(ctx context.Context, a *api.AllocationListStub, path string, limit int64) ([]byte, error) {
	q, cancel := s.read(ctx)
	defer cancel()
	r, err := s.open(q, "cat", a, map[string]string{"path": path})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, limit))
}

// openLog gives what the task writes, in Nomad's frames, from the offset on; it goes on where follow is set.
func (s settings) openLog(q *api.QueryOptions, a *api.AllocationListStub, follow bool, offset int64) (io.ReadCloser, error) {
	return s.open(q, "logs", a, map[string]string{
		"task": taskName, "type": "stdout", "origin": "start", "offset": strconv.FormatInt(offset, 10), "follow": strconv.FormatBool(follow),
	})
}

// readLog gives all that the task has written.
func (s settings) readLog(ctx context.Context, a *api.AllocationListStub) ([]byte, error) {
	q, cancel := s.read(ctx)
	defer cancel()
	r, err := s.openLog(q, a, false, 0)
	if absent(err) {
		return nil, nil // it has not written anything yet
	}
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []byte
	err = eachFrame(r, func(piece []byte) bool {
		all = append(all, piece...)
		return true
	})
	return all, err
}

// eachFrame hands over what the frames of a stream hold until there are no more, take says false, or the stream breaks.
func eachFrame(r io.Reader, take func([]byte) bool) error {
	for dec := json.NewDecoder(r); ; {
		var f api.StreamFrame
		switch err := dec.Decode(&f); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if len(f.Data) > 0 && !take(f.Data) {
			return nil
		}
	}
}

// absent reports whether there is no log yet. A node that cannot be reached and an allocation that it has forgotten are other
// things, which Nomad gives the same code.
func absent(err error) bool {
	var answer api.UnexpectedResponseError
	if !errors.As(err, &answer) {
		return false
	}
	body := answer.Body()
	if strings.Contains(body, "not started yet") {
		return true
	}
	return answer.StatusCode() == http.StatusNotFound && !strings.Contains(body, "No path to") && !strings.Contains(body, "nknown alloc") && !strings.Contains(body, "nknown node")
}
