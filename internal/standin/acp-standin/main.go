// Acp-standin is a small coding agent that speaks the Agent Client Protocol: it
// asks a model by Anthropic's Messages API and does what the model says, with
// three tools: read, edit and bash. It needs nothing but itself, so demos and tests
// have an agent where none is installed; it is no match for a real one.
//
// Everything comes from its environment, as in a container of ramus:
//
//	ANTHROPIC_BASE_URL    default http://127.0.0.1:7070/model/anthropic
//	ANTHROPIC_API_KEY     default "none": the door takes it away
//	ANTHROPIC_MODEL       default claude-sonnet-4-5
//	ACP_STANDIN_ASK       kinds of tool calls that it asks leave for: "edit,execute"
//	ACP_STANDIN_HOME      where it keeps its sessions; default ~/.acp-standin
//	ACP_STANDIN_IMAGES    "1": it can look at pictures
//	ACP_STANDIN_NO_HTTP   "1": it cannot use MCP servers by HTTP
//	ACP_STANDIN_SCRIPT    "1": no model; it does what it is told line by line
package main

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/acptest"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "acp-standin:", err)
		os.Exit(1)
	}
}

func run() error {
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	a := &acptest.Agent{Name: "acp-standin", Dir: cmp.Or(os.Getenv("ACP_STANDIN_HOME"), filepath.Join(home, ".acp-standin")), HTTP: os.Getenv("ACP_STANDIN_NO_HTTP") == "",
		Images: os.Getenv("ACP_STANDIN_IMAGES") != ""}
	if ask := os.Getenv("ACP_STANDIN_ASK"); ask != "" {
		a.Ask = strings.Split(ask, ",")
	}
	a.Brain = &model{
		url:    strings.TrimSuffix(cmp.Or(os.Getenv("ANTHROPIC_BASE_URL"), "http://127.0.0.1:7070/model/anthropic"), "/"),
		key:    cmp.Or(os.Getenv("ANTHROPIC_API_KEY"), "none"),
		model:  cmp.Or(os.Getenv("ANTHROPIC_MODEL"), "claude-sonnet-4-5"),
		client: &http.Client{Timeout: 10 * time.Minute},
	}
	if os.Getenv("ACP_STANDIN_SCRIPT") == "1" {
		a.Brain = acptest.Script{}
	}
	return a.Serve(os.Stdin, os.Stdout)
}
