package main

import (
	"context"
	"fmt"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gateway/client"
)

func mcpCommand() command {
	return command{
		name: "mcp", short: "speak the Model Context Protocol on standard input and output, for an assistant",
		long: `
It connects an assistant that starts MCP servers as commands to a ramus server
that runs: its tools hand software tasks to the engineer, start runs, and show
what became of them. An assistant that speaks streamable HTTP can use the
server's /mcp itself, with a token.

  claude mcp add engineer -- ramus mcp
  claude mcp add engineer --env RAMUS_URL=https://… --env RAMUS_TOKEN=… -- ramus mcp

In a container of ramus, where it is /ramus mcp, it leads to the container's own door.`,
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

// mcpClient is the way to the server, or, in a container, to its door.
func mcpClient(ctx context.Context, e *env) (*client.Client, error) {
	if e.getenv("RAMUS") == "1" && e.getenv("RAMUS_URL") == "" && e.dataFlag == "" {
		return client.New("http://"+containers.DoorAddr, ""), nil
	}
	return standing(ctx, e)
}
