package gateway

import (
	"encoding/json"
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway/route"
)

// workflowBody limits requests with a workflow, in bytes. The parser has a lower limit with a better error message.
const workflowBody = 16 << 20

// promptBody limits requests with a prompt, in bytes. The executor has a lower limit, but JSON may encode one byte as
// six.
const promptBody = 2 << 20

// routes returns all routes. The caller may change the list.
func (s *Server) routes() []route.Route { return slices.Clone(s.table) }

// makeTable returns all routes. It is called once, because some parts set themselves up by it.
func (s *Server) makeTable() []route.Route {
	// rest serves /NAME.git/… and /NAME/…, and answers requests that no other route serves.
	rest := route.Route{Pattern: "/", Access: route.AccessGit, Summary: "Repositories, for git clients", Body: -1,
		Handle: s.fallback}
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

// Checked is the answer to a check without mistakes. Mistakes are returned as a Problem.
type Checked struct {
	ID   string            `json:"id"`
	Repo executor.RepoSpec `json:"repo"`
}
