package main

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gateway/client"
)

func mcpCommand() command {
	return command{
		name: "mcp", short: "serve the Model Context Protocol on standard input and output, for an assistant",
		long: `
The command connects an assistant that starts MCP servers as commands to a running
ramus server. Its tools submit software tasks to the engineer, start runs, and show
their results. An assistant that supports streamable HTTP can use the server's /mcp
directly, with a token.

  claude mcp add engineer -- ramus mcp
  claude mcp add engineer --env RAMUS_URL=https://… --env RAMUS_TOKEN=… -- ramus mcp

In a container of ramus it is /ramus mcp, and connects to the container's own door.`,
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			c, err := mcpClient(ctx, e)
			if err != nil {
				return err
			}
			defer c.Close()
			return c.MCP(ctx, e.in, e.out, func(err error) { fmt.Fprintf(e.err, "ramus: %s\n", e.safe(err.Error())) })
		},
	}
}

// mcpClient returns a client for the server or, inside a container, for its door.
func mcpClient(ctx context.Context, e *env) (*client.Client, error) {
	if e.getenv("RAMUS") == "1" && e.getenv("RAMUS_URL") == "" && e.dataFlag == "" {
		return client.New("http://"+containers.DoorAddr, ""), nil
	}
	return runningServer(ctx, e)
}
