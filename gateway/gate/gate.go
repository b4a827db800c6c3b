// Package gate chooses the runner of a mention, and decides about the permissions of a person in its thread. Its functions are
// pure. They read the configuration and the ids of people, channels and repositories. Of a text they read only the prefix.
package gate

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
)

// Runner does the work that a thread asks for.
type Runner string

// The runners.
const (
	RunnerContainer Runner = "container" // ramus
	RunnerFallback  Runner = "fallback"  // another server, see package fallback
)

// PolicyReason is the reason for the choice of a runner, from a closed list.
type PolicyReason string

// The reasons.
const (
	ReasonGlobalDisabled   PolicyReason = "global-disabled"
	ReasonThreadStarter    PolicyReason = "thread-starter-allowlist"
	ReasonExplicitPrefix   PolicyReason = "explicit-prefix"
	ReasonNotAllowlisted   PolicyReason = "not-allowlisted"
	ReasonChannelAllowlist PolicyReason = "channel-allowlist" // set by the configuration only
	ReasonRepoAllowlist    PolicyReason = "repo-allowlist"
	ReasonPercentage       PolicyReason = "percentage"
	ReasonRepoExcluded     PolicyReason = "repo-excluded"
	ReasonGrant            PolicyReason = "grant"  // a program asked with a sufficient token
	ReasonAgent            PolicyReason = "agent"  // the agent of a run hands over its thread
	ReasonPerson           PolicyReason = "person" // a person hands over a thread that the gate admits
)

// Policy is the decision about one mention.
type Policy struct {
	Runner Runner       `json:"runner"`
	Reason PolicyReason `json:"reason"`
	Prompt string       `json:"prompt"` // the text without the prefix
}

// Gate is the configuration of the decision. The zero value sends everything to the fallback.
type Gate struct {
	Enabled        bool     // if unset, everything goes to the fallback
	ThreadStarters []string // users whose threads go to the container
	Requesters     []string // users whose mentions go there if they begin with Prefix
	Prefix         string   // default "!!!"
	Channels       []string // all of whose threads go there
	Repos          []string // all of whose threads go there, except excluded ones; see [Gate.Excludes]
	Percentage     float64  // of all other threads, from 0 to 100, by a hash of the session's key
	// People has the permissions of people in such threads, by the user's id, [PersonStarter] or [PersonAnybody]. For an empty
	// map see [Gate.Permits].
	People map[string]Permission
}

// Asked is the input of the decision.
type Asked struct {
	ThreadStarter string // empty if not known
	Requester     string
	Text          string
	Channel, Repo string
	Session       string
}

// DefaultPrefix begins a mention that asks for the container.
const DefaultPrefix = "!!!"

// Resolve returns the decision. In this order it looks at Enabled, at excluded repositories, at the person who began the thread, at the prefix if the
// requester may use it, and at Channels, Repos and Percentage. An empty id is never listed. The prompt is the text, and without the
// prefix only if the prefix decided.
func (g Gate) Resolve(a Asked) Policy {
	fallback := func(why PolicyReason) Policy { return Policy{RunnerFallback, why, a.Text} }
	container := func(why PolicyReason) Policy { return Policy{RunnerContainer, why, a.Text} }
	if !g.Enabled {
		return fallback(ReasonGlobalDisabled)
	}
	if g.Excludes(a.Repo) {
		return fallback(ReasonRepoExcluded)
	}
	if listed(g.ThreadStarters, a.ThreadStarter) {
		return container(ReasonThreadStarter)
	}
	prefix := g.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	rest, explicit := strings.CutPrefix(trimStart(a.Text), prefix)
	switch {
	case explicit && listed(g.Requesters, a.Requester):
		return Policy{RunnerContainer, ReasonExplicitPrefix, trimStart(rest)}
	case listed(g.Channels, a.Channel):
		return container(ReasonChannelAllowlist)
	case listed(g.Repos, a.Repo):
		return container(ReasonRepoAllowlist)
	case a.Session != "" && percentile(a.Session) < g.Percentage:
		return container(ReasonPercentage)
	}
	return fallback(ReasonNotAllowlisted)
}

// Excludes reports whether a repository is closed to all threads and people. It is if Repos has "!NAME", or if Repos has
// "!*" and not NAME.
func (g Gate) Excludes(repo string) bool {
	if repo == "" {
		return false
	}
	return slices.Contains(g.Repos, "!"+repo) || slices.Contains(g.Repos, "!*") && !slices.Contains(g.Repos, repo)
}

func listed(ids []string, id string) bool { return id != "" && slices.Contains(ids, id) }

// trimStart removes the same space as JavaScript's trimStart (ECMA-262), so that this server and the fallback agree on the
// beginning of a text.
func trimStart(s string) string {
	return strings.TrimLeftFunc(s, func(r rune) bool {
		switch r {
		case '\t', '\n', '\v', '\f', '\r', '\u2028', '\u2029', '\uFEFF':
			return true
		}
		return unicode.Is(unicode.Zs, r)
	})
}

// percentile maps a session's key evenly to [0, 100). It always returns the same number for a key, so that a thread stays let
// through when the percentage grows.
func percentile(session string) float64 {
	sum := sha256.Sum256([]byte(session))
	// A float64 holds 53 bits exactly. More could round up to 100.
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53) * 100
}
