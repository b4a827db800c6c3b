package main

import (
	"encoding"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/kubernetes"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/ownership"
	"github.com/ramus-dev/ramus/gateway/cert"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/linear"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/model"
	"github.com/ramus-dev/ramus/gateway/session"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// Config is ramus.yaml. ramus.example.yaml documents every key, and has the defaults as values. A test compares both.
// The environment variable RAMUS_A_B overrides a key a.b.
type Config struct {
	Data           string            `yaml:"data"`
	Listen         string            `yaml:"listen"`
	TLSCert        string            `yaml:"tls_cert"`
	TLSKey         string            `yaml:"tls_key"`
	ACME           ACMEConfig        `yaml:"acme"`
	RedirectListen string            `yaml:"redirect_listen"`
	SSHListen      string            `yaml:"ssh_listen"`
	URL            string            `yaml:"url"`
	Domain         string            `yaml:"domain"`
	Engine         string            `yaml:"engine"`
	Image          string            `yaml:"image"`
	WorkTree       string            `yaml:"work_tree"`
	Capacity       int               `yaml:"capacity"`
	ImageRefresh   Duration          `yaml:"image_refresh"`
	Pool           int               `yaml:"pool"`
	Layers         Size              `yaml:"layers"`
	Queue          int               `yaml:"queue"`
	SleepAfter     Duration          `yaml:"sleep_after"`
	Timeout        Duration          `yaml:"timeout"`
	RunTimeout     Duration          `yaml:"run_timeout"`
	Limits         LimitsConfig      `yaml:"limits"`
	Egress         []EgressConfig    `yaml:"egress"`
	Allow          AllowConfig       `yaml:"allow"`
	Env            map[string]string `yaml:"env"`
	Secrets        []string          `yaml:"secrets"`
	Vault          VaultConfig       `yaml:"vault"`

	SealKeyEnv         string `yaml:"seal_key_env"`
	SealKeyFile        string `yaml:"seal_key_file"`
	SealKeyEarlierEnv  string `yaml:"seal_key_earlier_env"`
	SealKeyEarlierFile string `yaml:"seal_key_earlier_file"`

	Sandbox        SandboxConfig          `yaml:"sandbox"`
	Kubernetes     KubernetesConfig       `yaml:"kubernetes"`
	Browser        BrowserConfig          `yaml:"browser"`
	Services       ServicesConfig         `yaml:"services"`
	Devcontainer   string                 `yaml:"devcontainer"`
	Preview        PreviewConfig          `yaml:"preview"`
	SignIn         PeopleConfig           `yaml:"sign_in"`
	Workspaces     WorkspacesConfig       `yaml:"workspaces"`
	Web            WebConfig              `yaml:"web"`
	AuthorizedKeys string                 `yaml:"authorized_keys"`
	Git            GitConfig              `yaml:"git"`
	LLM            LLMConfig              `yaml:"llm"`
	Models         ModelsConfig           `yaml:"models"`
	Agents         map[string]AgentConfig `yaml:"agents"`
	Engineer       EngineerConfig         `yaml:"engineer"`
	Bot            BotConfig              `yaml:"bot"`
	GitHub         GitHubConfig           `yaml:"github"`
	GitLab         ForgeConfig            `yaml:"gitlab"`
	Gitea          ForgeConfig            `yaml:"gitea"`
	Bitbucket      BitbucketConfig        `yaml:"bitbucket"`
	Jira           TrackerConfig          `yaml:"jira"`
	Linear         LinearConfig           `yaml:"linear"`
	Slack          SlackConfig            `yaml:"slack"`
	Gate           GateConfig             `yaml:"gate"`
	Fallback       FallbackConfig         `yaml:"fallback"`
	Repos          map[string]RepoConfig  `yaml:"repos"`
	RefreshAfter   Duration               `yaml:"refresh_after"`
	RefreshWait    Duration               `yaml:"refresh_wait"`
	Hooks          HooksConfig            `yaml:"hooks"`

	Triggers map[string]TriggerConfig `yaml:"triggers"`

	Artifacts ArtifactsConfig `yaml:"artifacts"`
	Keep      KeepConfig      `yaml:"keep"`
	Quotas    QuotasConfig    `yaml:"quotas"`
	Standby   StandbyConfig   `yaml:"standby"`
	Replicas  ReplicasConfig  `yaml:"replicas"`
	Nodes     NodesConfig     `yaml:"nodes"`
	DNS       DNSConfig       `yaml:"dns"`
	Traces    TracesConfig    `yaml:"traces"`
	// TellConflicts is one of all, threads and off.
	TellConflicts string `yaml:"tell_conflicts"`

	Upgrade UpgradeConfig `yaml:"upgrade"`
	CORS    []string      `yaml:"cors"`
	Streams int           `yaml:"streams"`
	Log     LogConfig     `yaml:"log"`
}

// ACMEConfig configures the certificates that the server gets by itself.
type ACMEConfig struct {
	Hosts     []string `yaml:"hosts"`
	Email     string   `yaml:"email"`
	Directory string   `yaml:"directory"`
	CAFile    string   `yaml:"ca"`
}

// LimitsConfig bounds one container.
type LimitsConfig struct {
	Memory   Size    `yaml:"memory"`
	CPUs     float64 `yaml:"cpus"`
	PIDs     int64   `yaml:"pids"`
	Tmp      Size    `yaml:"tmp"`
	FileSize Size    `yaml:"file_size"`
	Output   Size    `yaml:"output"`
	Disk     Size    `yaml:"disk"`
	DiskFree Size    `yaml:"disk_free"`
}

// VaultConfig configures Vault, from which secrets may be read.
type VaultConfig struct {
	URL       string `yaml:"url"`
	Namespace string `yaml:"namespace"`
	TokenEnv  string `yaml:"token_env"`
	TokenFile string `yaml:"token_file"`
}

// SandboxConfig configures only the Sandbox engine.
type SandboxConfig struct {
	ReadOnly []string `yaml:"read_only"`
}

// KubernetesConfig configures only the engine on Kubernetes.
type KubernetesConfig struct {
	Kubeconfig     string         `yaml:"kubeconfig"`
	Context        string         `yaml:"context"`
	Namespace      string         `yaml:"namespace"`
	Image          string         `yaml:"image"`
	Template       string         `yaml:"template"`
	UserNamespaces bool           `yaml:"user_namespaces"`
	Sidecars       int            `yaml:"sidecars"`
	Requests       RequestsConfig `yaml:"requests"`
}

// RequestsConfig has the resources that the scheduler reserves for a pod.
type RequestsConfig struct {
	Memory Size    `yaml:"memory"`
	CPUs   float64 `yaml:"cpus"`
}

// BrowserConfig configures checks of web pages.
type BrowserConfig struct {
	Image   string   `yaml:"image"`
	Dir     string   `yaml:"dir"`
	Memory  Size     `yaml:"memory"`
	CPUs    float64  `yaml:"cpus"`
	PIDs    int64    `yaml:"pids"`
	Timeout Duration `yaml:"timeout"`
	AtOnce  int      `yaml:"at_once"`
}

// ServicesConfig bounds the services next to containers.
type ServicesConfig struct {
	Memory Size    `yaml:"memory"`
	CPUs   float64 `yaml:"cpus"`
	PIDs   int64   `yaml:"pids"`
	Disk   Size    `yaml:"disk"`
	AtOnce int     `yaml:"at_once"`
}

// PreviewConfig configures previews of ports in containers.
type PreviewConfig struct {
	URL string `yaml:"url"`
}

// GitConfig configures the Git server.
type GitConfig struct {
	Limits     GitLimits `yaml:"limits"`
	ReplyCache Size      `yaml:"reply_cache"`
	Create     []string  `yaml:"create_on_push"`
}

// GitLimits bound the resources that one Git client can use.
type GitLimits struct {
	PackBytes   Size     `yaml:"pack_bytes"`
	Objects     int64    `yaml:"objects"`
	ObjectBytes Size     `yaml:"object_bytes"`
	LFSBytes    Size     `yaml:"lfs_bytes"`
	Time        Duration `yaml:"time"`
	CPU         Duration `yaml:"cpu"`
	Memory      Size     `yaml:"memory"`
	Processes   int      `yaml:"processes"`
	Idle        Duration `yaml:"idle"`
}

// LLMConfig is the endpoint of llm nodes.
type LLMConfig struct {
	Kind       string   `yaml:"kind"`
	BaseURL    string   `yaml:"base_url"`
	Model      string   `yaml:"model"`
	APIKeyEnv  string   `yaml:"api_key_env"`
	APIKeyFile string   `yaml:"api_key_file"`
	Timeout    Duration `yaml:"timeout"`
}

// ModelsConfig configures the model APIs that containers reach through their door.
type ModelsConfig struct {
	Anthropic ModelConfig  `yaml:"anthropic"`
	OpenAI    ModelConfig  `yaml:"openai"`
	Gemini    ModelConfig  `yaml:"gemini"`
	Budget    BudgetConfig `yaml:"budget"`
	Timeout   Duration     `yaml:"timeout"`
	Parallel  int          `yaml:"parallel"`
}

// ModelConfig configures one model API.
type ModelConfig struct {
	BaseURL    string                 `yaml:"base_url"`
	APIKeyEnv  string                 `yaml:"api_key_env"`
	APIKeyFile string                 `yaml:"api_key_file"`
	Prices     map[string]PriceConfig `yaml:"prices"`
}

// PriceConfig has the prices of a million tokens.
type PriceConfig struct {
	Input      float64 `yaml:"input"`
	Output     float64 `yaml:"output"`
	CacheRead  float64 `yaml:"cache_read"`
	CacheWrite float64 `yaml:"cache_write"`
}

// BudgetConfig bounds the use of models by one run.
type BudgetConfig struct {
	Tokens int64   `yaml:"tokens"`
	Cost   float64 `yaml:"cost"`
	Calls  int64   `yaml:"calls"`
}

// FallbackConfig configures the runner of the threads that ramus does not work for.
type FallbackConfig struct {
	URL        string   `yaml:"url"`
	SecretEnv  string   `yaml:"secret_env"`
	SecretFile string   `yaml:"secret_file"`
	Timeout    Duration `yaml:"timeout"`
}

// AllowConfig has the values that the configuration of a repository may choose, in addition to the server's.
type AllowConfig struct {
	Egress []EgressConfig `yaml:"egress"`
	Images []string       `yaml:"images"`
	Build  bool           `yaml:"build"`
	Limits AllowLimits    `yaml:"limits"`
}

// AllowLimits has the largest limits that a repository may choose. 0 means that it may choose none above the server's.
type AllowLimits struct {
	Memory   Size    `yaml:"memory"`
	CPUs     float64 `yaml:"cpus"`
	PIDs     int64   `yaml:"pids"`
	Tmp      Size    `yaml:"tmp"`
	FileSize Size    `yaml:"file_size"`
	Output   Size    `yaml:"output"`
	Disk     Size    `yaml:"disk"`
}

// EgressConfig is a host that containers may reach. In a file it is a name or a mapping.
type EgressConfig struct {
	Host    string            `yaml:"host"`
	Private bool              `yaml:"private"`
	Header  map[string]string `yaml:"header"`
}

// UnmarshalText sets e to a host by its name.
func (e *EgressConfig) UnmarshalText(b []byte) error {
	*e = EgressConfig{Host: string(b)}
	return nil
}

// hosts returns the names in a list, and those of them that may resolve to private addresses.
func hosts(list []EgressConfig) (all, private []string) {
	for _, e := range list {
		all = append(all, e.Host)
		if e.Private {
			private = append(private, e.Host)
		}
	}
	return all, private
}

// SlackConfig configures the Slack app that people mention. Without a token there is no app.
type SlackConfig struct {
	TokenEnv          string                   `yaml:"token_env"`
	TokenFile         string                   `yaml:"token_file"`
	SigningSecretEnv  string                   `yaml:"signing_secret_env"`
	SigningSecretFile string                   `yaml:"signing_secret_file"`
	AppTokenEnv       string                   `yaml:"app_token_env"`
	AppTokenFile      string                   `yaml:"app_token_file"`
	URL               string                   `yaml:"url"`
	Repo              string                   `yaml:"repo"`
	Agent             string                   `yaml:"agent"`
	Channels          map[string]ChannelConfig `yaml:"channels"`
	Rules             []RuleConfig             `yaml:"rules"`
	PostChannels      []string                 `yaml:"post_channels"`
	ThreadReplies     string                   `yaml:"thread_replies"`
	EditEvery         Duration                 `yaml:"edit_every"`
	Teams             []string                 `yaml:"teams"`
	People            map[string]AuthorConfig  `yaml:"people"`
}

// AuthorConfig is the author of the commits that a user of Slack asks for.
type AuthorConfig struct {
	Name   string `yaml:"name"`
	Email  string `yaml:"email"`
	GitHub string `yaml:"github"`
}

// ChannelConfig has the repository and the agent of a channel's threads.
type ChannelConfig struct {
	Repo  string `yaml:"repo"`
	Base  string `yaml:"base"`
	Agent string `yaml:"agent"`
}

// RuleConfig leads threads to a repository by words.
type RuleConfig struct {
	Words    []string `yaml:"words"`
	Channels []string `yaml:"channels"`
	Repo     string   `yaml:"repo"`
	Base     string   `yaml:"base"`
	Agent    string   `yaml:"agent"`
}

// GateConfig selects the threads that ramus works for.
type GateConfig struct {
	Enabled        bool     `yaml:"enabled"`
	ThreadStarters []string `yaml:"thread_starters"`
	Requesters     []string `yaml:"requesters"`
	Prefix         string   `yaml:"prefix"`
	Channels       []string `yaml:"channels"`
	Repos          []string `yaml:"repos"`
	Percentage     float64  `yaml:"percentage"`

	People map[string]PersonConfig `yaml:"people"`
}

// PersonConfig has the permissions of a person in threads, and their repositories.
type PersonConfig struct {
	May   []string `yaml:"may"`
	Repos []string `yaml:"repos"`
}

// ArtifactsConfig has the storage of large outputs and artifacts, and the lifetime of links to evidence.
type ArtifactsConfig struct {
	URL     string   `yaml:"url"`
	LinkTTL Duration `yaml:"link_ttl"`
}

// KeepConfig is the retention policy of `ramus prune`.
type KeepConfig struct {
	Branches  KeepKind `yaml:"branches"`
	Runs      KeepKind `yaml:"runs"`
	Layers    KeepKind `yaml:"layers"`
	Artifacts KeepKind `yaml:"artifacts"`
}

// KeepKind is the retention policy of one kind of data.
type KeepKind struct {
	Age   Duration `yaml:"age"`
	Count int      `yaml:"count"`
}

// AgentConfig configures one coding agent.
type AgentConfig struct {
	Kind       string            `yaml:"kind"`
	Image      string            `yaml:"image"`
	Command    []string          `yaml:"command"`
	Resume     []string          `yaml:"resume"`
	Prompt     string            `yaml:"prompt"`
	Permission string            `yaml:"permission"`
	Allow      []string          `yaml:"allow"`
	Mode       string            `yaml:"mode"`
	Auth       string            `yaml:"auth"`
	Env        map[string]string `yaml:"env"`
	State      []string          `yaml:"state"`
	Timeout    Duration          `yaml:"timeout"`
	Output     Size              `yaml:"output"`
	Checks     []string          `yaml:"checks"`
	Browser    string            `yaml:"browser"`
}

// BotConfig has the committer of every commit, and the key that signs them.
type BotConfig struct {
	Name           string `yaml:"name"`
	Email          string `yaml:"email"`
	SigningKeyEnv  string `yaml:"signing_key_env"`
	SigningKeyFile string `yaml:"signing_key_file"`
}

// StandbyConfig lets other machines follow the server.
type StandbyConfig struct {
	Allow bool     `yaml:"allow"`
	Keys  bool     `yaml:"keys"`
	Sync  bool     `yaml:"sync"`
	Wait  Duration `yaml:"wait"`
	Alone bool     `yaml:"alone"`
	Peers []string `yaml:"peers"`
}

// ReplicasConfig makes the server one of several that answer as one.
type ReplicasConfig struct {
	Name       string   `yaml:"name"`
	Group      string   `yaml:"group"`
	Home       string   `yaml:"home"`
	Namespace  string   `yaml:"namespace"`
	Listen     string   `yaml:"listen"`
	URL        string   `yaml:"url"`
	SecretEnv  string   `yaml:"secret_env"`
	SecretFile string   `yaml:"secret_file"`
	Backups    string   `yaml:"backups"`
	Lease      Duration `yaml:"lease"`
}

// NodesConfig configures machines at a cloud.
type NodesConfig struct {
	Provider   string            `yaml:"provider"`
	TokenEnv   string            `yaml:"token_env"`
	TokenFile  string            `yaml:"token_file"`
	Endpoint   string            `yaml:"endpoint"`
	Region     string            `yaml:"region"`
	Network    string            `yaml:"network"`
	Name       string            `yaml:"name"`
	Image      string            `yaml:"image"`
	Size       string            `yaml:"size"`
	Location   string            `yaml:"location"`
	Locations  []string          `yaml:"locations"`
	Sizes      map[string]string `yaml:"sizes"`
	Most       int               `yaml:"most"`
	Ranges     []string          `yaml:"ranges"`
	StaleAfter Duration          `yaml:"stale_after"`
	BootWait   Duration          `yaml:"boot_wait"`

	Join      string   `yaml:"join"`
	Server    string   `yaml:"server"`
	Programs  string   `yaml:"programs"`
	OnDemand  bool     `yaml:"on_demand"`
	IdleAfter Duration `yaml:"idle_after"`
}

// DNSConfig configures names in DNS for workspaces and nodes.
type DNSConfig struct {
	Provider   string   `yaml:"provider"`
	Zone       string   `yaml:"zone"`
	TokenEnv   string   `yaml:"token_env"`
	TokenFile  string   `yaml:"token_file"`
	Endpoint   string   `yaml:"endpoint"`
	Key        string   `yaml:"key"`
	Workspaces []string `yaml:"workspaces"`
	TTL        Duration `yaml:"ttl"`
}

// LogConfig configures the log, which goes to standard error.
type LogConfig struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Defaults returns the values of keys that are not set.
func Defaults() Config {
	const mib, gib = 1 << 20, 1 << 30
	return Config{
		Data: "~/.local/share/ramus", Listen: "127.0.0.1:8080",
		Engine: "auto", Image: "ramus/task:latest", WorkTree: "auto", Pool: 2, Layers: 20 * gib, Queue: 1000,
		Keep: KeepConfig{Branches: KeepKind{Age: Duration(720 * time.Hour)},
			Runs:   KeepKind{Age: Duration(2160 * time.Hour), Count: 100},
			Layers: KeepKind{Age: Duration(168 * time.Hour), Count: 2}, Artifacts: KeepKind{Age: Duration(24 * time.Hour)}},
		Artifacts: ArtifactsConfig{LinkTTL: Duration(links.DefaultTTL)},
		Quotas:    QuotasConfig{People: map[string]QuotaConfig{}, Repos: map[string]QuotaConfig{}},
		Traces:    TracesConfig{Header: "Authorization"},
		Standby:   StandbyConfig{Wait: Duration(10 * time.Second), Peers: []string{}},
		Replicas:  ReplicasConfig{Group: "ramus", Listen: "127.0.0.1:0", Lease: Duration(ownership.DefaultDuration)},

		Nodes: NodesConfig{Name: "ramus", Image: "debian-13", Size: "small", Location: "nbg1",
			Locations: []string{}, Sizes: map[string]string{},
			Most: 5, Ranges: []string{}, StaleAfter: Duration(3 * time.Minute), BootWait: Duration(15 * time.Minute),
			Join: string(nodes.JoinKubelet), OnDemand: true, IdleAfter: Duration(30 * time.Minute)},
		DNS:           DNSConfig{Key: "ramus", Workspaces: []string{}, TTL: Duration(time.Minute)},
		TellConflicts: tellAll,

		SleepAfter: Duration(10 * time.Minute), Timeout: Duration(30 * time.Minute), RunTimeout: Duration(24 * time.Hour),
		Limits: LimitsConfig{Memory: 2 * gib, CPUs: 2, PIDs: 512, Tmp: 512 * mib, FileSize: 8 * gib, Output: gib,
			Disk: 20 * gib, DiskFree: 512 * mib},
		Egress: []EgressConfig{}, Allow: AllowConfig{Egress: []EgressConfig{}, Images: []string{}},
		Env: map[string]string{}, Secrets: []string{}, Sandbox: SandboxConfig{ReadOnly: []string{}},
		Kubernetes: KubernetesConfig{Namespace: kubernetes.DefaultNamespace, UserNamespaces: true,
			Requests: RequestsConfig{Memory: 64 * mib, CPUs: 0.02}},
		ACME:         ACMEConfig{Hosts: []string{}, Directory: cert.LetsEncrypt},
		Devcontainer: "devcontainer",
		Browser: BrowserConfig{Image: docker.BrowserImage, Memory: gib, CPUs: 2, PIDs: 256,
			Timeout: Duration(15 * time.Minute)},
		SignIn: PeopleConfig{Admins: []string{}, Members: []string{}, Viewers: []string{}, Default: "none",
			Idle: Duration(session.DefaultIdle), Life: Duration(session.DefaultLife),
			OIDC: OIDCConfig{Scopes: []string{"profile", "email"}}},
		Web:        WebConfig{JS: "on"},
		Workspaces: WorkspacesConfig{Write: "members"},
		Services:   ServicesConfig{Memory: 512 * mib, CPUs: 1, PIDs: 256, Disk: 2 * gib},
		Git: GitConfig{Create: []string{}, ReplyCache: 2 * gib, Limits: GitLimits{PackBytes: 2 * gib,
			Objects: 5_000_000, ObjectBytes: 512 * mib, LFSBytes: 8 * gib, Time: Duration(time.Hour),
			CPU: Duration(10 * time.Minute), Memory: 4 * gib, Idle: Duration(2 * time.Minute)}},
		LLM: LLMConfig{Timeout: Duration(5 * time.Minute)},
		Bot: BotConfig{Name: "ramus", Email: "ramus@localhost"},
		Models: ModelsConfig{
			Anthropic: ModelConfig{BaseURL: model.DefaultURL("anthropic"), Prices: map[string]PriceConfig{}},
			OpenAI:    ModelConfig{BaseURL: model.DefaultURL("openai"), Prices: map[string]PriceConfig{}},
			Gemini:    ModelConfig{BaseURL: model.DefaultURL("gemini"), Prices: map[string]PriceConfig{}},
			Budget:    BudgetConfig{Calls: 10_000}, Timeout: Duration(30 * time.Minute), Parallel: 16,
		},
		Agents:   map[string]AgentConfig{},
		Fallback: FallbackConfig{Timeout: Duration(2 * time.Minute)},
		Engineer: EngineerConfig{Branch: "ramus/conv-{task_id}", Labels: []string{}, Mention: "@ramus", Repairs: 3,
			Evidence: string(engineer.EvidenceLinks), Gather: Duration(2 * time.Second), Every: Duration(10 * time.Minute)},
		GitHub: GitHubConfig{URL: githubURL, SignIn: SignInConfig{Users: []string{}, Organizations: []string{},
			Scopes: []string{"read"}, Life: Duration(12 * time.Hour)}},
		GitLab: ForgeConfig{URL: gitlabURL}, Bitbucket: BitbucketConfig{URL: bitbucketURL},
		Jira:   TrackerConfig{Label: "ramus", Repos: map[string]string{}},
		Linear: LinearConfig{URL: linear.DefaultURL, Label: "ramus", Repos: map[string]string{}},
		Slack: SlackConfig{URL: "https://slack.com/api/", Channels: map[string]ChannelConfig{}, Rules: []RuleConfig{},
			PostChannels: []string{}, Teams: []string{}, People: map[string]AuthorConfig{}, ThreadReplies: "mention",
			EditEvery: Duration(3 * time.Second)},
		Gate: GateConfig{ThreadStarters: []string{}, Requesters: []string{}, Prefix: "!!!", Channels: []string{},
			Repos: []string{}, People: map[string]PersonConfig{}},
		Repos: map[string]RepoConfig{}, RefreshAfter: Duration(time.Minute), RefreshWait: Duration(5 * time.Second),
		CORS:    []string{},
		Streams: 256,

		Triggers: map[string]TriggerConfig{},
		Log:      LogConfig{Level: "info", Format: "text"},
	}
}

// Duration is a time.Duration in the notation of Go: 90s, 10m, 24h.
type Duration time.Duration

// UnmarshalText reads a Duration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a duration such as 90s, 10m or 24h", b)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes: 512MiB, 2GiB, 1000.
type Size int64

// UnmarshalText reads a Size.
func (s *Size) UnmarshalText(b []byte) error {
	n, err := bytesize.Parse(string(b))
	*s = Size(n)
	return err
}

// choices are the values of the keys with a closed list of values.
var choices = map[string][]string{
	"engine": {"auto", "sandbox", "docker", "kubernetes"}, "work_tree": {"auto", "root", "helper", "portable"},
	"llm.kind": {"", "openai", "anthropic"}, "sign_in.default": {"none", "viewer", "member"}, "web.js": {"on", "off"},
	"workspaces.write": {"members", "owner"},
	"agents.*.kind":    {"command", "acp"}, "agents.*.prompt": {"stdin", "argument"},
	"agents.*.permission": {"allow", "ask", "deny"}, "agents.*.browser": {"", "interactive"},
	"repos.*.merge":                {"", "push", "pull-request", "here"},
	"repos.*.mirror":               {"", "pull", "push"},
	"slack.thread_replies":         {"mention", "all"},
	"triggers.*.webhook.signature": {"", "ramus", "sentry", "pagerduty", "github"},
	"log.level":                    {"debug", "info", "warn", "error"}, "log.format": {"text", "json"},
}

// choicesOf returns the values of a key, and whether its list is closed. The middle part of its path may be any name.
func choicesOf(path string) ([]string, bool) {
	if list, closed := choices[path]; closed {
		return list, true
	}
	parts := strings.Split(path, ".")
	if len(parts) < 3 {
		return nil, false
	}
	parts[1] = "*"
	list, closed := choices[strings.Join(parts, ".")]
	return list, closed
}

// ConfigError has all mistakes of a configuration, in the order of their positions.
type ConfigError []string

func (e ConfigError) Error() string { return strings.Join(e, "\n") }

// largestConfig bounds the file, in bytes. A configuration has some kilobytes.
const largestConfig = 1 << 20

// LoadConfig returns the configuration. The environment overrides the file at path, which overrides the defaults. The
// file may be missing if optional is true.
func LoadConfig(path string, optional bool, environ []string) (Config, error) {
	c := Defaults()
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && optional:
	case err != nil:
		return c, fmt.Errorf("cannot read the configuration: %w", err)
	case info.Size() > largestConfig:
		return c, fmt.Errorf("cannot read the configuration %s: it is larger than %d bytes", path, largestConfig)
	default:
		text, err := os.ReadFile(path)
		if err != nil {
			return c, fmt.Errorf("cannot read the configuration: %w", err)
		}
		if err := parseConfig(path, text, &c); err != nil {
			return c, err
		}
	}
	if err := overrideConfig(environ, &c); err != nil {
		return c, err
	}
	return c, c.settleDomain()
}

// configReader walks a YAML tree and a Go value in parallel, and collects every mistake.
type configReader struct {
	name   string
	lines  []string
	errors ConfigError
}

// parseConfig reads text into c.
func parseConfig(name string, text []byte, c *Config) error {
	r := &configReader{name: name, lines: strings.Split(string(text), "\n")}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		var place yaml.Error
		if errors.As(err, &place) && place.GetToken() != nil {
			r.fault(place.GetToken(), "%s", place.GetMessage())
			return r.errors
		}
		return fmt.Errorf("cannot read %s: %w", name, err)
	}
	docs := 0
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType {
			continue
		}
		if docs++; docs > 1 {
			r.fault(doc.Body.GetToken(), "a configuration is one YAML document, but this is a second one")
			break
		}
		r.mapping(doc.Body, reflect.ValueOf(c).Elem(), "")
	}
	if len(r.errors) > 0 {
		return r.errors
	}
	return nil
}

func (r *configReader) fault(t *token.Token, format string, args ...any) {
	line, column := 1, 1
	if t != nil && t.Position != nil {
		line, column = t.Position.Line, t.Position.Column
	}
	e := fmt.Sprintf("%s:%d:%d: %s", r.name, line, column, fmt.Sprintf(format, args...))
	if line >= 1 && line <= len(r.lines) {
		e += "\n    " + strings.TrimRight(r.lines[line-1], "\r")
	}
	r.errors = append(r.errors, e)
}

// pairs returns the entries of a mapping, which has two forms in the parser. Returns false if n is not a mapping.
func pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// mapping sets the fields of a struct.
func (r *configReader) mapping(n ast.Node, v reflect.Value, path string) {
	entries, ok := pairs(n)
	if !ok {
		what := "the configuration"
		if path != "" {
			what = path
		}
		r.fault(n.GetToken(), "%s must be a mapping of keys to values", what)
		return
	}
	fields := keys(v.Type())
	for _, entry := range entries { // the parser rejects repeated keys
		key := entry.Key.GetToken().Value
		if field := slices.Index(fields, key); field >= 0 {
			r.value(entry.Value, v.Field(field), join(path, key))
		} else if near := nearest(key, fields); near != "" {
			r.fault(entry.Key.GetToken(), "unknown key %q; did you mean %q?", join(path, key), join(path, near))
		} else {
			r.fault(entry.Key.GetToken(), "unknown key %q; known are %s", join(path, key), strings.Join(fields, ", "))
		}
	}
}

// value sets a field.
func (r *configReader) value(n ast.Node, v reflect.Value, path string) {
	if n.Type() == ast.NullType {
		return // a key without a value counts as not set
	}
	if _, isText := v.Addr().Interface().(encoding.TextUnmarshaler); !isText {
		switch v.Kind() {
		case reflect.Struct:
			r.mapping(n, v, path)
			return
		case reflect.Slice:
			r.list(n, v, path)
			return
		case reflect.Map:
			r.dictionary(n, v, path)
			return
		}
	}
	if text, ok := r.text(n, path); ok {
		if err := set(v, text, path); err != nil {
			r.fault(n.GetToken(), "%v", err)
		}
	}
}

// text returns a scalar as written. It refuses anchors and aliases, which no configuration is long enough to need, and
// which make small files large.
func (r *configReader) text(n ast.Node, path string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	r.fault(n.GetToken(), "%s must be a single value", path)
	return "", false
}

func (r *configReader) list(n ast.Node, v reflect.Value, path string) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		r.fault(n.GetToken(), "%s must be a list", path)
		return
	}
	list := reflect.MakeSlice(v.Type(), 0, len(seq.Values))
	for _, e := range seq.Values {
		one := reflect.New(v.Type().Elem()).Elem()
		faults := len(r.errors)
		if _, ok := pairs(e); ok && one.Kind() == reflect.Struct {
			r.mapping(e, one, path)
		} else if text, ok := r.text(e, path); ok {
			if err := set(one, text, path); err != nil {
				r.fault(e.GetToken(), "%v", err)
			}
		}
		if len(r.errors) == faults {
			list = reflect.Append(list, one)
		}
	}
	v.Set(list)
}

// dictionary sets a map of names to values or to mappings.
func (r *configReader) dictionary(n ast.Node, v reflect.Value, path string) {
	entries, ok := pairs(n)
	if !ok {
		r.fault(n.GetToken(), "%s must be a mapping of names to values", path)
		return
	}
	m := reflect.MakeMap(v.Type())
	for _, entry := range entries {
		key := entry.Key.GetToken().Value
		value := reflect.New(v.Type().Elem()).Elem()
		r.value(entry.Value, value, join(path, key))
		m.SetMapIndex(reflect.ValueOf(key), value)
	}
	v.Set(m)
}

// keys returns the keys of a struct, in the order of its fields.
func keys(t reflect.Type) []string {
	var list []string
	for i := range t.NumField() {
		list = append(list, t.Field(i).Tag.Get("yaml"))
	}
	return list
}

// set sets a field from text, as the file and the environment have it.
func set(v reflect.Value, text, path string) error {
	if list, closed := choicesOf(path); closed && !slices.Contains(list, text) {
		if near := nearest(text, list); near != "" {
			return fmt.Errorf("%s: unknown value %q; did you mean %q?", path, text, near)
		}
		return fmt.Errorf("%s: want one of %s", path, strings.TrimPrefix(strings.Join(list, ", "), ", "))
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int, reflect.Int64:
		n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, v.Type().Bits())
		if err != nil || n < 0 {
			return fmt.Errorf("%s: %q is not a whole number", path, text)
		}
		v.SetInt(n)
	case reflect.Bool:
		b, ok := map[string]bool{"true": true, "yes": true, "on": true, "1": true, "false": false, "no": false,
			"off": false, "0": false}[strings.ToLower(text)]
		if !ok {
			return fmt.Errorf("%s: %q is neither true nor false", path, text)
		}
		v.SetBool(b)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !(f >= 0) || math.IsInf(f, 0) {
			return fmt.Errorf("%s: %q is not a number", path, text)
		}
		v.SetFloat(f)
	case reflect.Slice:
		list := reflect.MakeSlice(v.Type(), 0, 0)
		for _, e := range strings.Split(text, ",") {
			if e = strings.TrimSpace(e); e != "" {
				one := reflect.New(v.Type().Elem()).Elem()
				if err := set(one, e, path); err != nil {
					return err
				}
				list = reflect.Append(list, one)
			}
		}
		v.Set(list)
	case reflect.Map:
		m := map[string]string{}
		for _, e := range strings.Split(text, ",") {
			if key, value, ok := strings.Cut(e, "="); ok {
				m[strings.TrimSpace(key)] = value
			} else if e != "" {
				return fmt.Errorf("%s: %q is not NAME=VALUE", path, e)
			}
		}
		v.Set(reflect.ValueOf(m))
	default:
		return fmt.Errorf("%s cannot be set by text", path)
	}
	return nil
}

// notKeys are variables of ramus that are not part of the configuration.
var notKeys = []string{"RAMUS_CONFIG", "RAMUS_TOKEN"}

// overrideConfig reads the environment into c.
func overrideConfig(environ []string, c *Config) error {
	fields := map[string]string{}
	values := map[string]reflect.Value{}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i, key := range keys(v.Type()) {
			f, p := v.Field(i), join(path, key)
			if f.Kind() == reflect.Struct {
				walk(f, p)
				continue
			}
			if f.Kind() == reflect.Map && f.Type().Elem().Kind() != reflect.String {
				continue // a variable cannot express a mapping of mappings
			}
			name := "RAMUS_" + strings.ToUpper(strings.ReplaceAll(p, ".", "_"))
			fields[name], values[name] = p, f
		}
	}
	walk(reflect.ValueOf(c).Elem(), "")
	known := slices.Collect(func(yield func(string) bool) {
		for name := range fields {
			if !yield(name) {
				return
			}
		}
	})
	slices.Sort(known)

	var faults ConfigError
	for _, kv := range environ {
		name, text, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "RAMUS_") || slices.Contains(notKeys, name) {
			continue
		}
		v, ok := values[name]
		if !ok {
			// Other programs may use the prefix too, so only names that look like misspellings are refused.
			if near := nearest(name, known); near != "" && edits(name, near) <= 2 {
				faults = append(faults, fmt.Sprintf("unknown environment variable %s; did you mean %s?", name, near))
			}
			continue
		}
		if err := set(v, text, fields[name]); err != nil {
			faults = append(faults, name+": "+err.Error())
		}
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// folder returns the absolute form of path, in which ~ means the home folder.
func folder(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("cannot find the home folder for %s: %w", path, err)
		}
		path = home + rest
	}
	return filepath.Abs(path)
}
