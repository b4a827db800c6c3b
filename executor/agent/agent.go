package agent

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/pattern"
	"github.com/ramus-dev/ramus/tasks/library"
)

// Agent is a coding agent. It runs as a command in the caller's container, one invocation a turn. The prompt goes in, its output is streamed, and
// its changes are committed. The configuration of the server names agents, never a repository.
type Agent struct {
	Name string // lower-case letters, digits and hyphens; if empty, its key in executor.Options.Agents
	// Image to run in, if the engine has images. If it is empty the image is executor.Containers.Image, or the one that the
	// caller's container is made of already.
	Image string
	// Command is an argument vector for the first turn. Resume, if set, is the one for every later turn of the caller, in this
	// container or a new one.
	Command, Resume []string
	// Argument gives the prompt as the last argument. Otherwise it is on standard input.
	Argument bool
	Env      []string // "K=V", added to executor.Options.Env
	// State lists files and folders below the home folder that are the agent's own memory. They are committed to
	// refs/ramus/state/CALLER when a turn ends, and put back before the first turn in a new container.
	State []string
	// Timeout bounds one turn. The default is executor.Options.Timeout.
	Timeout time.Duration
	// Protocol is the protocol between ramus and the agent. [ProtocolText], the default, is one invocation a turn
	// with the prompt as input. With [ProtocolACP] Command starts an agent of the Agent Client Protocol on standard
	// input and output. A session is continued by its id, so Resume is not used.
	Protocol string
	// Permission answers when an agent of ProtocolACP asks for permission, unless Allow lists the kind of tool call ("read",
	// "edit", "execute" …). It is [PermissionAllow], the default, [PermissionAsk] or [PermissionDeny].
	Permission string
	Allow      []string
	// Mode is the session mode to set, if the agent has modes ("plan"). If it is empty the agent's own stays.
	Mode string
	// Auth is the id of the method to authenticate by ("gemini-api-key") if an agent of ProtocolACP requires that.
	// The agent's credentials are in Env. They are not secret, because the door adds the secrets.
	Auth string
	// Browser is [BrowserInteractive] for an agent that gets a browser to drive while it works. That is Playwright's
	// MCP server in a sidecar, as the MCP server "browser" of an agent of ProtocolACP that speaks HTTP, and otherwise
	// at the address in RAMUS_BROWSER_MCP. If it is empty there is none.
	Browser string
	// Output is how many bytes a turn may print. A turn that prints more is taken for a loop and ended. The default
	// is 256 MiB.
	Output int64
	// Checks are the library tasks that are run after the last turn ("lib_run_tests"). A check that finds nothing to run is
	// journalled as skipped.
	Checks []string
}

// Protocols.
const (
	ProtocolText = "text"
	ProtocolACP  = "acp" // https://agentclientprotocol.com
)

// BrowserInteractive gives an agent a browser of its own, see [Agent.Browser].
const BrowserInteractive = "interactive"

// Answers to an agent that asks for permission.
const (
	PermissionAllow = "allow"
	PermissionAsk   = "ask" // a person is asked by the run's Gate
	PermissionDeny  = "deny"
)

// Bounds of prompts.
const (
	maxPrompt = 256 << 10
	// Linux takes no single argument of 128 KiB or more; the names of files are added.
	maxArgument = 112 << 10
	maxOutput   = 256 << 20
)

var validName = pattern.New(`^[a-z0-9]+(?:-[a-z0-9]+)*$`)

// Complete fills in the defaults of agents, by name. It returns an error if one could not run.
func Complete(given map[string]Agent) (map[string]Agent, error) {
	agents := make(map[string]Agent, len(given))
	for name, a := range given {
		if a.Name == "" {
			a.Name = name
		}
		fault := func(format string, args ...any) (map[string]Agent, error) {
			return nil, fmt.Errorf("cannot use agent %q: %w: %s", name, record.ErrInvalid, fmt.Sprintf(format, args...))
		}
		switch {
		case a.Name != name:
			return fault("it calls itself %q", a.Name)
		case !validName.MatchString(name) || len(name) > 40:
			return fault("a name is lower-case letters, digits and single hyphens, at most 40")
		case len(a.Command) == 0:
			return fault("it has no command")
		}
		for i, p := range a.State {
			p = filepath.Clean(strings.TrimPrefix(p, "~/"))
			if !filepath.IsLocal(p) || p == "." || !record.GitCanHold(p) {
				return fault("state %q: want a file or folder below the home folder", a.State[i])
			}
			a.State = slices.Clone(a.State)
			a.State[i] = p
		}
		for _, check := range a.Checks {
			if _, ok := library.Lookup(check); !ok {
				return fault("there is no task %q to check with; `ramus tasks` lists them", check)
			}
		}
		for _, kv := range a.Env {
			if k, _, ok := strings.Cut(kv, "="); !ok || k == "" {
				return fault("environment %q is not NAME=VALUE", kv)
			}
		}
		switch a.Protocol {
		case "", ProtocolText:
			a.Protocol = ProtocolText
		case ProtocolACP:
			if a.Argument || len(a.Resume) > 0 {
				return fault("over ACP the prompt is no argument, and a session goes on by its id: leave prompt and resume out")
			}
		default:
			return fault("protocol %q: want %s or %s", a.Protocol, ProtocolText, ProtocolACP)
		}
		if a.Browser != "" && a.Browser != BrowserInteractive {
			return fault("browser %q: want %s, or nothing", a.Browser, BrowserInteractive)
		}
		switch a.Permission {
		case "":
			a.Permission = PermissionAllow
		case PermissionAllow, PermissionAsk, PermissionDeny:
		default:
			return fault("permission %q: want %s, %s or %s", a.Permission, PermissionAllow, PermissionAsk, PermissionDeny)
		}
		if a.Output <= 0 {
			a.Output = maxOutput
		}
		agents[name] = a
	}
	return agents, nil
}

// Accepts returns an error if a prompt cannot be given to the agent.
func (a Agent) Accepts(text string, files []record.Attachment) error {
	most := a.MaxPrompt()
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%w prompt: it is empty", record.ErrInvalid)
	case len(text) > most:
		return fmt.Errorf("%w prompt: it has %d bytes, at most %d can be given to %s; attach the rest as a file",
			record.ErrInvalid, len(text), most, a.Name)
	case strings.ContainsRune(text, 0):
		return fmt.Errorf("%w prompt: it contains a NUL byte", record.ErrInvalid)
	}
	return acceptFiles(files)
}

// MaxPrompt returns how long one prompt may be, in bytes.
func (a Agent) MaxPrompt() int {
	if a.Argument {
		return maxArgument
	}
	return maxPrompt
}

// Bounds of the files of one prompt.
const (
	MaxFiles     = 32
	MaxFileBytes = 64 << 20 // together
)

func acceptFiles(files []record.Attachment) error {
	if len(files) > MaxFiles {
		return fmt.Errorf("%w prompt: %d files are attached, at most %d can be", record.ErrInvalid, len(files), MaxFiles)
	}
	var total int
	for _, f := range files {
		total += len(f.Content)
	}
	if total > MaxFileBytes {
		return fmt.Errorf("%w prompt: its files have %d MiB together, at most %d can be given", record.ErrInvalid,
			total>>20, MaxFileBytes>>20)
	}
	return nil
}
