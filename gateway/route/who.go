package route

import (
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Who is the caller of a request. The zero value is nobody.
type Who struct {
	Subject string   `json:"subject"` // "admin", "run:fancy-mallard"; "local" on the unix socket
	Repo    string   `json:"repo"`    // the one repository that it may see; "*" is every one
	Scopes  []string `json:"scopes"`
	// Read and Write are the refs that it may see and change, see [gitd.Grant]. An empty Read means all.
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	// Name and Email are the author of its commits. If they are empty, the subject is.
	Name  string `json:"name,omitempty"`
	Email string `json:"email,omitempty"`
	// Token is the id of the token that the request came with.
	Token string `json:"token,omitempty"`
	// Local callers came by the unix socket. They can read the data folder anyway.
	Local bool `json:"local"`
	// Account is the person of a session. Nil means that the request came with a token or by the unix socket. With an
	// account, its roles decide.
	Account *Account `json:"-"`

	veil func(g gitd.Grant, repo string) gitd.Veil // see [Mux.Veil]
}

// Under returns the caller under the veils of repositories, see [Mux.Veil].
func (w Who) Under(veil func(g gitd.Grant, repo string) gitd.Veil) Who {
	w.veil = veil
	return w
}

// Local is the caller of every request on the unix socket.
var Local = Who{Subject: "local", Repo: "*", Scopes: []string{gitd.ScopeAdmin}, Write: []string{"refs/*"}, Local: true}

// strangerSubject is the subject of strangers. The Git server names them so, too.
const strangerSubject = "anonymous"

// NewStranger returns the caller of a request without a session for a repository that everybody may read. It sees the
// branches and the tags, and nothing else.
func NewStranger(repo string) Who {
	return Who{Subject: strangerSubject, Repo: repo, Scopes: []string{gitd.ScopeRead},
		Read: []string{"refs/heads/*", "refs/tags/*"}}
}

// Stranger reports whether the caller is a stranger, to whom pages show nothing that git clone does not.
func (w Who) Stranger() bool {
	return w.Account == nil && w.Token == "" && w.Subject == strangerSubject
}

// Nobody reports whether the request carried no valid token.
func (w Who) Nobody() bool { return w.Subject == "" }

// Grant returns the grant whose methods decide the rights of the caller. The Git server asks the same methods. For an
// account it is the grant of its role in every repository, so that roles in single repositories are not in it.
func (w Who) Grant() gitd.Grant {
	return gitd.Grant{Subject: w.Subject, Repo: w.Repo, Scopes: w.Scopes, Read: w.Read, Write: w.Write}
}

// Admin reports whether the caller may do everything. An "admin" scope that is limited to one repository is not
// enough, because the actions of administrators (import any path, sign any grant) reach beyond every repository.
func (w Who) Admin() bool { return w.Grant().Has(gitd.ScopeAdmin) && w.Repo == "*" }

// May reports whether routes of class a let the caller in.
func (w Who) May(a Access) bool {
	if w.Account != nil {
		return w.mayAccount(a)
	}
	switch a {
	case AccessPublic, AccessGit, AccessHook, AccessPreview:
		return true
	case AccessMetrics:
		return w.Grant().Has(gitd.ScopeMetrics) && w.Repo == "*"
	case AccessRead, AccessSigned:
		return w.Grant().Has(gitd.ScopeRead)
	case AccessWrite:
		return w.Grant().Has(gitd.ScopeWrite)
	case AccessAdmin:
		return w.Admin()
	}
	return false
}

// Sees reports whether the caller may know of a repository.
func (w Who) Sees(repo string) bool { return w.GrantIn(repo).MayRead(repo) }

// SeesBranch reports whether the caller may know of a branch, and of the runs on it.
func (w Who) SeesBranch(repo, branch string) bool {
	return w.GrantIn(repo).MayReadRef(repo, "refs/heads/"+branch)
}

// SeesRun reports whether the caller may know of a run. It must see the run's branch in each of its repositories,
// because the evidence of a run shows the content of all.
func (w Who) SeesRun(r record.Run) bool { return w.seesIn(r.Branch, r.Repos()) }

// SeesCaller reports whether the caller of the request may know of another one, which follows from its branches.
func (w Who) SeesCaller(c executor.CallerStatus) bool { return w.seesIn(c.Branch, c.Repos()) }

func (w Who) seesIn(branch string, repos []string) bool {
	for _, repo := range repos {
		if !w.SeesBranch(repo, branch) {
			return false
		}
	}
	return true
}

// SeesTask reports whether the caller may know of a task, which follows from the task's branch.
func (w Who) SeesTask(t record.Task) bool { return w.SeesBranch(t.Repo, t.Caller().Branch()) }

// CheckChange returns why the caller may not change a branch that it may know of. Returns nil if it may.
func (w Who) CheckChange(repo, branch string) error {
	if w.GrantIn(repo).MayWriteRef(repo, "refs/heads/"+branch) {
		return nil
	}
	if w.Account != nil {
		return NewProblem(KindDenied, "%s may not change the branch %s of %s", w.Account.Login, branch, repo).
			WithHint("this needs the role member there; an administrator gives it")
	}
	return NewProblem(KindDenied, "%s may not change the branch %s of %s", w.Subject, branch, repo).
		WithHint("`ramus token create --ref` makes a token with more refs; runs work on branches below refs/heads/ramus/")
}

// CheckChangeRun returns why the caller may not change the branches of a run, in any of its repositories.
func (w Who) CheckChangeRun(r record.Run) error { return w.checkIn(r.Branch, r.Repos()) }

// CheckChangeCaller returns why the caller of the request may not change the branches of another one.
func (w Who) CheckChangeCaller(c executor.CallerStatus) error { return w.checkIn(c.Branch, c.Repos()) }

func (w Who) checkIn(branch string, repos []string) error {
	for _, repo := range repos {
		if err := w.CheckChange(repo, branch); err != nil {
			return err
		}
	}
	return nil
}

// CheckRun returns why the caller may not begin a planned run. The caller must see the run's base, and be allowed to
// change the run's branch and the branch that the run merges into. An empty into means that it merges into none. The same
// holds for each additional repository.
func (w Who) CheckRun(r record.Run, into string) error {
	if !w.SeesBranch(r.Repo, r.Base) {
		return NotFound("branch", r.Base)
	}
	if err := w.CheckChange(r.Repo, r.Branch); err != nil {
		return err
	}
	for _, a := range r.With {
		one := record.Run{Repo: a.Repo, Base: a.Base, Branch: r.Branch}
		target := ""
		if into != "" {
			target = a.Base
		}
		if err := w.CheckRun(one, target); err != nil {
			return err
		}
	}
	if into == "" {
		return nil
	}
	return w.CheckChange(r.Repo, into)
}

// HideMatches replaces the error of an ambiguous name, which lists the matches, for callers that do not see all
// repositories and branches. what is the kind of thing that was named.
func (w Who) HideMatches(what, name string, err error) error {
	if !w.SeesAll() && errors.Is(err, record.ErrAmbiguous) {
		return NewProblem(KindAmbiguous, "%q is not enough to name a %s", name, what).WithHint("give the whole name")
	}
	return err
}

// Person returns the person that an action is attributed to. Only administrators act in the name of somebody else.
// All others are the person of their grant or account. The person's id is the subject of a token, which names its bearer.
func (w Who) Person(claimed gitd.Person) gitd.Person {
	switch {
	case w.Account == nil && w.Admin() && claimed.Name != "":
		if claimed.ID == "" && !w.Local {
			claimed.ID = w.Subject
		}
		return claimed
	case w.Name != "" && w.Email != "":
		return gitd.Person{Name: w.Name, Email: w.Email, ID: w.Subject}
	}
	return gitd.Person{Name: w.Subject, Email: Mailbox(w.Subject) + "@localhost", ID: w.Subject}
}

// Mailbox returns a subject as the part before the @ of an address in a commit.
func Mailbox(subject string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-+", r) {
			return r
		}
		return '-'
	}, subject)
}

// ReadToken returns the token of a request, which is a Bearer token or the password of Basic authentication. Git
// clients can send only the latter. Returns "" if the request has none.
func ReadToken(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest)
	}
	return ""
}

// identify returns the caller of a request. The error says why a token is refused. A request without a token comes
// from nobody.
func (m *Mux) identify(r *http.Request) (Who, error) {
	t := ReadToken(r)
	if t == "" {
		return Who{}, nil
	}
	g, err := m.Verify(t)
	if err != nil {
		return Who{}, err
	}
	return Who{Subject: g.Subject, Repo: g.Repo, Scopes: g.Scopes, Read: g.Read, Write: g.Write, Name: g.Person.Name,
		Email: g.Person.Email, Token: g.ID}, nil
}

// HostName returns a host without its port and without the brackets of an IPv6 address.
func HostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}
