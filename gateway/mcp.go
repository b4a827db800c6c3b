package gateway

import (
	"net/http"

	"github.com/ramus-dev/ramus/executor"
)

// MCPPath is where MCP is served, to people's programs and, at a container's door, to agents.
const MCPPath = "/mcp"

// MCPDoor serves MCP to the agent in a container: the tools of the policy of its run, and the
// library tasks, which run beside it in its own container.
func MCPDoor(x *executor.Executor) func(executor.Visitor) http.Handler { panic("not built") }
