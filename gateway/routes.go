package gateway

import (
	"encoding/json"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/route"
)

// workflowBody bounds requests that carry a workflow; the parser has a tighter
// limit of its own, whose message says more.
const workflowBody = 16 << 20

// promptBody bounds what is said to an agent; the executor has a tighter limit
// of its own, but JSON may write a byte as six.
const promptBody = 2 << 20

// routes returns all routes.
func (s *Server) routes() []route.Route {
	// /NAME.git/… and /NAME/…, and the answer to what is no route.
	rest := route.Route{Pattern: "/", Access: route.AccessGit, Summary: "Repositories, for git clients", Body: -1, Handle: s.fallback}
	var table []route.Route
	for _, api := range s.apis {
		table = append(table, api.Routes()...)
	}
	return append(table, rest)
}

// TaskInfo describes a library task.
type TaskInfo struct {
	Name     string          `json:"name"`
	Doc      string          `json:"doc"`
	ReadOnly bool            `json:"read_only,omitempty"`
	Schema   json.RawMessage `json:"schema"` // JSON Schema of the parameters
}

// Checked is the outcome of a check that found nothing; mistakes are a Problem.
type Checked struct {
	ID   string            `json:"id"`
	Repo executor.RepoSpec `json:"repo"`
}
