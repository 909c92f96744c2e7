package slurm

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// restVersions are the versions of slurmrestd's interface that this package speaks, the best first. v0.0.42 to v0.0.40 come with Slurm 24.11 and are alike,
// v0.0.38 came with 22.05 and is served up to 23.11. Newer Slurms keep serving two or three older versions beside their own.
var restVersions = []string{"v0.0.42", "v0.0.41", "v0.0.40", "v0.0.38"}

// oldRest is the version in which numbers are plain numbers and states plain strings, and some properties of a job have other names.
const oldRest = "v0.0.38"

// restName begins who is asked of what slurmrestd was asked.
const restName = "slurmrestd"

// envToken names the environment variable with the token, as for Slurm's own clients.
const envToken = "SLURM_JWT"

// rest is the controller through slurmrestd. It is safe for concurrent use.
type rest struct {
	base      string // http://host:port; of a socket, a name that stands for it
	tokenFile string
	client    *http.Client

	mu      sync.Mutex
	version string // agreed on; empty before the first question
}

// restWay is how slurmrestd is reached: what the block says.
type restWay struct {
	address   string // unix:/path, http://host:port or https://host:port
	tokenFile string // read before every question, so that it may be renewed; empty: the environment, or nothing
	caCert    string // file; empty: the system's
}

// newRest makes the controller. It asks nothing yet.
func newRest(w restWay) (*rest, error) {
	r := &rest{base: strings.TrimSuffix(w.address, "/"), tokenFile: w.tokenFile}
	transport := &http.Transport{MaxIdleConnsPerHost: submitAtOnce, IdleConnTimeout: 30 * time.Second}
	if path, ok := strings.CutPrefix(w.address, "unix:"); ok {
		r.base = "http://slurmrestd"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	}
	if w.caCert != "" {
		pem, err := os.ReadFile(w.caCert)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM form", w.caCert)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	r.client = &http.Client{Transport: transport}
	return r, nil
}

// token gives the token and the user that it is for; both empty where a socket's own peer counts (rest_auth/local).
func (r *rest) token() (token, user string, err error) {
	token = os.Getenv(envToken)
	if r.tokenFile != "" {
		raw, err := os.ReadFile(r.tokenFile)
		if err != nil {
			return "", "", fmt.Errorf("%w: %w", errNoToken, err)
		}
		token = string(raw)
	}
	token = strings.TrimPrefix(strings.TrimSpace(token), envToken+"=") // as scontrol token prints it
	return token, userOf(token), nil
}

// userOf reads the name in a token of scontrol's. Whether it is genuine is Slurm's to judge.
func userOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Sun  string `json:"sun"`
		User string `json:"username"`
	}
	if json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	if claims.Sun != "" {
		return claims.Sun
	}
	return claims.User
}

// mostAnswer bounds an answer: some thousand jobs, at 4 kB each.
const mostAnswer = 256 << 20

// errNoToken is that the file with the token cannot be read.
var errNoToken = errors.New("read the token for slurmrestd")

// errNoPath is that slurmrestd does not serve a path: another version, or a plugin that it was not started with.
var errNoPath = errors.New("slurmrestd does not serve this path")

// ask sends one request and decodes the answer into out, which may be nil. What Slurm complains of is a slurmError. notFound is errNoPath.
func (r *rest) ask(ctx context.Context, within time.Duration, method, path string, body, out any) error {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	asking := restName + ": " + method + " " + path
	failed := func(err error) error {
		if bounded.Err() != nil {
			err = fmt.Errorf("no answer within %v (is slurmctld down?): %w", within, bounded.Err())
		}
		return &slurmError{asking: asking, err: err}
	}
	token, user, err := r.token()
	if err != nil {
		return failed(err)
	}
	var sent io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return failed(err)
		}
		sent = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(bounded, method, r.base+path, sent)
	if err != nil {
		return failed(err)
	}
	if req.Header.Set("Accept", "application/json"); body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("X-SLURM-USER-TOKEN", token)
	}
	if user != "" {
		req.Header.Set("X-SLURM-USER-NAME", user)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return failed(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer+1))
	switch {
	case err != nil:
		return failed(err)
	case len(raw) > mostAnswer:
		return failed(fmt.Errorf("its answer is longer than %d bytes", mostAnswer))
	}
	return judgeAnswer(asking, resp, raw, out)
}

// judgeAnswer decodes an answer, or gives the error that it is.
func judgeAnswer(asking string, resp *http.Response, raw []byte, out any) error {
	var said complaints
	decoded := json.Unmarshal(raw, &said) == nil
	if resp.StatusCode == http.StatusNotFound && !decoded {
		return &slurmError{asking: asking, err: errNoPath}
	}
	// Errors come with status 200, too, beside an empty list: that is no list. A job that was submitted counts, whatever is said of it.
	if resp.StatusCode != http.StatusOK || len(said.Errors) > 0 && resp.Request.Method != http.MethodPost {
		e := &slurmError{asking: asking, said: said.String(), err: errors.New(resp.Status)}
		if e.said == "" {
			e.said = strings.TrimSpace(string(raw[:min(len(raw), 500)]))
		}
		return e
	}
	if !decoded {
		return &slurmError{asking: asking, err: errors.New("its answer is no JSON")}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return &slurmError{asking: asking, err: fmt.Errorf("its answer is not as expected: %w", err)}
	}
	return nil
}

// complaints are the errors in an answer.
type complaints struct {
	Errors []struct {
		Error       string `json:"error"`
		Description string `json:"description"`
	} `json:"errors"`
}

func (c complaints) String() string {
	var out []string
	for _, e := range c.Errors {
		switch {
		case e.Error == "" || e.Error == "Unspecified error" && e.Description != "":
			out = append(out, e.Description)
		case e.Description == "" || strings.Contains(e.Description, e.Error):
			out = append(out, e.Error)
		default:
			out = append(out, e.Error+" ("+e.Description+")")
		}
	}
	return strings.Join(out, "; ")
}

// agreed gives the version to speak: the first of restVersions that slurmrestd serves.
func (r *rest) agreed(ctx context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version != "" {
		return r.version, nil
	}
	for _, v := range restVersions {
		err := r.ask(ctx, askTimeout, http.MethodGet, "/slurm/"+v+"/ping", nil, nil)
		if errors.Is(err, errNoPath) {
			continue
		}
		if err != nil {
			return "", err
		}
		r.version = v
		return v, nil
	}
	return "", &slurmError{asking: restName, err: fmt.Errorf(
		"it serves none of the versions %s: start it with one of them (slurmrestd -d list), or leave rest out to use the command line", strings.Join(restVersions, ", "))}
}

// call asks for a path below the version's root, such as "/jobs". A version that is served no more is agreed on anew, once.
func (r *rest) call(ctx context.Context, within time.Duration, method, api, path string, query url.Values, body func(version string) any, out any) error {
	for again := false; ; again = true {
		version, err := r.agreed(ctx)
		if err != nil {
			return err
		}
		var sent any
		if body != nil {
			sent = body(version)
		}
		where := api + version + path
		if len(query) > 0 {
			where += "?" + query.Encode()
		}
		if err = r.ask(ctx, within, method, where, sent, out); !errors.Is(err, errNoPath) || again || api != slurmAPI {
			return err
		}
		r.mu.Lock()
		r.version = ""
		r.mu.Unlock()
	}
}

// The roots of slurmrestd's paths: of slurmctld's and of the database's.
const (
	slurmAPI = "/slurm/"
	dbAPI    = "/slurmdb/"
)
