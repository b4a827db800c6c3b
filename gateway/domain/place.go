package domain

import (
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
)

// Part is a part of the server that has a host.
type Part int

// The parts.
const (
	Nothing   Part = iota // no part has the host
	Pages                 // people
	API                   // programs, and git
	Content               // the trace viewer
	Workspace             // programs, for one workspace
	Port                  // the application at a port of a container
)

// Place is the part of the server that a host names. The zero value is that of a host that no part has.
type Place struct {
	Part Part
	// Caller is that of a Workspace, and of a Port whose label has no hash.
	Caller record.Caller
	// Label is the first part of the host, in lower case.
	Label string
}

// The labels of workspaces and ports are ws-SLUG and ws-SLUG--PORT. A slug has single hyphens only. A label with a
// port that would be longer than DNS allows has a hash in place of the slug, and a prefix that no other label has.
const (
	workspacePrefix = "ws-"
	hashedPrefix    = "wsx-"
	portMark        = "--"
)

// Find returns the place of a host, as the header Host of a request has it.
func (d *Domain) Find(host string) Place {
	name, port := cutPort(host)
	if port != "" && port != d.port {
		return Place{}
	}
	return d.find(name)
}

// cutPort splits a host at its last colon. The port is empty if there is none.
func cutPort(host string) (name, port string) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 {
		return host, ""
	}
	return host[:i], host[i+1:]
}

// find returns the place of a name without a port.
func (d *Domain) find(name string) Place {
	label, below := strings.CutSuffix(lower(strings.TrimSuffix(name, ".")), "."+d.name)
	if !below {
		return Place{}
	}
	p := Place{Label: label}
	switch label {
	case pagesLabel:
		p.Part = Pages
	case apiLabel:
		p.Part = API
	case contentLabel:
		p.Part = Content
	default:
		p.Part, p.Caller = d.parseLabel(label)
	}
	if p.Part == Nothing {
		return Place{}
	}
	return p
}

// parseLabel returns the part of a label of a workspace or a port.
func (d *Domain) parseLabel(label string) (Part, record.Caller) {
	if d.NoWorkspaces || len(label) > maxLabel {
		return Nothing, record.Caller{}
	}
	if rest, ok := strings.CutPrefix(label, hashedPrefix); ok {
		sum, port, _ := strings.Cut(rest, portMark)
		if len(sum) == hashBytes*8/5 && strings.Trim(sum, "abcdefghijklmnopqrstuvwxyz234567") == "" && isPort(port) {
			return Port, record.Caller{}
		}
		return Nothing, record.Caller{}
	}
	rest, ok := strings.CutPrefix(label, workspacePrefix)
	if !ok {
		return Nothing, record.Caller{}
	}
	slug, port, hasPort := strings.Cut(rest, portMark)
	caller, ok := parseSlug(slug)
	switch {
	case !ok || hasPort && !isPort(port):
		return Nothing, record.Caller{}
	case hasPort:
		return Port, caller
	}
	return Workspace, caller
}

// parseSlug returns the caller of a slug.
func parseSlug(slug string) (record.Caller, bool) {
	kind, id, _ := strings.Cut(slug, "-")
	c, err := record.ParseCaller(kind + ":" + id)
	return c, err == nil && c.Slug() == slug
}

// isPort reports whether a text is a port in its shortest form.
func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == s
}

// Workspace returns the URL of the host of a caller's workspace. Returns "" if it has none, because its name is
// longer than DNS allows or the domain has none for workspaces.
func (d *Domain) Workspace(c record.Caller) string {
	label := workspacePrefix + c.Slug()
	if d == nil || d.NoWorkspaces || len(label) > maxLabel {
		return ""
	}
	return d.url(label)
}

// hashBytes is the number of bytes of a hash in a label, which has 8 characters for 5 of them.
const hashBytes = 20

// PortLabel returns the first part of the host of a port of a caller's container.
func (d *Domain) PortLabel(c record.Caller, port int) string {
	end := portMark + strconv.Itoa(port)
	if label := workspacePrefix + c.Slug() + end; len(label) <= maxLabel {
		return label
	}
	sum := sha256.Sum256([]byte(c.Slug()))
	return hashedPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:hashBytes])) + end
}

// PortURL returns the URL of the host with the label of a port.
func (d *Domain) PortURL(label string) string { return d.url(label) }
