package gateway

import (
	"encoding/json"
	"io"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/quota"
	"github.com/ramus-dev/ramus/executor/seal"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// aboutAPI serves information about the server.
type aboutAPI struct {
	Executor *executor.Executor
	Git      *gitd.Server
	// Records signs the records about people. Nil means Git.Signer.
	Records *gitd.CommitSigner
	find    *lookup.Lookup
	// Version and Engine are the names of the program's version and of the container engine.
	Version, Engine string
	Streams         int
	Leader          *standby.Leader // nil if no stand-by can follow
	metrics         *metrics
	spec            func() []byte // the OpenAPI document
}

// Routes returns the routes of the server itself.
func (api *aboutAPI) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/health", Access: route.AccessPublic,
			Summary: "Version, engine, limits and the work in progress", Response: Health{}, Handle: api.health},
		{Method: "GET", Pattern: "/metrics", Access: route.AccessMetrics, Summary: "Numbers for Prometheus",
			Media: route.MediaText, Handle: api.scrape},
		{Method: "GET", Pattern: "/.well-known/jwks.json", Access: route.AccessPublic,
			Summary: "The key that signs grants (RFC 7517)", Response: json.RawMessage{}, Handle: api.jwks},
		{Method: "GET", Pattern: "/.well-known/allowed_signers", Access: route.AccessPublic,
			Summary: "Who signs commits here: a file for git's gpg.ssh.allowedSignersFile", Media: route.MediaText,
			Handle: api.allowedSigners},
		{Method: "GET", Pattern: "/api/openapi.json", Access: route.AccessPublic, Summary: "This document",
			Response: json.RawMessage{}, Handle: api.openapi},
		{Method: "GET", Pattern: "/api/schema/workflow", Access: route.AccessPublic,
			Summary: "The JSON Schema of workflow files", Response: json.RawMessage{}, Handle: api.workflowSchema},
		{Method: "GET", Pattern: "/api/whoami", Access: route.AccessRead, Summary: "The subject and the rights of the token",
			Response: route.Who{}, Handle: api.whoami},
		{Method: "GET", Pattern: "/api/library", Access: route.AccessRead,
			Summary: "The task library with the schemas of its parameters", Response: []TaskInfo{}, Handle: api.library},
		{Method: "POST", Pattern: "/api/check", Access: route.AccessRead,
			Summary: "Check a workflow file, which is the body", Query: checkQuery{}, Response: Checked{},
			Body: workflowBody, Handle: api.check},
	}
}

// Health is the answer of /health. It names no person, repository or caller, because everybody may read it.
type Health struct {
	// Status is HealthOK, or HealthDegraded if something in Problems does not work.
	Status   string         `json:"status"`
	Problems []string       `json:"problems,omitempty"`
	Version  string         `json:"version"`
	Engine   string         `json:"engine"`
	Limits   HealthLimits   `json:"limits"`
	Runs     executor.Stats `json:"runs"`
	// Epoch is the number of servers that used these data one after the other, and EpochID distinguishes two with one
	// number. Role is server, standby for a process that follows another server, or fenced for one whose place another
	// server took, with the epoch of that one.
	Epoch   uint64 `json:"epoch,omitempty"`
	EpochID string `json:"epoch_id,omitempty"`
	Role    string `json:"role,omitempty"`
	// Lag is the time by which a stand-by is behind, in seconds.
	Lag float64 `json:"lag_seconds,omitempty"`
}

// Values of Health.Status.
const (
	HealthOK       = "ok"
	HealthDegraded = "degraded"
)

// HealthLimits are the server's limits that a caller can reach. A repository's own configuration may have others.
type HealthLimits struct {
	Capacity   int     `json:"capacity"`       // containers at once
	Memory     int64   `json:"memory"`         // bytes a container; 0 for the engine's default
	CPUs       float64 `json:"cpus"`           // of a container; 0 for the engine's default
	PIDs       int64   `json:"pids"`           // of a container; 0 for the engine's default
	TimeoutMS  int64   `json:"timeout_ms"`     // of a command that sets none
	RunLimitMS int64   `json:"run_timeout_ms"` // of a run
	Streams    int     `json:"streams"`        // open event streams
	// Person and Repo are the quotas of everybody and of every repository without exceptions of their own.
	Person quota.Rule `json:"person"`
	Repo   quota.Rule `json:"repo"`
}

func (api *aboutAPI) health(c *route.Call) error {
	stats, now := api.Executor.Stats(), api.Executor.Applied()
	limits := now.Limits
	h := Health{
		Status: HealthOK, Version: api.Version, Engine: api.Engine, Runs: stats,
		Epoch: api.Leader.Epoch().Number, EpochID: api.Leader.Epoch().ID, Role: standby.RoleServer,
		Limits: HealthLimits{
			Capacity: stats.Capacity, Memory: limits.Memory, CPUs: limits.CPUs, PIDs: limits.PIDs,
			TimeoutMS: now.Timeout.Milliseconds(), RunLimitMS: now.RunTimeout.Milliseconds(),
			Streams: api.Streams, Person: now.Quotas.Person, Repo: now.Quotas.Repo,
		},
	}
	if stats.EngineAway {
		h.Status, h.Problems = HealthDegraded,
			append(h.Problems, "the container engine has not answered since the start; runs wait for it")
	}
	return c.Reply(h)
}

func (api *aboutAPI) scrape(c *route.Call) error {
	api.metrics.handler.ServeHTTP(c.W, c.R)
	return nil
}

func (api *aboutAPI) jwks(c *route.Call) error { return c.ReplyRaw(api.Git.JWKS()) }

// allowedSigners answers with an allowed_signers file. Without a key for
// commits, it has only those of the records about people and of seals.
func (api *aboutAPI) allowedSigners(c *route.Call) error {
	c.W.Header().Set("Content-Type", route.MediaText)
	for _, signer := range []*gitd.CommitSigner{api.Git.Signer, api.Records} {
		if signer == nil {
			continue
		}
		if _, err := io.WriteString(c.W, signer.AllowedSigner(api.Executor.Bot)); err != nil {
			return err
		}
	}
	_, err := io.WriteString(c.W, api.Executor.Chain.Also.AllowedSigners(seal.Principal))
	return err
}

func (api *aboutAPI) openapi(c *route.Call) error { return c.ReplyRaw(api.spec()) }
func (api *aboutAPI) workflowSchema(c *route.Call) error {
	return c.ReplyRaw(executor.WorkflowSchema())
}

func (api *aboutAPI) whoami(c *route.Call) error { return c.Reply(c.Who) }

func (api *aboutAPI) library(c *route.Call) error {
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

func (api *aboutAPI) check(c *route.Call) error {
	var q checkQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	if q.Repo != "" {
		if _, err := api.find.Repo(c.Who, q.Repo); err != nil {
			return err
		}
		if err := api.find.CheckBase(c.R.Context(), c.Who, q.Repo, ""); err != nil {
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
	w, err := api.Executor.Check(c.R.Context(), q.Name, text, q.Repo, nil)
	if err != nil {
		return err
	}
	return c.Reply(Checked{w.ID, w.Repo})
}
