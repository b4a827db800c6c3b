package gateway

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
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

func (c *call) health() error {
	stats := c.Executor.Stats()
	limits := c.Executor.Limits
	return c.reply(Health{
		Status: "ok", Version: c.Version, Engine: c.Engine, Runs: stats,
		Limits: HealthLimits{
			Capacity: stats.Capacity, Memory: limits.Memory, CPUs: limits.CPUs, PIDs: limits.PIDs,
			TimeoutMS: c.Executor.Timeout.Milliseconds(), RunLimitMS: c.Executor.RunTimeout.Milliseconds(),
			Streams: c.Streams,
		},
	})
}

func (c *call) scrape() error {
	c.metrics.handler.ServeHTTP(c.W, c.R)
	return nil
}

func (c *call) jwks() error { return c.raw(c.Git.JWKS()) }

// allowedSigners answers with no line where commits are not signed.
func (c *call) allowedSigners() error {
	c.W.Header().Set("Content-Type", mediaText)
	if c.Git.Signer == nil {
		return nil
	}
	_, err := io.WriteString(c.W, c.Git.Signer.AllowedSigner(c.Executor.Bot))
	return err
}

func (c *call) openapi() error        { return c.raw(c.spec) }
func (c *call) workflowSchema() error { return c.raw(executor.WorkflowSchema()) }

func (c *call) raw(b []byte) error {
	c.W.Header().Set("Content-Type", "application/json")
	_, err := c.W.Write(b)
	return err
}

func (c *call) whoami() error { return c.reply(c.Who) }

func (c *call) library() error {
	list := []TaskInfo{}
	for _, t := range executor.Library() {
		list = append(list, TaskInfo{t.Name, t.Doc, t.ReadOnly, t.Schema})
	}
	return c.reply(list)
}

type checkQuery struct {
	Name string `json:"name,omitempty" jsonschema:"what the file is called in messages"`
	Repo string `json:"repo,omitempty" jsonschema:"the repository whose base has the sub-workflows"`
}

func (c *call) check() error {
	var q checkQuery
	if err := c.query(&q); err != nil {
		return err
	}
	if q.Repo != "" {
		if _, err := c.findRepo(q.Repo); err != nil {
			return err
		}
		if err := c.seesBase(c.R.Context(), c.Who, q.Repo, ""); err != nil {
			return err
		}
	}
	lift := c.hurry()
	text, err := io.ReadAll(c.R.Body)
	lift()
	if err != nil {
		return err
	}
	if q.Name == "" {
		q.Name = "workflow"
	}
	w, err := c.Executor.Check(c.R.Context(), q.Name, text, q.Repo, nil)
	if err != nil {
		return err
	}
	return c.reply(Checked{w.ID, w.Repo})
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

func (c *call) newToken() error {
	var n NewToken
	if err := c.body(&n); err != nil {
		return err
	}
	g := gitd.Grant{Subject: n.Subject, Repo: n.Repo, Scopes: n.Scopes, Read: n.Read, Write: n.Write, Force: n.Force, Delete: n.Delete}
	if g.Repo == "" {
		g.Repo = "*"
	}
	life := time.Duration(n.Seconds) * time.Second
	switch {
	case g.Subject == "":
		return problem(KindInvalid, "a token needs a subject")
	case n.Seconds < 0 || n.Seconds > int64(tokenLongest/time.Second):
		return problem(KindInvalid, "a token lives between one second and ten years")
	case life == 0:
		life = tokenLife
	}
	if err := checkScopes(g.Scopes); err != nil {
		return err
	}
	if g.Repo != "*" {
		if _, err := c.Git.Repo(g.Repo); err != nil {
			return err
		}
	}
	if err := narrowRefs(&g); err != nil {
		return err
	}
	g.Expires = c.Now().Add(life).Truncate(time.Second)
	signed, err := c.Git.Sign(g)
	if err != nil {
		return err
	}
	return c.replyStatus(http.StatusCreated, Token{signed, g})
}

func checkScopes(scopes []string) error {
	if len(scopes) == 0 {
		return problem(KindInvalid, "a token needs scopes: read, write, admin, metrics")
	}
	for _, scope := range scopes {
		if !slices.Contains(gitd.Scopes(), scope) {
			return problem(KindInvalid, "unknown scope %q: want read, write, admin or metrics", scope)
		}
	}
	return nil
}

// narrowRefs refuses refs that the scopes do not let a token use, and fills in those that
// nobody named: a token that writes may change what it may see.
func narrowRefs(g *gitd.Grant) error {
	switch {
	case len(g.Write) > 0 && !g.Has(gitd.ScopeWrite):
		return problem(KindInvalid, "a token without the scope write changes no refs, also not %.200q", g.Write[0]).
			withHint("`--scope write` lets it push; `--ref-read` bounds what a token may see")
	case len(g.Read) > 0 && !g.Has(gitd.ScopeRead):
		return problem(KindInvalid, "a token without the scope read sees no refs, also not %.200q", g.Read[0])
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

func (c *call) prune() error {
	var p executor.Pruning
	if err := c.body(&p); err != nil {
		return err
	}
	list, err := c.Executor.Prune(c.R.Context(), p)
	if err != nil {
		return err
	}
	if list == nil {
		list = []executor.Pruned{}
	}
	return c.reply(list)
}

func (c *call) reindex() error {
	n, err := c.Executor.Reindex(c.R.Context())
	if err != nil {
		return err
	}
	return c.reply(Reindexed{n})
}
