package environment

import (
	"strings"
	"time"

	"github.com/ramus-dev/ramus/tasks/document"
	"github.com/ramus-dev/ramus/tasks/service"
)

// Path is the name of the file in a repository. It is read from the base, never from a branch under work.
const Path = ".ramus/config.yaml"

// MaxBytes bounds the file.
const MaxBytes = 64 << 10

// File is a checked file. The zero File is one that sets nothing. It is never changed.
type File struct {
	// Image, Dockerfile and Devcontainer say which image containers have. At most one of them is set. Image is a name,
	// the others are paths in the repository.
	Image, Dockerfile, Devcontainer string
	// Setup has the shell commands that run once in a new container before its first command, in order.
	Setup []string
	// Start has the programs that run in a container from then on.
	Start []Start
	// Env is added to the environment of every command.
	Env map[string]string
	// Secrets has the names of the secrets that the repository uses. Their values are on the server only.
	Secrets []string
	// Egress lists the hosts that containers reach. Has("egress") tells an empty list from none.
	Egress []Egress
	Limits Limits
	// Timeout bounds a command that sets none. 0 means unset.
	Timeout time.Duration
	// Dependencies says how dependencies are installed when work begins. Has("dependencies") tells an empty list from
	// none. Without the key they follow from the lock files.
	Dependencies []Dependency
	// Checks must have passed on the last change of a run for it to be verified.
	Checks []Check
	// Agent is the coding agent that gets prompts that name none.
	Agent string
	// Plan has agents make a plan first, which a person approves before they work.
	Plan bool
	// Review is the coding agent that reviews each new pull request. Empty means that none does.
	Review string
	// Merge says where work is merged. Empty means unset.
	Merge Merge
	// Browser lists the files, or patterns of files, with specs of pages that browser_test checks.
	Browser []string
	// Services run next to a container.
	Services []service.Service
	// Keep lists paths of ignored or untracked files and folders that survive the sleep of a container.
	Keep []string

	places map[string]*document.Value
}

// Start is a program of the application that runs in the background.
type Start struct {
	Name string `json:"name"`           // lower-case letters, digits and hyphens
	Run  string `json:"run"`            // shell text
	Dir  string `json:"dir,omitempty"`  // below the work tree; empty means the work tree
	Port int    `json:"port,omitempty"` // at which it listens; 0 means none
}

// Egress is a host that containers reach.
type Egress struct {
	// Host is NAME, or *.NAME for any name below it, with :PORT for a port other than 80 and 443.
	Host string `json:"host"`
	// Header is added to requests at the door's address for the host, /egress/HOST/. "secret:NAME" in a value is
	// replaced by the value of a secret.
	Header map[string]string `json:"header,omitempty"`
}

// Limits bounds a container. 0 means unset. Sizes are in bytes.
type Limits struct {
	Memory   int64   `json:"memory,omitempty"`
	CPUs     float64 `json:"cpus,omitempty"`
	PIDs     int64   `json:"pids,omitempty"`
	Tmp      int64   `json:"tmp,omitempty"`
	FileSize int64   `json:"file_size,omitempty"`
	Output   int64   `json:"output,omitempty"`
	Disk     int64   `json:"disk,omitempty"`
}

// Dependency is a lock file, and how its packages are installed.
type Dependency struct {
	Manager string `json:"manager"`           // one of [Managers]
	Lock    string `json:"lock"`              // path in the repository
	Install string `json:"install,omitempty"` // shell text in the folder of Lock; empty means the manager's usual command
	// Store is the folder of a container in which the manager keeps what it has fetched, absolute or with ~/. Empty
	// means the manager's usual folder.
	Store string `json:"store,omitempty"`
}

// Managers are the package managers whose lock files are known.
var Managers = []string{"pnpm", "npm", "yarn", "go", "cargo", "pip", "uv", "poetry", "bundle", "composer", "maven", "gradle"}

// Check is a check of the work tree. Task is a task of the library with Params. If it is empty, Run is a shell text.
type Check struct {
	Name   string         `json:"name,omitempty"` // of Run: lower-case letters, digits and hyphens
	Task   string         `json:"task,omitempty"`
	Params map[string]any `json:"params,omitempty"`
	Run    string         `json:"run,omitempty"`
}

// Merge says where the work of a repository with an upstream is merged.
type Merge string

// The merge policies.
const (
	MergePush        Merge = "push"         // here and upstream at once
	MergePullRequest Merge = "pull-request" // upstream, by a pull request
	MergeHere        Merge = "here"         // here only
)

// Merges are the merge policies.
var Merges = []string{string(MergePush), string(MergePullRequest), string(MergeHere)}

// Has reports whether the file sets a key. at is its path, such as "limits.memory".
func (f File) Has(at string) bool {
	v := f.places[at]
	return v != nil && v.Kind != document.NullValue
}

// Place returns the line and column of the value at a path, such as "egress.0.host", or of the nearest value above it.
// Without a file both are 0.
func (f File) Place(at string) (line, column int) {
	for {
		if v := f.places[at]; v != nil {
			return v.Line, v.Column
		}
		if at == "" {
			return 0, 0
		}
		at = at[:max(strings.LastIndexByte(at, '.'), 0)]
	}
}
