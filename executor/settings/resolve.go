package settings

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
	"github.com/ramus-dev/ramus/tasks/environment"
	"github.com/ramus-dev/ramus/tasks/rules"
	"github.com/ramus-dev/ramus/tasks/service"
)

// Settings are the effective values of a repository. They are never changed.
type Settings struct {
	Repo string
	// Base is the branch whose file is in effect, and Commit its tip. From is the commit whose file is in effect: Commit,
	// an earlier one if the file of Commit has a mistake, or empty if there is no file.
	Base         string
	Commit, From gitd.Hash

	// Image is a name. Dockerfile and Devcontainer are paths in the base of files that describe an image, if the server
	// allows that. Image is then the server's.
	Image, Dockerfile, Devcontainer string
	// Container describes an image of the base's files, and is nil if there is none. If its image is built, Image is the server's.
	Container *Container
	Setup     []string
	Start     []environment.Start
	// Env is the repository's own part of the environment, "K=V", in order.
	Env     []string
	Secrets []string // names, also of those in headers
	Egress  []Host
	Limits  containers.Limits
	Timeout time.Duration
	// Dependencies is nil if they follow from the lock files, and empty if none are installed.
	Dependencies []environment.Dependency
	// Checks is nil if the file has none. An agent's own are used then.
	Checks   []environment.Check
	Agent    string // empty if the file names none
	Plan     bool
	Review   string // the agent that reviews new pull requests; empty if none does
	Merge    environment.Merge
	Browser  []string
	Services []service.Service
	Keep     []string
	// Rules are those of the file rules.Path of Commit.
	Rules rules.Set

	// Values has every value with its origin, in the order of the documentation.
	Values []Value
	// Warnings name the values that the server does not allow, each as FILE:LINE:COLUMN: TEXT.
	Warnings []string
	// Mistake has the mistakes of the file of Commit, and is empty if there is none.
	Mistake string
}

// CommandEnv returns the environment that the repository adds to each command. A variable with the name of a secret has
// a placeholder, in place of which the door puts the value into requests for the secret's hosts.
func (s Settings) CommandEnv() []string {
	env := slices.Clone(s.Env)
	for _, name := range s.Secrets {
		env = append(env, name+"=secret:"+name)
	}
	return env
}

// Reachable returns the hosts that containers reach, and those of them that may lead to addresses that are not public.
func (s Settings) Reachable() (hosts, private []string) {
	for _, h := range s.Egress {
		hosts = append(hosts, h.Host)
		if h.Private {
			private = append(private, h.Host)
		}
	}
	return hosts, private
}

// MistakeWords returns the mistakes of the file, and the file that is used instead.
func (s Settings) MistakeWords() string {
	used := "none is used"
	if s.From != "" {
		used = fmt.Sprintf("that of %.12s is used", s.From)
	}
	return fmt.Sprintf("%s; until it is corrected, %s", s.Mistake, used)
}

// Value is one value with its origin.
type Value struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	// Origin is FILE:LINE:COLUMN for a value of the repository, "server" for one of the server's configuration, and
	// "default".
	Origin string `json:"origin"`
	// Note tells why the value is not the one that the repository asks for.
	Note string `json:"note,omitempty"`
}

// Origins of values that are not from a repository's file.
const (
	OriginDefault = "default"
	OriginServer  = "server"
)

// resolver makes Settings.
type resolver struct {
	b     Bounds
	allow Allow
	f     environment.File
	s     *Settings
}

// Resolve returns the settings of a repository. f is its file.
func Resolve(b Bounds, repo string, f environment.File) Settings {
	s := Settings{Repo: repo}
	r := &resolver{b: b, allow: b.allow(repo), f: f, s: &s}
	r.image()
	r.addOwn("setup", s.setup(f), len(f.Setup) > 0)
	s.Start = f.Start
	r.addOwn("start", orNone(f.Start), len(f.Start) > 0)
	r.env()
	r.egress()
	r.secrets()
	r.limits()
	r.timeout()
	s.Dependencies = f.Dependencies
	if f.Has("dependencies") {
		s.Dependencies = orNone(f.Dependencies)
		r.addOwn("dependencies", s.Dependencies, true)
	} else {
		r.add("dependencies", "from the lock files", OriginDefault, "")
	}
	r.checks()
	s.Agent = r.agent("agent", r.f.Agent)
	s.Plan = f.Plan
	r.addOwn("plan", s.Plan, false)
	s.Review = r.agent("review", r.f.Review)
	r.merge(repo)
	s.Browser = f.Browser
	if len(f.Browser) > 0 {
		r.addOwn("browser", f.Browser, true)
	} else {
		r.add("browser", ".ramus/browser/*.yaml", OriginDefault, "")
	}
	r.services()
	s.Keep = f.Keep
	r.addOwn("keep", orNone(f.Keep), len(f.Keep) > 0)
	return s
}

// setup sets the setup commands.
func (s *Settings) setup(f environment.File) []string {
	s.Setup = f.Setup
	return orNone(f.Setup)
}

// orNone returns an empty list for nil, which JSON shows as [].
func orNone[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (r *resolver) add(key string, value any, origin, note string) {
	r.s.Values = append(r.s.Values, Value{Key: key, Value: value, Origin: origin, Note: note})
}

// addOwn adds a value that only a repository's file sets.
func (r *resolver) addOwn(key string, value any, set bool) {
	origin := OriginDefault
	if set || r.f.Has(key) {
		origin = r.at(key)
	}
	r.add(key, value, origin, "")
}

// at returns the position of a value in the file.
func (r *resolver) at(key string) string {
	line, column := r.f.Place(key)
	return fmt.Sprintf("%s:%d:%d", environment.Path, line, column)
}

// server returns the origin of a value of the server.
func (r *resolver) server(key string) string {
	if r.b.Configured[key] {
		return OriginServer
	}
	return OriginDefault
}

// refuse tells that the server does not allow a value.
func (r *resolver) refuse(key, format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	r.s.Warnings = append(r.s.Warnings, r.at(key)+": "+text)
	return text
}

func (r *resolver) image() {
	s, f := r.s, r.f
	s.Image = r.b.Image
	built, key := f.Dockerfile, "dockerfile"
	if f.Devcontainer != "" {
		built, key = f.Devcontainer, "devcontainer"
	}
	switch {
	case r.b.Image == "" && (f.Image != "" || built != ""):
		if built != "" {
			f.Image = built
		} else {
			key = "image"
		}
		r.add("image", "", OriginServer, r.refuse(key, "%s is not used: the engine of this server has no images", f.Image))
	case built != "" && !r.allow.Build:
		r.add("image", s.Image, r.server("image"),
			r.refuse(key, "%s is not built: the server's `allow.build` does not allow it", built))
	case built != "":
		s.Dockerfile, s.Devcontainer = f.Dockerfile, f.Devcontainer
		r.add(key, built, r.at(key), "")
	case f.Image == "" || f.Image == r.b.Image:
		origin := r.server("image")
		if f.Image != "" {
			origin = r.at("image")
		}
		r.add("image", s.Image, origin, "")
	case allowsImage(r.allow.Images, f.Image):
		s.Image = f.Image
		r.add("image", s.Image, r.at("image"), "")
	default:
		r.add("image", s.Image, r.server("image"),
			r.refuse("image", "the image %s is not used: the server's `allow.images` does not list it", f.Image))
	}
}

// env merges the server's environment with the repository's. The server's own variables stay.
func (r *resolver) env() {
	server := make(map[string]bool)
	for _, kv := range r.b.Env {
		name, value, _ := strings.Cut(kv, "=")
		server[name] = true
		r.add("env."+name, value, OriginServer, "")
	}
	for _, name := range slices.Sorted(maps.Keys(r.f.Env)) {
		key := "env." + name
		if server[name] {
			r.refuse(key, "the server sets %s", name)
			continue
		}
		r.s.Env = append(r.s.Env, name+"="+r.f.Env[name])
		r.add(key, r.f.Env[name], r.at(key), "")
	}
}

func (r *resolver) egress() {
	s := r.s
	if !r.f.Has("egress") {
		s.Egress = r.b.Egress
		r.add("egress", hostNames(s.Egress), r.server("egress"), "")
		return
	}
	may := slices.Concat(r.b.Egress, r.allow.Egress)
	s.Egress = []Host{}
	var refused []string
	for i, e := range r.f.Egress {
		by, ok := covering(may, e.Host)
		if !ok {
			r.refuse(fmt.Sprintf("egress.%d", i),
				"containers may not reach %s: neither the server's `egress` nor its `allow.egress` lists it", e.Host)
			refused = append(refused, e.Host)
			continue
		}
		h := Host{Egress: e, Private: by.Private}
		if len(by.Header) > 0 && len(e.Header) == 0 { // the server's header belongs to its host
			h.Header, h.Trusted = by.Header, by.Trusted
		}
		s.Egress = append(s.Egress, h)
	}
	note := ""
	if len(refused) > 0 {
		note = "refused: " + strings.Join(refused, ", ")
	}
	r.add("egress", hostNames(s.Egress), r.at("egress"), note)
}

// hostNames returns the names of hosts, for people. Headers are shown without their values.
func hostNames(list []Host) []string {
	names := []string{}
	for _, h := range list {
		name := h.Host
		if len(h.Header) > 0 {
			name += " (with " + strings.Join(slices.Sorted(maps.Keys(h.Header)), ", ") + ")"
		}
		names = append(names, name)
	}
	return names
}

// secrets sets the names of the secrets that the repository uses.
func (r *resolver) secrets() {
	names := slices.Clone(r.f.Secrets)
	for _, h := range r.s.Egress {
		for _, value := range h.Header {
			for _, m := range environment.SecretRef.FindAllStringSubmatch(value, -1) {
				names = append(names, m[1])
			}
		}
	}
	slices.Sort(names)
	r.s.Secrets = slices.Compact(names)
	r.addOwn("secrets", orNone(r.s.Secrets), len(r.f.Secrets) > 0)
}

func (r *resolver) limits() {
	have := r.b.Limits.WithDefaults()
	f, most := r.f.Limits, r.allow.Limits
	l := have
	l.Memory = bound(r, "limits.memory", have.Memory, f.Memory, most.Memory, size)
	l.CPUs = bound(r, "limits.cpus", have.CPUs, f.CPUs, most.CPUs, number)
	l.PIDs = bound(r, "limits.pids", have.PIDs, f.PIDs, most.PIDs, number)
	l.Tmp = bound(r, "limits.tmp", have.Tmp, f.Tmp, most.Tmp, size)
	l.FileSize = bound(r, "limits.file_size", have.FileSize, f.FileSize, most.FileSize, size)
	l.Output = bound(r, "limits.output", have.Output, f.Output, most.Output, size)
	l.Disk = bound(r, "limits.disk", have.Disk, f.Disk, most.Disk, size)
	r.s.Limits = l.WithDefaults()
}

func size[T int64](n T) any {
	if n < 0 {
		return "none"
	}
	return bytesize.Text(int64(n))
}

func number[T int64 | float64](n T) any { return n }

// bound returns the value that a repository asks for, or the largest that it may have. A negative value of the server
// means no limit.
func bound[T int64 | float64](r *resolver, key string, have, asked, most T, show func(T) any) T {
	if asked == 0 {
		r.add(key, show(have), r.server(key), "")
		return have
	}
	if most = max(most, have); have >= 0 && asked > most {
		note := r.refuse(key, "%v is asked for; the server allows %v", show(asked), show(most))
		r.add(key, show(most), r.at(key), note)
		return most
	}
	r.add(key, show(asked), r.at(key), "")
	return asked
}

func (r *resolver) timeout() {
	have, asked := r.b.Timeout, r.f.Timeout
	switch {
	case asked == 0:
		r.s.Timeout = have
		r.add("timeout", have.String(), r.server("timeout"), "")
	case have > 0 && asked > have:
		r.s.Timeout = have
		r.add("timeout", have.String(), r.server("timeout"),
			r.refuse("timeout", "%v is asked for; the server allows %v", asked, have))
	default:
		r.s.Timeout = asked
		r.add("timeout", asked.String(), r.at("timeout"), "")
	}
}

// checks leaves out the checks by tasks that do not exist.
func (r *resolver) checks() {
	for i, c := range r.f.Checks {
		if c.Task != "" && r.b.Tasks != nil && !slices.Contains(r.b.Tasks, c.Task) {
			r.refuse(fmt.Sprintf("checks.%d", i), "there is no task %s; `ramus tasks` lists them", c.Task)
			continue
		}
		r.s.Checks = append(r.s.Checks, c)
	}
	if len(r.s.Checks) > 0 {
		r.addOwn("checks", r.s.Checks, true)
	} else {
		r.add("checks", "those of the agent", OriginDefault, "")
	}
}

// agent resolves a key that names an agent.
func (r *resolver) agent(key, name string) string {
	switch {
	case name == "":
		r.add(key, "", OriginDefault, "")
	case !slices.Contains(r.b.Agents, name):
		r.add(key, "", OriginDefault,
			r.refuse(key, "the server has no agent %s; it has %s", name, strings.Join(r.b.Agents, ", ")))
	default:
		r.add(key, name, r.at(key), "")
		return name
	}
	return ""
}

func (r *resolver) merge(repo string) {
	server, asked := r.b.Repos[repo].Merge, r.f.Merge
	switch {
	case server != "" && asked != "" && asked != server:
		r.s.Merge = server
		r.add("merge", server, OriginServer,
			r.refuse("merge", "%s is asked for; the server's `repos.%s.merge` says %s", asked, repo, server))
	case server != "":
		r.s.Merge = server
		r.add("merge", server, OriginServer, "")
	default:
		r.s.Merge = asked
		r.addOwn("merge", asked, asked != "")
	}
}

// services takes over the services whose images the server allows. An engine without images runs their commands.
func (r *resolver) services() {
	if len(r.f.Services) == 0 {
		r.addOwn("services", []string{}, false)
		return
	}
	for _, v := range r.f.Services {
		key := "services." + v.Name
		if v.Image != "" && !r.b.AllowsImage(r.s.Repo, v.Image) {
			r.add(key, "", OriginServer,
				r.refuse(key, "the image %s is not used: the server's `allow.images` does not list it", v.Image))
			continue
		}
		r.s.Services = append(r.s.Services, v)
		r.add(key, v, r.at(key), "")
	}
}
