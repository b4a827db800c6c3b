package gateway

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Health is what /health tells.
type Health struct {
	Status  string         `json:"status"` // ok
	Version string         `json:"version"`
	Engine  string         `json:"engine"`
	Limits  HealthLimits   `json:"limits"`
	Runs    executor.Stats `json:"runs"`
}

// HealthLimits are the borders a caller can run into.
type HealthLimits struct {
	Capacity   int     `json:"capacity"` // containers at once
	Memory     int64   `json:"memory"`   // bytes a container; 0: the engine's default
	CPUs       float64 `json:"cpus"`
	PIDs       int64   `json:"pids"`
	TimeoutMS  int64   `json:"timeout_ms"`     // of a command; 0: the executor's default
	RunLimitMS int64   `json:"run_timeout_ms"` // of a run
	Streams    int     `json:"streams"`        // open event streams
}

func (s *Server) health(c *route.Call) error {
	stats := s.Executor.Stats()
	limits := s.Executor.Limits
	return c.Reply(Health{
		Status: "ok", Version: s.Version, Engine: s.Engine, Runs: stats,
		Limits: HealthLimits{
			Capacity: stats.Capacity, Memory: limits.Memory, CPUs: limits.CPUs, PIDs: limits.PIDs,
			TimeoutMS: s.Executor.Timeout.Milliseconds(), RunLimitMS: s.Executor.RunTimeout.Milliseconds(),
			Streams: s.Streams,
		},
	})
}

func (s *Server) scrape(c *route.Call) error {
	s.metrics.handler.ServeHTTP(c.W, c.R)
	return nil
}

func (s *Server) jwks(c *route.Call) error { return c.ReplyRaw(s.Git.JWKS()) }

// allowedSigners answers with no line where commits are not signed.
func (s *Server) allowedSigners(c *route.Call) error {
	c.W.Header().Set("Content-Type", route.MediaText)
	if s.Git.Signer == nil {
		return nil
	}
	_, err := io.WriteString(c.W, s.Git.Signer.AllowedSigner(s.Executor.Bot))
	return err
}

func (s *Server) openapi(c *route.Call) error        { return c.ReplyRaw(s.spec) }
func (s *Server) workflowSchema(c *route.Call) error { return c.ReplyRaw(executor.WorkflowSchema()) }

func (s *Server) whoami(c *route.Call) error { return c.Reply(c.Who) }

func (s *Server) library(c *route.Call) error {
	list := []TaskInfo{}
	for _, t := range executor.Library() {
		list = append(list, TaskInfo{t.Name, t.Doc, t.ReadOnly, t.Schema})
	}
	return c.Reply(list)
}

type checkQuery struct {
	Name string `json:"name,omitempty" jsonschema:"what the file is called in messages"`
	Repo string `json:"repo,omitempty" jsonschema:"the repository whose base has the sub-workflows"`
}

func (s *Server) check(c *route.Call) error {
	var q checkQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Repo != "" {
		if _, err := s.findRepo(c, q.Repo); err != nil {
			return err
		}
		if err := s.seesBase(c.R.Context(), c.Who, q.Repo, ""); err != nil {
			return err
		}
	}
	lift := c.LimitReading()
	text, err := io.ReadAll(c.R.Body)
	lift()
	if err != nil {
		return err
	}
	if q.Name == "" {
		q.Name = "workflow"
	}
	w, err := s.Executor.Check(c.R.Context(), q.Name, text, q.Repo, nil)
	if err != nil {
		return err
	}
	return c.Reply(Checked{w.ID, w.Repo})
}

// NewToken asks for a token.
type NewToken struct {
	Subject string   `json:"subject" jsonschema:"who will use it"`
	Repo    string   `json:"repo,omitempty" jsonschema:"the one repository it is for; empty or * is every one"`
	Scopes  []string `json:"scopes" jsonschema:"of read, write, admin, metrics"`
	// Read and Write limit the refs, see gitd.Grant. Write empty: with the scope write or
	// admin those of Read, or else all branches and tags; otherwise none.
	Read   []string `json:"read,omitempty"`
	Write  []string `json:"write,omitempty"`
	Force  bool     `json:"force,omitempty"`
	Delete bool     `json:"delete,omitempty"`
	// Seconds until it ends; 0 means 30 days, the most is 10 years.
	Seconds int64 `json:"seconds,omitempty"`
}

// Token is a new token with what it stands for.
type Token struct {
	Token string     `json:"token"`
	Grant gitd.Grant `json:"grant"`
}

const (
	tokenLife    = 30 * 24 * time.Hour
	tokenLongest = 10 * 366 * 24 * time.Hour
)

func (s *Server) newToken(c *route.Call) error {
	var n NewToken
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	g := gitd.Grant{Subject: n.Subject, Repo: n.Repo, Scopes: n.Scopes, Read: n.Read, Write: n.Write, Force: n.Force, Delete: n.Delete}
	if g.Repo == "" {
		g.Repo = "*"
	}
	life := time.Duration(n.Seconds) * time.Second
	switch {
	case g.Subject == "":
		return route.NewProblem(route.KindInvalid, "a token needs a subject")
	case n.Seconds < 0 || n.Seconds > int64(tokenLongest/time.Second):
		return route.NewProblem(route.KindInvalid, "a token lives between one second and ten years")
	case life == 0:
		life = tokenLife
	}
	if err := checkScopes(g.Scopes); err != nil {
		return err
	}
	if g.Repo != "*" {
		if _, err := s.Git.Repo(g.Repo); err != nil {
			return err
		}
	}
	if err := narrowRefs(&g); err != nil {
		return err
	}
	g.Expires = s.Now().Add(life).Truncate(time.Second)
	signed, err := s.Git.Sign(g)
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, Token{signed, g})
}

func checkScopes(scopes []string) error {
	if len(scopes) == 0 {
		return route.NewProblem(route.KindInvalid, "a token needs scopes: read, write, admin, metrics")
	}
	for _, scope := range scopes {
		if !slices.Contains(gitd.Scopes(), scope) {
			return route.NewProblem(route.KindInvalid, "unknown scope %q: want read, write, admin or metrics", scope)
		}
	}
	return nil
}

// narrowRefs refuses refs that the scopes do not let a token use, and fills in those that
// nobody named: a token that writes may change what it may see.
func narrowRefs(g *gitd.Grant) error {
	switch {
	case len(g.Write) > 0 && !g.Has(gitd.ScopeWrite):
		return route.NewProblem(route.KindInvalid, "a token without the scope write changes no refs, also not %.200q", g.Write[0]).
			WithHint("`--scope write` lets it push; `--ref-read` bounds what a token may see")
	case len(g.Read) > 0 && !g.Has(gitd.ScopeRead):
		return route.NewProblem(route.KindInvalid, "a token without the scope read sees no refs, also not %.200q", g.Read[0])
	case len(g.Write) > 0:
	case len(g.Read) > 0 && g.Has(gitd.ScopeWrite):
		for _, ref := range g.Read { // what ramus itself writes only a person may name
			if !strings.HasPrefix(ref, "refs/ramus/") {
				g.Write = append(g.Write, ref)
			}
		}
	default:
		g.Write = usualRefs(g.Scopes)
	}
	return nil
}

// usualRefs are the refs that a token with such scopes may change, where nobody says more.
func usualRefs(scopes []string) []string {
	if (gitd.Grant{Scopes: scopes}).Has(gitd.ScopeWrite) {
		return []string{"refs/heads/*", "refs/tags/*"}
	}
	return nil
}

// Reindexed tells how many runs the new index has.
type Reindexed struct {
	Runs int `json:"runs"`
}

func (s *Server) prune(c *route.Call) error {
	var p executor.Pruning
	if err := c.ReadJSON(&p); err != nil {
		return err
	}
	list, err := s.Executor.Prune(c.R.Context(), p)
	if err != nil {
		return err
	}
	if list == nil {
		list = []executor.Pruned{}
	}
	return c.Reply(list)
}

func (s *Server) reindex(c *route.Call) error {
	n, err := s.Executor.Reindex(c.R.Context())
	if err != nil {
		return err
	}
	return c.Reply(Reindexed{n})
}
