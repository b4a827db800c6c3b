package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"unicode"
)

// Runner is what does the work that a thread asks for.
type Runner string

// The runners.
const (
	RunnerContainer Runner = "container" // ramus
	RunnerFallback  Runner = "fallback"  // a server elsewhere, see package fallback
)

// PolicyReason says why a runner was chosen: a closed list.
type PolicyReason string

// The reasons.
const (
	ReasonGlobalDisabled   PolicyReason = "global-disabled"
	ReasonThreadStarter    PolicyReason = "thread-starter-allowlist"
	ReasonExplicitPrefix   PolicyReason = "explicit-prefix"
	ReasonNotAllowlisted   PolicyReason = "not-allowlisted"
	ReasonChannelAllowlist PolicyReason = "channel-allowlist" // widening, by configuration alone
	ReasonRepoAllowlist    PolicyReason = "repo-allowlist"
	ReasonPercentage       PolicyReason = "percentage"
	ReasonGrant            PolicyReason = "grant" // a program asked, with a token that may
	ReasonAgent            PolicyReason = "agent" // the agent of a run hands its thread over
)

// Policy is the decision about one mention.
type Policy struct {
	Runner Runner       `json:"runner"`
	Reason PolicyReason `json:"reason"`
	Prompt string       `json:"prompt"` // the text, without the prefix
}

// Gate is the configuration of the decision. The zero value lets nobody through.
type Gate struct {
	Enabled        bool     // the kill switch: unset, everything goes to the fallback
	ThreadStarters []string // users whose threads are let through
	Requesters     []string // users whose mentions are, when they begin with Prefix
	Prefix         string   // default "!!!"
	Channels       []string // whose threads are all let through
	Repos          []string // the same by repository
	Percentage     float64  // of all other threads, 0 to 100, by a hash of the session's key
	// People says who may do what in threads that are let through, by the user's id, [PersonStarter] or
	// [PersonAnybody]; empty: see [Gate.Permits].
	People map[string]Permission
}

// Asked is what the decision is made from.
type Asked struct {
	ThreadStarter string // empty: not known
	Requester     string
	Text          string
	Channel, Repo string
	Session       string
}

// DefaultPrefix begins a mention that asks for the container by name.
const DefaultPrefix = "!!!"

// Resolve decides. It is a pure function. The kill switch comes first, then who
// began the thread, then the prefix by a requester who may use it; only then
// what was widened by configuration: channels, repositories, a percentage. An
// empty id is nobody's and never allowed. The prompt is the text as it stands
// unless the prefix is what let it through.
func (g Gate) Resolve(a Asked) Policy {
	fallback := func(why PolicyReason) Policy { return Policy{RunnerFallback, why, a.Text} }
	container := func(why PolicyReason) Policy { return Policy{RunnerContainer, why, a.Text} }
	if !g.Enabled {
		return fallback(ReasonGlobalDisabled)
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

func listed(ids []string, id string) bool { return id != "" && slices.Contains(ids, id) }

// trimStart removes what JavaScript's trimStart does: the runner elsewhere and
// this one must agree on where a text begins.
func trimStart(s string) string {
	return strings.TrimLeftFunc(s, func(r rune) bool {
		switch r {
		case '\t', '\n', '\v', '\f', '\r', '\u2028', '\u2029', '\uFEFF':
			return true
		}
		return unicode.Is(unicode.Zs, r)
	})
}

// percentile places a session's key in [0, 100), evenly and always at the same
// place, so that a thread that is in stays in when the percentage is raised.
func percentile(session string) float64 {
	sum := sha256.Sum256([]byte(session))
	// 53 bits are what a float64 holds exactly: more could round up to 100.
	return float64(binary.BigEndian.Uint64(sum[:8])>>11) / (1 << 53) * 100
}
