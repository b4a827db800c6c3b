package gateway

import (
	"encoding/json"
	"net/http"

	"github.com/ramus-dev/ramus/executor"
)

// ToolsPath is where a container's door shows the catalog.
const ToolsPath = "/tools"

// ToolDoor shows an agent its tools: the catalog of the policy that its run's
// journal holds, which was decided before the agent was started. A run without
// one came by no gate, and has none.
func ToolDoor(x *executor.Executor) func(executor.Visitor) http.Handler {
	return func(v executor.Visitor) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tools := []Tool{}
			if run := v.Run(); run.ID != "" {
				if d, known := policyOf(r.Context(), x, run.Name()); known {
					tools = Catalog(d.Policy)
				}
			}
			b, err := json.Marshal(tools)
			if err != nil {
				http.Error(w, "ramus: cannot encode the tools", http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(append(b, '\n')) // the container may have gone
		})
	}
}
