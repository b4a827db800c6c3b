package gateway

import (
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Access is what a route asks of its caller. The zero value is no access class
// at all: a route that forgot its column is refused when the server is built.
type Access string

// The classes of access.
const (
	AccessPublic  Access = "public"  // anybody
	AccessMetrics Access = "metrics" // the scope "metrics", or "admin"
	AccessRead    Access = "read"    // the scope "read", "write" or "admin"
	AccessWrite   Access = "write"   // the scope "write" or "admin"
	AccessAdmin   Access = "admin"   // the scope "admin" for every repository, or the unix socket
	// AccessSigned: a link that was signed for the path, see [links.Signer], or the
	// scope of AccessRead for the repository.
	AccessSigned Access = "signed"
	// AccessPreview: the handler checks what a signed link led to: a cookie of a
	// host that is all the application's, or a part of the path. Who has a token is nobody here.
	AccessPreview Access = "preview"
	// AccessGit: the Git server checks the grant itself, ref by ref.
	AccessGit Access = "git"
	// AccessHook: the handler checks the sender's signature over the raw body
	// before it reads anything in it.
	AccessHook Access = "hook"
)

// Who is the caller of a request. The zero value is nobody.
type Who struct {
	Subject string   `json:"subject"` // "admin", "run:fancy-mallard"; "local" on the unix socket
	Repo    string   `json:"repo"`    // the one repository it may see; "*" is every one
	Scopes  []string `json:"scopes"`
	// Read and Write are the refs that it may see and change, see [gitd.Grant]. Read empty: all.
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	// Name and Email are those that commits carry; empty: they carry the subject.
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
	// Local callers came by the unix socket: they can read the data folder anyway.
	Local bool `json:"local"`
}

var local = Who{Subject: "local", Repo: "*", Scopes: []string{gitd.ScopeAdmin}, Write: []string{"refs/*"}, Local: true}

// Nobody tells whether the request carried no valid token.
func (w Who) Nobody() bool { return w.Subject == "" }

// grant is what decides: the Git server asks the same methods.
func (w Who) grant() gitd.Grant {
	return gitd.Grant{Subject: w.Subject, Repo: w.Repo, Scopes: w.Scopes, Read: w.Read, Write: w.Write}
}

// Admin tells whether the caller may do everything. An "admin" scope that is
// limited to one repository is not enough: what administrators do (import any
// path, mint any grant) has no repository as its border.
func (w Who) Admin() bool { return w.grant().Has(gitd.ScopeAdmin) && w.Repo == "*" }

// May tells whether the caller is let in to routes of class a.
func (w Who) May(a Access) bool {
	switch a {
	case AccessPublic, AccessGit, AccessHook, AccessPreview:
		return true
	case AccessMetrics:
		return w.grant().Has(gitd.ScopeMetrics) && w.Repo == "*"
	case AccessRead, AccessSigned:
		return w.grant().Has(gitd.ScopeRead)
	case AccessWrite:
		return w.grant().Has(gitd.ScopeWrite)
	case AccessAdmin:
		return w.Admin()
	}
	return false
}

// Sees tells whether the caller may know of a repository.
func (w Who) Sees(repo string) bool { return w.grant().MayRead(repo) }

// seesBranch tells whether the caller may know of a branch, and of the runs on it.
func (w Who) seesBranch(repo, branch string) bool {
	return w.grant().MayReadRef(repo, "refs/heads/"+branch)
}

// seesRun tells whether the caller may know of a run.
func (w Who) seesRun(r record.Run) bool { return w.seesBranch(r.Repo, r.Branch) }

// changes says why the caller may not change a branch that it may know of; nil if it may.
func (w Who) changes(repo, branch string) error {
	if w.grant().MayWriteRef(repo, "refs/heads/"+branch) {
		return nil
	}
	return problem(KindDenied, "%s may not change the branch %s of %s", w.Subject, branch, repo).
		withHint("`ramus token create --ref` makes a token with more refs; runs work on branches below refs/heads/ramus/")
}

// Person is whom an action is attributed to. Only administrators act in the
// name of somebody else; all others are who their grant says.
func (w Who) Person(claimed gitd.Person) gitd.Person {
	if w.Admin() && claimed.Name != "" {
		return claimed
	}
	if w.Name != "" && w.Email != "" {
		return gitd.Person{Name: w.Name, Email: w.Email}
	}
	return gitd.Person{Name: w.Subject, Email: mailbox(w.Subject) + "@localhost"}
}

// mailbox makes a subject fit to stand before the @ of an address in a commit.
func mailbox(subject string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-+", r) {
			return r
		}
		return '-'
	}, subject)
}

// token finds a grant in a request: a Bearer token, or the password of Basic
// authentication, which is all that git clients can send.
func token(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest)
	}
	return ""
}

// identify reads the request's grant. The error says why a token is refused;
// a request without one is nobody's.
func (s *Server) identify(r *http.Request) (Who, error) {
	t := token(r)
	if t == "" {
		return Who{}, nil
	}
	g, err := s.Git.Verify(t)
	if err != nil {
		return Who{}, err
	}
	return Who{Subject: g.Subject, Repo: g.Repo, Scopes: g.Scopes, Read: g.Read, Write: g.Write, Name: g.Person.Name, Email: g.Person.Email}, nil
}
