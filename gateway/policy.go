package gateway

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
}

// Asked is what the decision is made from.
type Asked struct {
	ThreadStarter string // empty: not known
	Requester     string
	Text          string
	Channel, Repo string
	Session       string
}

// Resolve decides. It is a pure function.
func (g Gate) Resolve(a Asked) Policy { panic("not built") }
