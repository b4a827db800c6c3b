package secret

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// Bounds of a store.
const (
	maxOfOwner = 1000
	maxValue   = 64 << 10
	maxHosts   = 20
	// shows is the length of the shortest value whose last characters are shown.
	shows = 16
)

// Type is the use of a secret.
type Type string

// The types of secrets.
const (
	TypeSecret   Type = "secret"         // the door sends it to hosts
	TypeAgentKey Type = "agent-api-key"  // a key for a model API
	TypeCloud    Type = "cloud-provider" // a token of a provider of machines
	TypeForge    Type = "forge-token"    // a person's token of a forge, which the server alone uses
)

// Kind is the kind of a credential of TypeAgentKey or TypeCloud.
type Kind string

// The kinds of credentials.
const (
	KindKey   Kind = "api-key"
	KindOAuth Kind = "oauth-token"
)

// providers are the model APIs of agents, by agent type.
var providers = map[string]string{
	"anthropic": "anthropic", "claude-code": "anthropic",
	"openai": "openai", "openai-codex": "openai", "codex": "openai",
	"gemini": "gemini", "google-gemini": "gemini", "gemini-cli": "gemini",
}

// AgentTypes returns the values that Secret.Agent may have.
func AgentTypes() []string {
	var list []string
	for name := range providers {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// Secret describes a secret, without its value.
type Secret struct {
	ID string `json:"id,omitempty"` // the store gives it
	// Name has capital letters, digits and underscores. The empty name of a credential of an agent or a cloud becomes
	// the name of its agent and kind, such as CLAUDE_CODE_API_KEY. Names are unique for each owner.
	Name string `json:"name"`
	// Owner is the party that it belongs to. Empty means that of Repo.
	Owner Owner `json:"owner"`
	// Repo is the repository of Owner. Empty means none.
	Repo string `json:"repo,omitempty"`
	// Type is TypeSecret if it is empty.
	Type Type `json:"credential_type"`
	// Kind is KindKey if it is empty, and always empty for a TypeSecret.
	Kind Kind `json:"credential_kind,omitempty"`
	// Agent is the agent that a TypeAgentKey is for, one of [AgentTypes], the cloud of a TypeCloud, or the forge of a
	// TypeForge.
	Agent string `json:"agent_type,omitempty"`
	// Active is set for the one credential of an owner that is used for the model API of its agent.
	Active bool `json:"is_active"`
	// Reference is the place of the value, such as vault://PATH#FIELD. If it is empty, the store has the value.
	Reference string `json:"reference,omitempty"`
	// Hosts lists the hosts that may get the value of a TypeSecret, NAME with :PORT for a port other than 443.
	Hosts []string  `json:"hosts,omitempty"`
	Set   time.Time `json:"set"`
	By    string    `json:"by,omitempty"` // who set it
	// Last has the last four characters of a stored value with at least 16.
	Last string `json:"last,omitempty"`
	// Uses are the last runs that used it, the newest first. They are forgotten when the server stops.
	Uses []Use `json:"uses,omitempty"`
	// Problem says why it cannot be used. Empty means that it can.
	Problem string `json:"problem,omitempty"`
}

// Provider returns the model API of a TypeAgentKey, and "" for others.
func (x Secret) Provider() string {
	if x.Type != TypeAgentKey {
		return ""
	}
	return providers[x.Agent]
}

// content is the sealed content of a record.
type content struct {
	Kind      Kind      `json:"kind,omitempty"`
	Agent     string    `json:"agent,omitempty"`
	Active    bool      `json:"active,omitempty"`
	Reference string    `json:"reference,omitempty"`
	Hosts     []string  `json:"hosts,omitempty"`
	Set       time.Time `json:"set"`
	By        string    `json:"by,omitempty"`
	Value     string    `json:"value,omitempty"`
}

// complete fills in the fields that may be empty.
func (x Secret) complete(value string) Secret {
	x.Owner = cmp.Or(x.Owner, OfRepo(x.Repo))
	x.Repo = x.Owner.Repo()
	x.Type = cmp.Or(x.Type, TypeSecret)
	if x.Type != TypeSecret {
		x.Kind = cmp.Or(x.Kind, KindKey)
		if x.Name == "" {
			word := strings.ToUpper(x.Agent + "_" + string(x.Kind))
			x.Name = strings.NewReplacer("-", "_", ".", "_").Replace(word)
		}
	}
	x.Last = ""
	if x.Reference == "" && len(value) >= shows && !strings.Contains(value, "\n") {
		x.Last = value[len(value)-4:]
	}
	x.Uses, x.Problem = nil, ""
	return x
}

// check returns an error for a complete secret that cannot be stored.
func check(x Secret, value string) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("cannot store the secret %.100s: %w: %s", x.Name, record.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if err := x.Owner.Check(); err != nil {
		return err
	}
	switch {
	case !environment.ValidSecret(x.Name):
		return bad("a name has capital letters, digits and underscores, and begins with a letter")
	case x.Reference != "":
		if err := CheckReference(x.Reference); err != nil {
			return bad("%v", err)
		}
		if x.Owner.Person()+x.Owner.Run() != "" {
			return bad("a reference is read with the server's own rights, so only the server and repositories have some")
		}
	case len(strings.TrimSpace(value)) < redact.MinLength:
		return bad("a value has at least %d characters, because shorter ones cannot be removed from what is kept",
			redact.MinLength)
	case len(value) > maxValue:
		return bad("a value has at most %d bytes", maxValue)
	}
	if err := x.checkType(); err != nil {
		return bad("%v", err)
	}
	if (x.Type == TypeAgentKey || x.Type == TypeCloud) && strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return bad("a key has only characters that a header can carry, and no white space")
	}
	if len(x.Hosts) > maxHosts {
		return bad("at most %d hosts are possible", maxHosts)
	}
	for _, h := range x.Hosts {
		if !environment.ValidHost(h) || strings.HasPrefix(h, "*") {
			return bad("%q is not the name of one host", h)
		}
	}
	return nil
}

// checkType compares the type with the fields that belong to it.
func (x Secret) checkType() error {
	switch x.Type {
	case TypeSecret:
		if x.Kind != "" || x.Agent != "" || x.Active {
			return fmt.Errorf("only credentials of agents and clouds have a kind and an agent")
		}
		return nil
	case TypeAgentKey:
		if providers[x.Agent] == "" {
			return fmt.Errorf("the agent %.40q is not known; want one of %s", x.Agent, strings.Join(AgentTypes(), ", "))
		}
	case TypeForge:
		if x.Owner.Person() == "" {
			return fmt.Errorf("the token of a forge belongs to a person")
		}
	case TypeCloud:
		if x.Agent == "" || len(x.Agent) > 40 || strings.Trim(x.Agent, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return fmt.Errorf("the credential of a cloud names it in small letters, such as hetzner")
		}
	default:
		return fmt.Errorf("%.40q is no type; want secret, agent-api-key, cloud-provider or forge-token", x.Type)
	}
	if x.Kind != KindKey && x.Kind != KindOAuth {
		return fmt.Errorf("%.40q is no kind; want api-key or oauth-token", x.Kind)
	}
	if len(x.Hosts) > 0 {
		return fmt.Errorf("only a secret has hosts; the key of an agent goes to its model API alone")
	}
	return nil
}
