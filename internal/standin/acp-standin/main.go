// Acp-standin is a small coding agent that speaks the Agent Client Protocol. It calls a model by Anthropic's Messages API and
// performs the model's calls of its three tools, which are read, edit and bash. It has no dependencies, so that demos and tests
// have an agent on a machine without a real one.
//
// All settings are in its environment, as in a container of ramus:
//
//	ANTHROPIC_BASE_URL    default http://127.0.0.1:7070/model/anthropic
//	ANTHROPIC_API_KEY     default "none", which the model door removes
//	ANTHROPIC_MODEL       default claude-sonnet-4-5
//	ACP_STANDIN_ASK       kinds of tool calls for which it asks permission, "edit,execute"
//	ACP_STANDIN_HOME      folder of its sessions; default ~/.acp-standin
//	ACP_STANDIN_IMAGES    "1" enables pictures
//	ACP_STANDIN_NO_HTTP   "1" disables MCP servers by HTTP
//	ACP_STANDIN_STEER     "1" takes prompts into a turn that runs
//	ACP_STANDIN_SCRIPT    "1" performs the lines of a prompt instead of calling a model
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
	a := &acptest.Agent{Name: "acp-standin", Dir: cmp.Or(os.Getenv("ACP_STANDIN_HOME"),
		filepath.Join(home, ".acp-standin")), HTTP: os.Getenv("ACP_STANDIN_NO_HTTP") == "",
		Images: os.Getenv("ACP_STANDIN_IMAGES") != "", Steer: os.Getenv("ACP_STANDIN_STEER") != ""}
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
