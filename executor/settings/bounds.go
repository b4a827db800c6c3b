package settings

import (
	"net"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// Bounds are the server's values, and the values that repositories may choose.
type Bounds struct {
	Image  string // empty if the engine has no images
	Limits containers.Limits
	// Env is set for every command, "K=V".
	Env []string
	// Egress lists the hosts that every repository reaches, unless its file narrows the list.
	Egress []Host
	// Timeout bounds a command that sets none.
	Timeout time.Duration
	// Agents are the names of the server's agents.
	Agents []string
	// Tasks are the names of the library's tasks. Nil allows any name.
	Tasks []string
	// Allow has the values that every repository may choose. Repos has more for repositories, by name.
	Allow Allow
	Repos map[string]Repo
	// Configured has the keys that the server's configuration sets, such as "limits.memory". The others have defaults.
	Configured map[string]bool
}

// Repo is the part of the server's configuration that is about one repository.
type Repo struct {
	Allow Allow
	// Merge is the merge policy, which a file cannot change. Empty leaves it to the file.
	Merge environment.Merge
}

// Allow has the values that a repository's file may choose in addition to the server's. The zero value allows nothing more.
type Allow struct {
	// Egress lists hosts, NAME or *.NAME, with :PORT for a port other than 80 and 443. "*" allows all.
	Egress []Host
	// Images lists names of images, in which * matches any text.
	Images []string
	// Limits are the largest values. 0 allows no more than the server's value.
	Limits environment.Limits
	// Build allows images that are built from files of the base.
	Build bool
}

// Host is a host that containers reach.
type Host struct {
	environment.Egress
	// Private lets the name lead to addresses that are not public. Only the server's configuration sets it.
	Private bool `json:"private,omitempty"`
	// Trusted is set for an entry of the server's configuration, whose header may have any secret. A header of a
	// repository's file has only secrets that are for the host.
	Trusted bool `json:"-"`
}

// allow returns the values that a repository may choose.
func (b Bounds) allow(repo string) Allow {
	a, own := b.Allow, b.Repos[repo].Allow
	a.Egress = append(a.Egress[:len(a.Egress):len(a.Egress)], own.Egress...)
	a.Images = append(a.Images[:len(a.Images):len(a.Images)], own.Images...)
	a.Build = a.Build || own.Build
	a.Limits = environment.Limits{
		Memory: max(a.Limits.Memory, own.Limits.Memory), CPUs: max(a.Limits.CPUs, own.Limits.CPUs),
		PIDs: max(a.Limits.PIDs, own.Limits.PIDs),
		Tmp:  max(a.Limits.Tmp, own.Limits.Tmp), FileSize: max(a.Limits.FileSize, own.Limits.FileSize),
		Output: max(a.Limits.Output, own.Limits.Output), Disk: max(a.Limits.Disk, own.Limits.Disk),
	}
	return a
}

// covering returns the entry of list that covers an entry: every host and port that entry means, it means too.
func covering(list []Host, entry string) (Host, bool) {
	name, port := cutPort(strings.ToLower(entry))
	for _, h := range list {
		if h.Host == "*" {
			return h, true
		}
		wide, only := cutPort(strings.ToLower(h.Host))
		if only != port && !(only == "" && (port == "80" || port == "443")) {
			continue
		}
		if wide == name || strings.HasPrefix(wide, "*.") && strings.HasSuffix(name, wide[1:]) && len(name) > len(wide)-1 {
			return h, true
		}
	}
	return Host{}, false
}

// cutPort splits NAME:PORT. The port is empty if there is none.
func cutPort(entry string) (name, port string) {
	if host, port, err := net.SplitHostPort(entry); err == nil {
		return host, port
	}
	return strings.Trim(entry, "[]"), ""
}

// AllowsImage reports whether containers of a repository may have an image. An engine without images ignores them, so all are allowed.
func (b Bounds) AllowsImage(repo, image string) bool {
	return b.Image == "" || image == b.Image || allowsImage(b.allow(repo).Images, image)
}

// allowsImage reports whether one of the patterns means an image.
func allowsImage(patterns []string, image string) bool {
	for _, p := range patterns {
		if matchText(p, image) {
			return true
		}
	}
	return false
}

// matchText reports whether a text matches a pattern in which * matches any text.
func matchText(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return strings.HasSuffix(rest, parts[len(parts)-1])
}
