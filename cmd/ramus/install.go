package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/kubernetes"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/dns"
	"github.com/ramus-dev/ramus/executor/lfs"
	"github.com/ramus-dev/ramus/executor/mirror"
	"github.com/ramus-dev/ramus/executor/nodes"
	"github.com/ramus-dev/ramus/executor/nodes/programs"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/services"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/account"
	"github.com/ramus-dev/ramus/gateway/announce"
	"github.com/ramus-dev/ramus/gateway/audit"
	"github.com/ramus-dev/ramus/gateway/cert"
	"github.com/ramus-dev/ramus/gateway/chat"
	"github.com/ramus-dev/ramus/gateway/collision"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/domain"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/gateway/llm"
	"github.com/ramus-dev/ramus/gateway/model"
	"github.com/ramus-dev/ramus/gateway/naming"
	"github.com/ramus-dev/ramus/gateway/privacy"
	"github.com/ramus-dev/ramus/gateway/pushed"
	"github.com/ramus-dev/ramus/gateway/share"
	"github.com/ramus-dev/ramus/gateway/signin"
	"github.com/ramus-dev/ramus/gateway/trace"
	"github.com/ramus-dev/ramus/gateway/trigger"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// installation is a data folder in use, with all rooms, opened in order. Only the holder of the folder's lock has one.
// So a second `ramus serve` on the same folder is refused, and a second command finds the socket of the first.
type installation struct {
	config   Config
	log      *slog.Logger
	lock     *os.File
	git      *gitd.Server
	leader   *standby.Leader
	token    string      // RAMUS_TOKEN, for the server that this one followed
	fenced   chan error  // gets the error of a server whose place another one took
	replicas *membership // nil if this is the only server
	engine   containers.Engine
	workTree *workTree
	store    store.Bucket // of large artifacts; if nil, the executor has a folder of its own
	lfs      *lfs.Objects
	mirrors  *mirror.Mirrors // only a lasting server opens them
	webhooks *announce.Announcer
	teller   *collision.Teller // only a lasting server opens it
	nodes    *nodes.Nodes      // only a lasting server starts it
	programs *programs.Programs
	// hostNames are those in DNS. Nil means none. Only a lasting server starts them.
	hostNames *dns.Names
	executor  *executor.Executor
	gateway   *gateway.Server
	fallback  *fallback.Client   // nil if there is none
	why       string             // why this engine is used
	chat      *chat.Chat         // nil if no Slack app is configured; only a lasting server opens it
	engineer  *engineer.Engineer // only a lasting server opens it
	forges    *forges
	trackers  *trackers
	models    *model.Proxy
	certs     cert.Source     // nil if the server speaks no TLS
	domain    *domain.Domain  // nil if all is at one host
	traces    *trace.Exporter // nil if no collector is configured

	accounts *account.Store
	privacy  *privacy.Store // which workspaces are private
	hides    *hides
	comments *comment.Comments  // on lines; only a lasting server has drafts
	names    *naming.Store      // of sessions with agents; nil if they cannot be read
	shares   *share.Store       // the links of people; nil if they cannot be read
	records  *gitd.CommitSigner // of records about people; nil if the Git server's is
	seals    *gitd.CommitSigner // of the records of runs
	sealedBy gitd.Signers       // those whose seals count, also of earlier keys
	oidc     *signin.OIDC       // nil if none is configured
	owner    gitd.Person        // who can use the unix socket
	people   *signin.People     // who may sign in; only a lasting server opens it, and the two below
	actions  *audit.Log
	web      *bolt.DB

	load      func() (Config, error) // reads the configuration again
	level     *slog.LevelVar         // of the log
	current   atomic.Pointer[Config] // the configuration of the last reload, nil before
	reloading sync.Mutex             // held while the configuration is read again
	pushed    *pushed.Starter        // starts the work of pushes
	triggers  *trigger.Triggers      // nil if none are configured; only a lasting server opens it
}

// errLocked means that another process uses the data folder.
var errLocked = errors.New("the data folder is in use")

// lockFolder locks a data folder. It makes a missing one.
func lockFolder(data string) (*os.File, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(data, "ramus.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the data folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("cannot lock the data folder: %w", err)
	}
	// The process id is for people. The lock itself is the kernel's.
	if err := f.Truncate(0); err == nil {
		fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	return f, nil
}

// lockAgain is the pause between two attempts to lock a data folder in use.
const lockAgain = 50 * time.Millisecond

// awaitFolder is like lockFolder, but waits for another process. It names that process on out. Returns errLocked when
// the time is over.
func awaitFolder(ctx context.Context, out io.Writer, data string, wait time.Duration) (*os.File, error) {
	lock, err := lockFolder(data)
	if wait <= 0 || !errors.Is(err, errLocked) {
		return lock, err
	}
	fmt.Fprintf(out, "ramus: waiting up to %v for another ramus%s, which uses the data folder\n", wait, owner(data))
	over := time.NewTimer(wait)
	defer over.Stop()
	tick := time.NewTicker(lockAgain)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if lock, err = lockFolder(data); !errors.Is(err, errLocked) {
				return lock, err
			}
		case <-over.C:
			return nil, errLocked
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// newEngine chooses the container engine. why explains the choice.
func newEngine(ctx context.Context, c Config, log *slog.Logger) (_ containers.Engine, why string, err error) {
	runner, program, err := containerPrograms(c.Data)
	if err != nil {
		return nil, "", err
	}
	sandboxes := &sandbox.Engine{Dir: filepath.Join(c.Data, "sandbox"), Runner: runner, Program: program,
		ReadOnly: c.Sandbox.ReadOnly,
		Browser:  browserDir(c.Browser), Log: log}
	if c.Engine == "kubernetes" {
		e, err := newKubernetes(c, log)
		if err != nil {
			return nil, "", err // not an Engine that holds nil
		}
		return e, whyEngine(c.Engine, nil, nil), nil
	}
	moby := &docker.Engine{Image: c.Image, Pin: c.ImageRefresh > 0, Runner: runner, Program: program, Log: log}
	switch c.Engine {
	case "sandbox":
		return sandboxes, whyEngine(c.Engine, nil, nil), nil
	case "docker":
		return moby, whyEngine(c.Engine, nil, nil), nil
	}
	first := sandboxes.Check(ctx)
	if first == nil {
		return sandboxes, whyEngine(c.Engine, nil, nil), nil
	}
	second := moby.Check(ctx)
	why = whyEngine(c.Engine, first, second)
	if second != nil {
		// Continue, because repositories can be served without containers.
		log.Warn("no container engine works here; `ramus doctor` explains why", "sandbox", first, "docker", second)
		return sandboxes, why, nil
	}
	return moby, why, nil
}

// whyEngine explains the engine that a setting of `engine` leads to. sandbox and docker are the errors of the engines'
// checks. They are nil for an engine that works or was not checked.
func whyEngine(setting string, sandbox, docker error) string {
	switch {
	case setting != "auto":
		return "engine: " + setting + " in the configuration"
	case sandbox == nil:
		return "engine: auto takes the sandbox, which works here"
	case docker == nil:
		return fmt.Sprintf("engine: auto takes docker, because the sandbox does not work here: %v", sandbox)
	}
	return "engine: auto takes the sandbox, although neither it nor docker works here"
}

// newGit returns the Git server of a configuration. keys is the folder of keys.
func newGit(c Config, keys string, secret *secrets, log *slog.Logger) (_ *gitd.Server, err error) {
	l := c.Git.Limits
	git := &gitd.Server{
		Root:        filepath.Join(c.Data, "repos"),
		KeyFile:     filepath.Join(keys, "grants.pem"),
		HostKeyFile: filepath.Join(keys, "ssh_host.pem"),
		BaseKeyFile: filepath.Join(keys, "bases.pem"),
		TokenFile:   filepath.Join(c.Data, "tokens.jsonl"),
		Limits: gitd.Limits{
			PackBytes: int64(l.PackBytes), Objects: l.Objects, ObjectBytes: int64(l.ObjectBytes),
			LFSBytes: int64(l.LFSBytes), Time: time.Duration(l.Time),
			CPU: time.Duration(l.CPU), Memory: int64(l.Memory), Processes: l.Processes, Idle: time.Duration(l.Idle),
		},
		ReplyCache: int64(c.Git.ReplyCache), CreateOnPush: c.Git.Create,
		Log: log,
	}
	if git.ReplyCache == 0 {
		git.ReplyCache = -1 // the configuration sets 0 for no cache, but 0 is the default of gitd
	}
	if c.AuthorizedKeys != "" {
		if git.AuthorizedKeys, err = folder(c.AuthorizedKeys); err != nil {
			return nil, err
		}
	}
	if git.Signer, err = newSigner(c.Bot, secret); err != nil {
		return nil, err
	}
	return git, nil
}

// hides tells the executor which callers are private. It begins to work before the records of that are open. Until then
// all are.
type hides struct{ store atomic.Pointer[privacy.Store] }

func (h *hides) of(c record.Caller) bool {
	s := h.store.Load()
	return s == nil || s.IsPrivate(c)
}

// newExecutor returns the executor of an installation whose repositories, engine, work trees and store are open.
func (i *installation) newExecutor(upstreams map[string]upstream.Source, set *redact.Secrets) (*executor.Executor, error) {
	c := i.config
	image := c.Image
	if _, ok := i.engine.(*sandbox.Engine); ok {
		image = "" // the Sandbox has no images, and evidence names the image that was used
	}
	i.hides = new(hides)
	x := &executor.Executor{
		Data: c.Data, Git: i.git, Containers: executor.Containers{Image: image, Devcontainer: c.Devcontainer, Layers: int64(c.Layers)}, Options: newOptions(c), Store: i.store,
		LFS: i.lfs, Submodules: submodules(c.Repos), With: additions(c.Repos),
		Bases: upstream.Bases{Sources: upstreams, RefreshAfter: time.Duration(c.RefreshAfter),
			RefreshWait: time.Duration(c.RefreshWait)},
		Secrets: set,
		Fleet: &containers.Fleet{
			Engine: i.engine, Dir: filepath.Join(c.Data, "hosts"), Keeper: i.workTree.keeper,
			Capacity: c.Capacity, Pool: c.Pool, Queue: c.Queue, Sidecars: c.Browser.AtOnce,
			Companions: c.Services.AtOnce, SleepAfter: time.Duration(c.SleepAfter), Log: i.log,
		},
		Services: services.Starter{Limits: containers.Limits{
			Memory: int64(c.Services.Memory), CPUs: c.Services.CPUs, PIDs: c.Services.PIDs,
			Disk:     cmp.Or(int64(c.Services.Disk), -1),
			DiskFree: int64(c.Limits.DiskFree),
		}},
		Browser: newBrowser(c.Browser),
		Bot:     gitd.Person{Name: c.Bot.Name, Email: c.Bot.Email},
		Log:     i.log,
		Hides:   i.hides.of,
	}
	if e, ok := i.engine.(*kubernetes.Engine); ok {
		x.Fleet.StartTimeout = cmp.Or(e.Wait, kubernetes.StartWait) // a pod may wait for a node
	}
	bounds, err := newBounds(c, image)
	if err != nil {
		return nil, err
	}
	x.Settings = new(settings.Reader)
	x.Settings.SetBounds(bounds)
	return x, nil
}

// newLLM returns the model endpoint of a configuration. Returns nil if there is none.
func newLLM(c LLMConfig, secret *secrets) (*llm.Client, error) {
	if c.Kind == "" && c.BaseURL == "" {
		return nil, nil
	}
	key, err := secret.value("llm.api_key", c.APIKeyEnv, c.APIKeyFile)
	if err != nil {
		return nil, err
	}
	return llm.New(llm.Client{Kind: llm.Kind(c.Kind), BaseURL: c.BaseURL, Model: c.Model, Key: key,
		Timeout: time.Duration(c.Timeout)})
}

// close closes the rooms, from the entrances inwards.
func (i *installation) close(ctx context.Context, keep bool) error {
	var errs []error
	i.hostNames.Close()
	i.nodes.Close()
	i.mirrors.Close()
	i.webhooks.Close()
	i.teller.Close()
	if i.chat != nil {
		errs = append(errs, i.chat.Close())
	}
	if i.triggers != nil {
		errs = append(errs, i.triggers.Close())
	}
	if i.engineer != nil {
		errs = append(errs, i.engineer.Close())
	}
	if i.executor != nil {
		errs = append(errs, i.executor.Close(ctx, keep))
	}
	if i.lfs != nil {
		i.lfs.Close()
	}
	if i.store != nil {
		errs = append(errs, i.store.Close())
	}
	errs = append(errs, i.closePeople())
	i.traces.Close(ctx)
	errs = append(errs, i.workTree.close())
	if i.engine != nil {
		errs = append(errs, i.engine.Close())
	}
	i.leader.Close()
	if i.git != nil {
		errs = append(errs, i.git.Close())
	}
	errs = append(errs, i.replicas.close(ctx))
	if i.lock != nil {
		errs = append(errs, i.lock.Close())
	}
	return errors.Join(errs...)
}

// newLog returns the log of a configuration, and its level, which may be changed.
func newLog(w io.Writer, c LogConfig, least slog.Level) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	_ = level.UnmarshalText([]byte(c.Level)) // one of a closed list
	level.Set(max(level.Level(), least))
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), level
	}
	return slog.New(slog.NewTextHandler(w, o)), level
}
