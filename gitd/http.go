package gitd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gitd/grant"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// httpError is a refusal of a request. Git shows its text to the user.
type httpError struct {
	status int
	text   string
}

func (e *httpError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.text) }

// noRepository is the answer for a repository that does not exist, and for one that the client may not know of.
var noRepository = &httpError{http.StatusNotFound, "repository not found, or not covered by this token"}

// Handler serves smart HTTP and Git LFS at /NAME.git/… and /NAME/… alike, and /.well-known/jwks.json. The grant comes
// from the Basic password or the Bearer token.
func (s *Server) Handler() http.Handler {
	return s.httpHandler(s.readCredentials, true, nil)
}

// GrantHandler serves smart HTTP under one grant for the whole connection. It ignores tokens. It is used for
// connections from containers.
func (s *Server) GrantHandler(g Grant) http.Handler {
	return s.DoorHandler(func() Grant { return g }, nil)
}

// DoorHandler is GrantHandler with a grant that may change from request to request. If leaked is not nil, it is
// called with the secrets of a push that was refused, before the client gets its answer.
func (s *Server) DoorHandler(allowed func() Grant, leaked func([]Leak)) http.Handler {
	return s.httpHandler(func(r *http.Request) (Grant, bool, error) {
		g := allowed().Under(noVeil{})
		if err := g.Check(); err != nil {
			return g, true, &httpError{http.StatusForbidden, err.Error()}
		}
		if !g.Expires.IsZero() && !s.now().Before(g.Expires) {
			return g, true, &httpError{http.StatusForbidden, "the grant has ended"}
		}
		return g, true, nil
	}, false, leaked)
}

// readCredentials returns the grant of the request's token. Without a token, known is false.
func (s *Server) readCredentials(r *http.Request) (g Grant, known bool, err error) {
	header := r.Header.Get("Authorization")
	if header == "" {
		return Grant{}, false, nil
	}
	token := ""
	scheme, rest, _ := strings.Cut(header, " ")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
		token = strings.TrimSpace(rest)
	case strings.EqualFold(scheme, "Basic"):
		user, password, _ := r.BasicAuth()
		if token = password; token == "" {
			token = user // as in http://TOKEN@host/
		}
	}
	if g, err = s.Verify(token); err != nil {
		s.log().Info("token refused", "client", clientAddr(r), "err", err)
		return Grant{}, true, &httpError{http.StatusUnauthorized,
			"the token was refused: it is malformed, has ended, was revoked or was signed by another server"}
	}
	return g, true, nil
}

// httpHandler serves smart HTTP. The function who returns the grant of a request. forward serves
// /.well-known/jwks.json, too.
func (s *Server) httpHandler(who func(*http.Request) (Grant, bool, error), forward bool, leaked func([]Leak)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, leave, err := s.requests.Enter(r.Context())
		if err != nil {
			http.Error(w, "the server is shutting down", http.StatusServiceUnavailable)
			return
		}
		defer leave()
		h := w.Header()
		h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
		h.Set("X-Content-Type-Options", "nosniff")
		reply := &httpReply{w: w, ctl: http.NewResponseController(w), idle: s.limits.Idle,
			until: time.Now().Add(s.limits.Time)}
		if forward && r.URL.Path == "/.well-known/jwks.json" {
			err = s.serveKeys(reply, r)
		} else if _, verb, _ := splitURL(r.URL.Path); verb == verbLFS {
			err = s.serveLFS(ctx, reply, r, who, forward)
		} else {
			err = s.serveGit(ctx, reply, r, who, forward, leaked)
		}
		if err != nil {
			s.answerError(reply, r, err)
		}
	})
}

// answerError answers a request that failed. It breaks the connection if a part of the answer was sent.
func (s *Server) answerError(reply *httpReply, r *http.Request, err error) {
	if reply.begun {
		// The client must not take that part for the whole.
		s.log().Info("request broken off", "path", r.URL.Path, "err", err)
		panic(http.ErrAbortHandler)
	}
	status, text := httpStatus(err)
	if status >= 500 {
		s.log().Warn("request failed", "path", r.URL.Path, "err", err)
	}
	h := reply.w.Header()
	switch status {
	case http.StatusUnauthorized:
		// Bearer tokens are accepted, but not asked for. JGit ignores all schemes after one that it does not
		// know.
		h.Set("WWW-Authenticate", `Basic realm="ramus"`)
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", "30")
	}
	h.Del("Content-Encoding")
	_ = reply.ctl.SetWriteDeadline(time.Now().Add(s.limits.Idle))
	if reply.json {
		writeFault(reply.w, status, text)
		return
	}
	http.Error(reply.w, text, status)
}

// httpStatus returns the status and the text for an error.
func httpStatus(err error) (int, string) {
	var he *httpError
	switch {
	case errors.As(err, &he):
		return he.status, he.text
	case errors.Is(err, errBusy):
		return http.StatusServiceUnavailable, errBusy.Error()
	case errors.Is(err, errIdle):
		return http.StatusRequestTimeout, "nothing was sent for too long"
	}
	text := object.ClientText(err, "")
	switch {
	case text == "":
		return http.StatusInternalServerError, "git failed on the server; its log says why"
	case errors.Is(err, ErrTooLarge):
		return http.StatusRequestEntityTooLarge, text
	case errors.Is(err, ErrDenied):
		return http.StatusForbidden, text
	}
	return http.StatusBadRequest, text
}

// serveKeys serves the public half of the signing key.
func (s *Server) serveKeys(w *httpReply, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return &httpError{http.StatusMethodNotAllowed, "GET only"}
	}
	w.w.Header().Set("Content-Type", "application/jwk-set+json")
	_, err := w.Write(s.JWKS())
	return err
}

// serveGit serves one request of smart HTTP. outside means that it comes from a person, and not from a container.
func (s *Server) serveGit(ctx context.Context, w *httpReply, r *http.Request, who func(*http.Request) (Grant, bool, error), outside bool, leaked func([]Leak)) error {
	name, verb, service, err := parseRequest(r)
	if err != nil {
		return err
	}
	write := service == "git-receive-pack"
	a, err := s.admitRequest(r, name, write, who)
	if err != nil {
		return err
	}
	a.leaked, a.options = leaked, write && outside && s.takesOptions(a)
	a = s.negotiate(ctx, a, protocol.ValidVersion(r.Header.Get("Git-Protocol")), write)
	if verb == "info/refs" {
		return s.serveAdvert(ctx, a, w, r, service)
	}

	body := &httpBody{body: r.Body, ctl: w.ctl, idle: s.limits.Idle}
	in, err := decodeBody(r, body)
	if err != nil {
		return err
	}
	w.w.Header().Set("Content-Type", "application/x-"+service+"-result")
	if write {
		return s.receive(ctx, a, in, body.clearDeadline, w)
	}
	return s.upload(ctx, a, in, body.clearDeadline, w)
}

// parseRequest returns the repository, the verb and the service that a request asks for.
func parseRequest(r *http.Request) (name, verb, service string, err error) {
	name, verb, ok := splitURL(r.URL.Path)
	if !ok {
		return "", "", "", &httpError{http.StatusNotFound, "not found; repositories are served at /NAME.git"}
	}
	switch verb {
	case "info/refs":
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return "", "", "", &httpError{http.StatusMethodNotAllowed, "GET only"}
		}
		service = r.URL.Query().Get("service")
	case "git-upload-pack", "git-receive-pack":
		if r.Method != http.MethodPost {
			return "", "", "", &httpError{http.StatusMethodNotAllowed, "POST only"}
		}
		if r.Header.Get("Content-Type") != "application/x-"+verb+"-request" {
			return "", "", "", &httpError{http.StatusUnsupportedMediaType,
				"the content type must be application/x-" + verb + "-request"}
		}
		service = verb
	}
	if service != "git-upload-pack" && service != "git-receive-pack" {
		return "", "", "", &httpError{http.StatusForbidden,
			"the dumb HTTP protocol is not served; any git since 1.6.6 speaks the smart one"}
	}
	return name, verb, service, nil
}

// serveAdvert serves the refs and capabilities that open a conversation.
func (s *Server) serveAdvert(ctx context.Context, a access, w *httpReply, r *http.Request, service string) error {
	w.w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	if r.Method == http.MethodHead {
		return nil
	}
	if a.direct {
		advert, err := s.capabilities(ctx, a)
		if err != nil {
			return err
		}
		return writeWhole(w, advert)
	}
	var out io.Writer = w
	if a.protocol != "version=2" || service == "git-receive-pack" {
		out = &prefixWriter{w: w,
			prefix: append(protocol.AppendLine(nil, "# service=", service, "\n"), protocol.FlushLine...)}
	}
	if service == "git-receive-pack" {
		return s.advertisePush(ctx, a, out)
	}
	return s.advertise(ctx, a, "upload-pack", out)
}

// Serves reports whether a URL path asks for a repository, as [Server.Handler] reads it.
func Serves(path string) bool {
	name, _, ok := splitURL(path)
	return ok && name != ""
}

// RepoOf returns the name of the repository in a path that [Server.Handler] serves. Returns "" for other paths.
func RepoOf(path string) string {
	name, _, _ := splitURL(path)
	return strings.TrimSuffix(name, ".git")
}

// splitURL splits a URL path into the name of a repository and a verb.
func splitURL(path string) (name, verb string, ok bool) {
	path, ok = strings.CutPrefix(path, "/")
	if !ok {
		return "", "", false
	}
	for _, verb := range []string{"info/refs", "git-upload-pack", "git-receive-pack"} {
		if name, ok := strings.CutSuffix(path, "/"+verb); ok {
			return name, verb, true
		}
	}
	if name, _, ok := splitLFS("/" + path); ok {
		return name, verbLFS, true
	}
	// These are the files that the dumb protocol reads.
	for _, verb := range []string{"/HEAD", "/objects/", "/info/"} {
		if i := strings.Index(path, ".git"+verb); i >= 0 {
			return path[:i+len(".git")], "dumb", true
		}
	}
	return "", "", false
}

// admitRequest returns the access of a request, or the reason why it is refused.
func (s *Server) admitRequest(r *http.Request, path string, write bool, who func(*http.Request) (Grant, bool, error)) (access, error) {
	allowed, known, err := who(r)
	if err != nil {
		return access{}, err
	}
	a, findErr := s.locateRepo(path)
	if write && known && errors.Is(findErr, ErrNoRepository) && s.mayCreate(allowed, a.name) {
		a, findErr = s.createOnPush(r.Context(), path, allowed)
	}
	a.client = "http:" + allowed.Subject
	if !known {
		a.client = clientAddr(r)
		switch {
		case s.Anonymous:
			allowed = Grant{Subject: "anonymous", Repo: "*", Scopes: []string{ScopeWrite}, Write: []string{"refs/*"},
				Force: true, Delete: true}
			if s.OwnConfig {
				allowed.Write = append(allowed.Write, grant.OwnRefs+"*")
			}
		case findErr == nil && !write && a.repoConfig.Flag(anonymousKey, false):
			allowed = Grant{Subject: "anonymous", Repo: "*", Scopes: []string{ScopeRead}, Read: s.publicRefs()}
		default:
			// The answer does not tell whether the repository exists.
			return access{}, &httpError{http.StatusUnauthorized, "a token is needed: give it as the password"}
		}
	}
	a.grant = allowed.Effective()
	if !allowed.MayRead(a.name) {
		switch {
		case findErr == nil && !write && a.repoConfig.Flag(anonymousKey, false):
			a.grant = Grant{Subject: allowed.Subject, Repo: a.name, Scopes: []string{ScopeRead}, Read: s.publicRefs()}
		case !allowed.Has(ScopeRead):
			// The answer does not tell whether the repository exists.
			return access{}, &httpError{http.StatusForbidden, `this token lacks the scope "read", or "write" for pushes`}
		default:
			return access{}, noRepository
		}
	}
	if errors.Is(findErr, ErrNotFound) || errors.Is(findErr, ErrInvalid) {
		return access{}, noRepository
	}
	if findErr != nil {
		return access{}, findErr
	}
	if write && (!a.grant.MayWrite(a.name) || len(a.grant.Write) == 0) {
		return access{}, &httpError{http.StatusForbidden, "this token may only read " + a.name}
	}
	if err := a.checkEnabled(s, write); err != nil {
		return access{}, &httpError{http.StatusForbidden, err.Error()}
	}
	a.grant = s.veiled(a.grant, a.name)
	return a, nil
}

// publicRefs returns the refs that everybody may read in a repository that permits it. Of a repository of this server these are its branches
// and tags, and not the records of runs. Nil means all.
func (s *Server) publicRefs() []string {
	if s.OwnConfig {
		return nil
	}
	return []string{"refs/heads/*", "refs/tags/*"}
}

// clientAddr returns the address of the client without the port.
func clientAddr(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
