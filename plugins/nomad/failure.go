package nomad

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/kale-sched/kale/core/backend"
)

// noSuchRegion is how Nomad says that it does not know where a region is, in lower case.
const noSuchRegion = "no path to region"

// onlyTLS is how an HTTPS server answers who does not speak TLS.
const onlyTLS = "HTTP request to an HTTPS server"

// failures is the one place where Nomad's answers meet the contract's codes. The first row that fits counts.
var failures = []struct {
	status int    // of HTTP; 0: any
	text   string // in the body; empty: any
	code   backend.Code
	advice string
}{
	{http.StatusForbidden, "", backend.Unauthorised, "the token lacks %s, or is not known: plugins/nomad/README.md has the whole policy"},
	{http.StatusUnauthorized, "", backend.Unauthorised, "the token is refused: set token in the backend block or NOMAD_TOKEN; needed is %s"},
	{0, "ACL token not found", backend.Unauthorised, "the token is not known to this cluster: set token in the backend block or NOMAD_TOKEN; needed is %s"},
	{0, "UUID must be 36 characters", backend.Unauthorised, "a token is the SecretID that nomad acl token self shows: set token in the backend block or NOMAD_TOKEN"},
	{0, "Permission denied", backend.Unauthorised, "the token lacks %s"},
	{0, "Enforcing job modify index", backend.Conflict, ""},
	{0, "No cluster leader", backend.Unavailable, "the servers elect a leader: it may be over in seconds"},
	{0, "Task not running", backend.Gone, "it has ended, or is about to start again"},
	{http.StatusNotFound, "Unknown allocation", backend.Gone, "its node has collected it"},
	{0, noSuchRegion, backend.Blocked, "name a region that there is: nomad server members"},
	{http.StatusNotFound, "No path to", backend.Unavailable, "its node does not answer Nomad's servers"},
	{0, "nonexistent namespace", backend.Blocked, "create the namespace, or name another one in the backend block"},
	{0, "node pool", backend.Blocked, "name a node pool that exists"},
	{http.StatusTooManyRequests, "", backend.RetryAfter, ""},
	{http.StatusBadRequest, onlyTLS, backend.Blocked, "let the address begin with https:// (and see ca_cert)"},
	{http.StatusBadRequest, "", backend.Blocked, "Nomad refuses what the backend block asks for"},
	{0, "validation failed", backend.Blocked, "Nomad refuses what the backend block asks for"},
	{0, "failed validation", backend.Blocked, "Nomad refuses what the backend block asks for"},
}

// failed turns what the API gave into an error with a code. capability is what the call needs of the token.
func failed(err error, capability, doing string, args ...any) *backend.Error {
	doing = fmt.Sprintf(doing, args...)
	var own *backend.Error
	if errors.As(err, &own) {
		return own
	}
	var answer api.UnexpectedResponseError
	if !errors.As(err, &answer) {
		return unreachable(err, doing)
	}
	for _, row := range failures {
		if row.status != 0 && row.status != answer.StatusCode() || row.text != "" && !strings.Contains(strings.ToLower(answer.Body()), strings.ToLower(row.text)) {
			continue
		}
		advice := row.advice
		if strings.Contains(advice, "%s") {
			advice = fmt.Sprintf(advice, capability)
		}
		if advice != "" {
			advice = "; " + advice
		}
		if row.code == backend.RetryAfter {
			return backend.RetryIn(5*time.Second, "%s: %s", doing, strings.TrimSpace(answer.Body()))
		}
		return backend.Errorf(row.code, "%s: Nomad answers %d: %s%s", doing, answer.StatusCode(), strings.TrimSpace(answer.Body()), advice)
	}
	return backend.Errorf(backend.Unavailable, "%s: Nomad answers %d: %s", doing, answer.StatusCode(), strings.TrimSpace(answer.Body()))
}

// restartTime is for how long Nomad may refuse a token that it took before: a server that has just been started answers so until it has its state.
const restartTime = 15 * time.Second

// trust is whether Nomad takes the token, as far as was seen. It is safe for concurrent use; of a nil one nothing was seen.
type trust struct {
	mu    sync.Mutex
	taken bool
	since time.Time // when it was refused first since it was taken; zero: it was not
}

// note takes in what a call came to, and says whether its refusal may pass.
func (t *trust) note(err error, now time.Time) (passing bool) {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.taken, t.since = true, time.Time{}
	case backend.CodeOf(err) == backend.Unauthorised && t.taken:
		if t.since.IsZero() {
			t.since = now
		}
		return now.Sub(t.since) < restartTime
	}
	return false
}

// refusedNow is the error of a look that failed: where Nomad refuses a token that it took a moment ago, one that may pass.
func (s settings) refusedNow(ctx context.Context, err error) error {
	if s.trust.note(err, time.Now()) {
		return backend.Errorf(backend.Unavailable, "%s; it took the token a moment ago: where its servers were just started, that passes", backend.AsError(err).Message)
	}
	return s.tokenGone(ctx, err)
}

// tokenGone is the error of calls that were refused: where Nomad does not know the token at all, that, since then every call names another capability that lacks.
func (s settings) tokenGone(ctx context.Context, err error) error {
	if backend.CodeOf(err) != backend.Unauthorised || !s.hasToken {
		return err
	}
	q, cancel := s.read(ctx)
	defer cancel()
	var answer api.UnexpectedResponseError
	if _, _, self := s.client.ACLTokens().Self(q); !errors.As(self, &answer) || answer.StatusCode() != http.StatusForbidden && !strings.Contains(answer.Body(), "token not found") {
		return err
	}
	return backend.Errorf(backend.Unauthorised, "look at what runs: the token is not known to Nomad: it was revoked, has expired, or is another cluster's. What runs goes on; "+
		"set token in the backend block or NOMAD_TOKEN to one that it knows, and start the scheduler again")
}

// unreachable is the error of a call that has got no answer. Where no connection was made, which question it was for says nothing: of several that are asked at the same
// time another one fails first each time, and it would be another error each time.
func unreachable(err error, doing string) *backend.Error {
	advice := distrust(err)
	var request *url.Error // says only which path of Nomad's interface was asked for
	if errors.As(err, &request) {
		err = request.Err
	}
	if advice != "" {
		return backend.Errorf(backend.Blocked, "%s: Nomad%s: %w; %s", doing, askedAt(request), err, advice)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, context.Canceled) {
		return backend.Errorf(backend.Unavailable, "Nomad cannot be reached: %w; is the address in the backend block (or NOMAD_ADDR) right, and the server up?", err)
	}
	if request != nil && (request.Timeout() || errors.Is(err, context.DeadlineExceeded)) {
		return backend.Errorf(backend.Unavailable, "%s: Nomad%s does not answer: %w; is the server up? nomad server members tells (where this one hangs, with -address of another), and its log", doing, askedAt(request), err)
	}
	return backend.Errorf(backend.Unavailable, "%s: %w", doing, err)
}

// askedAt says at which address Nomad was asked, " at http://…"; empty where that is not told.
func askedAt(request *url.Error) string {
	if request == nil {
		return ""
	}
	u, err := url.Parse(request.URL)
	if err != nil || u.Host == "" {
		return ""
	}
	return " at " + u.Scheme + "://" + u.Host
}

// distrust says what to do where the two sides do not agree on TLS; empty where that is not what failed.
func distrust(err error) string {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var certificate x509.CertificateInvalidError
	switch {
	case noTLS(err):
		return "let the address begin with http://: no TLS is spoken there"
	case errors.As(err, &authority):
		return "set ca_cert (NOMAD_CACERT) to the file of the authority that signed the certificate of Nomad's agents"
	case errors.As(err, &name):
		return "set tls_server_name (NOMAD_TLS_SERVER_NAME) to a name that the agent's certificate has, such as server.global.nomad"
	case errors.As(err, &certificate):
		return "the agent's certificate is not good; ask who runs the cluster, or look at this machine's clock"
	case strings.Contains(err.Error(), "remote error: tls:"): // what the other side says has no type
		return "Nomad asks for a certificate: set client_cert and client_key (NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY) to the files of one that the cluster's authority has signed"
	}
	return ""
}

// noTLS says that the other side does not speak TLS, which the address asks for.
func noTLS(err error) bool {
	var record tls.RecordHeaderError
	return errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &record)
}

// distrusted says that the two sides do not agree on TLS, or on whether it is spoken.
func distrusted(err error) bool { return distrust(err) != "" || strings.Contains(err.Error(), onlyTLS) }

// notFound reports whether Nomad knows no such thing.
func notFound(err error) bool {
	var answer api.UnexpectedResponseError
	return errors.As(err, &answer) && answer.StatusCode() == http.StatusNotFound
}
