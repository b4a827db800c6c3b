package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/backup"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway"
	"github.com/ramus-dev/ramus/gateway/collision"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/forgekey"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/mcp"
	"github.com/ramus-dev/ramus/gateway/model"
	"github.com/ramus-dev/ramus/gateway/preview"
	"github.com/ramus-dev/ramus/internal/redact"
)

// opening is an installation that is being opened, and the values that one step leaves to a later one.
type opening struct {
	*installation
	secret  *secrets
	keys    string                         // the folder of keys
	removed atomic.Pointer[redact.Secrets] // from the log

	upstreams    map[string]upstream.Source
	missing      []string         // repositories of this replica that the data folder did not have
	volumeLost   bool             // the data folder of this replica was empty, and the replica owns repositories
	restored     *backup.Manifest // of the snapshot that took its place, or nil
	deploySecret string
	endpoint     executor.LLM // nil if there is none
	links        *links.Signer
	preview      *preview.Origin
	set          *redact.Secrets // of all secrets, after collectSecrets
	personal     *forgekey.Keys  // nil if no forge takes tokens of people
}

// open opens a data folder whose lock is held. close releases the lock, and so does open after an error.
func open(ctx context.Context, c Config, lock *os.File, environ []string, log *slog.Logger,
	level *slog.LevelVar) (_ *installation, err error) {
	o := &opening{secret: &secrets{environ: environ}, keys: filepath.Join(c.Data, "keys")}
	if err := o.secret.all(c); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	o.removed.Store(o.secret.set(log))
	log = slog.New(secretLog{log.Handler(), &o.removed})
	o.installation = &installation{config: c, lock: lock, log: log, level: level}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close(context.WithoutCancel(ctx), true))
		}
	}()

	for _, step := range []func(context.Context) error{
		o.joinReplicas, o.openRepositories, o.openLeader, o.compareRepositories, o.chooseEngine, o.readParts, o.openStores, o.makeLinks, o.collectSecrets,
		o.openExecutor, o.installMoved, o.openAccountsOfPeople,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	o.makeGateway()
	return o.installation, nil
}

// openRepositories opens the Git server.
func (o *opening) openRepositories(ctx context.Context) error {
	if err := backup.CheckFinished(o.config.Data); err != nil {
		return err
	}
	if err := standby.CheckPlace(o.config.Data); err != nil {
		return placeStatus(err)
	}
	if err := os.MkdirAll(o.keys, 0o700); err != nil {
		return fmt.Errorf("cannot make the folder of keys: %w", err)
	}
	git, err := newGit(o.config, o.keys, o.secret, o.log)
	if err != nil {
		return err
	}
	if o.seals, o.sealedBy, err = sealSigner(o.config.Data, o.keys); err != nil {
		return err
	}
	if err := git.Open(ctx); err != nil {
		return fmt.Errorf("cannot open the repositories: %w", err)
	}
	o.git = git
	return nil
}

// chooseEngine chooses the container engine and the way in which work trees get into containers.
func (o *opening) chooseEngine(ctx context.Context) (err error) {
	if o.engine, o.why, err = newEngine(ctx, o.config, o.log); err != nil {
		return err
	}
	o.workTree, err = openWorkTree(ctx, o.config, o.engine)
	return err
}

// readParts makes the parts that only the configuration and its secrets determine.
func (o *opening) readParts(context.Context) (err error) {
	c, secret, log := o.config, o.secret, o.log
	read := func(step func() error) {
		if err == nil {
			err = step()
		}
	}
	read(func() (err error) {
		endpoint, err := newLLM(c.LLM, secret)
		if endpoint != nil {
			o.endpoint = endpoint
		}
		return err
	})
	read(func() (err error) { o.oidc, err = newOIDC(c.SignIn.OIDC, secret); return err })
	read(func() (err error) { o.forges, err = newForges(c, secret, log); return err })
	read(func() (err error) { o.trackers, err = newTrackers(c, secret, log); return err })
	read(func() error { return checkTelling(c) })
	read(func() (err error) { o.upstreams, err = newUpstreams(c.Repos, o.forges); return err })
	read(func() (err error) {
		o.deploySecret, err = secret.value("hooks.deploy_secret", c.Hooks.DeploySecretEnv, c.Hooks.DeploySecretFile)
		return err
	})
	read(func() (err error) { o.models, err = newModels(c.Models, secret, log); return err })
	read(func() (err error) { o.certs, err = newCertificates(c, secret, log); return err })
	read(func() (err error) { o.domain, err = newDomain(c); return err })
	read(o.openNodes)
	read(o.openNames)
	read(func() (err error) { o.traces, err = newTraces(c.Traces, secret, log); return err })
	read(func() (err error) { o.fallback, err = newFallback(c.Fallback, secret); return err })
	read(func() (err error) { o.chat, err = newChat(c, secret, log); return err })
	read(func() (err error) { o.engineer, err = newEngineer(c.Engineer, log); return err })
	read(func() (err error) { o.triggers, err = newTriggers(c, secret, log); return err })
	return err
}

// openStores opens the store of artifacts, that of large files, and the parts that follow the repositories.
func (o *opening) openStores(context.Context) (err error) {
	if o.store, err = openStore(o.config.Artifacts.URL, o.secret); err != nil {
		return err
	}
	if o.lfs, err = newLFS(o.config, o.store, o.lfsSource, o.log); err != nil {
		return err
	}
	o.git.LFS, o.git.URL = o.lfs, programsURL(o.config)
	if o.mirrors, err = o.newMirrors(o.secret); err != nil {
		return err
	}
	if o.webhooks, err = o.newAnnouncer(o.secret); err != nil {
		return err
	}
	o.teller = &collision.Teller{Git: o.git, Radar: &radar.Radar{}, Log: o.log, Now: time.Now}
	o.git.Changed = func(repo string) {
		o.mirrors.Changed(repo)
		o.webhooks.Changed(repo)
		o.teller.Changed(repo)
	}
	return nil
}

// makeLinks makes the signer of links and the origin of previews.
func (o *opening) makeLinks(context.Context) (err error) {
	if o.links, err = newLinks(o.keys, o.config, o.secret); err != nil {
		return err
	}
	if o.chat != nil {
		o.chat.Links = o.links
	}
	o.engineer.Links = o.links
	o.preview, err = newPreview(o.config, o.domain)
	return err
}

// collectSecrets has all parts remove all secrets, now that each is known.
func (o *opening) collectSecrets(context.Context) error {
	if err := o.secret.keys(o.keys); err != nil {
		return err
	}
	o.set = o.secret.set(slog.New(slog.DiscardHandler)) // a warning about short secrets was logged before
	o.removed.Store(o.set)
	o.git.Secrets, o.mirrors.Secrets = o.set, o.set
	if o.chat != nil {
		o.chat.Slack.Secrets = o.set
	}
	o.forges.removeSecrets(o.set)
	o.trackers.removeSecrets(o.set)
	return nil
}

// openExecutor opens the executor. The parts that containers of an earlier process may use at once are set before.
func (o *opening) openExecutor(ctx context.Context) error {
	x, err := o.newExecutor(o.upstreams, o.set)
	if err != nil {
		return err
	}
	x.Chain.Signer, x.Chain.Also = o.seals, o.sealedBy
	if x.SecretStore, err = openSecretStore(o.config, o.keys, o.secret, o.set); err != nil {
		return err
	}
	o.models.Keys = x.SecretStore
	if o.endpoint != nil {
		x.LLM = o.endpoint
	}
	if o.traces != nil {
		x.Observer = o.traces
	}
	source := func(repo string) upstream.Source { return x.Bases.Source(repo) } // x is open by then
	threads := o.connectChat(x)
	o.connectEngineer(x, source)
	find := &lookup.Lookup{Executor: x, Git: o.git}
	o.comments = comment.NewComments(x, &conversation.Talk{Executor: x, Prompts: &x.Prompts, Find: find}, find, x.Bot, time.Now)
	o.comments.Secrets, o.comments.Log, o.comments.Tasks = o.set, o.log, o.engineer
	if o.privacy != nil {
		o.comments.Private = o.privacy.IsPrivate
	}
	o.engineer.Lines = o.comments
	x.Door = map[string]func(executor.Visitor) http.Handler{model.Prefix: o.models.Handler,
		mcp.Path: mcp.Door(x, o.engineer, threads, o.comments, buildVersion())}
	if reader := o.forges.hub.reader(o.forges.upstream(o.git, source)); reader != nil {
		x.Door[reader.Prefix()] = func(v executor.Visitor) http.Handler { return reader.Handler(v) }
		x.Containers.RepoEnv = reader.Env
	}
	if err := x.Open(ctx); err != nil {
		return fmt.Errorf("cannot open the executor: %w", err)
	}
	o.executor = x
	return nil
}

// connectChat connects the Slack front with the executor. Returns nil if there is none.
func (o *opening) connectChat(x *executor.Executor) mcp.Threads {
	if o.chat == nil {
		return nil
	}
	o.chat.Executor, o.chat.Git, o.chat.Fallback = x, o.git, o.fallback
	return o.chat
}

// connectEngineer connects the engineer, which opens pull requests for the executor even if it is never opened itself.
func (o *opening) connectEngineer(x *executor.Executor, source func(repo string) upstream.Source) {
	o.engineer.Trackers = o.trackers.byName
	o.engineer.Executor, o.engineer.Git, o.engineer.Upstream = x, o.git, o.forges.upstream(o.git, source)
	x.Bases.Hosts = []upstream.Host{o.engineer}
	if o.personal = o.forges.newForgeKeys(x.SecretStore, o.config.URL); o.personal == nil {
		return
	}
	o.engineer.Personal = o.personal.Forge
	if o.chat != nil {
		o.chat.Keys = o.personal
	}
}

func (o *opening) openAccountsOfPeople(ctx context.Context) error { return o.openAccounts(ctx, o.keys) }

// makeGateway makes the HTTP interface over the open rooms.
func (o *opening) makeGateway() {
	c := o.config
	o.connectTeller()
	o.gateway = &gateway.Server{
		Executor: o.executor, Git: o.git, Leader: o.leader, Mirrors: o.mirrors, Nodes: o.nodes, Programs: o.programs, Models: o.models, Budget: o.budget,
		Chat: o.chat, Hooks: o.forges.hooks(), Tickets: o.trackers.hooks, GitHub: o.forges.hub.client,
		SignIn: o.forges.hub.signIn, Accounts: o.accounts, Records: o.records, Privacy: o.privacy, ForgeKeys: o.personal,
		Names: o.names, Shares: o.shares, Radar: o.teller.Radar, Comments: o.comments,
		Links: o.links, Preview: o.preview, Traces: o.traces, Secrets: o.set, Log: o.log,
		Version: buildVersion(), Engine: o.engine.Name(),
		URL: c.URL, Domain: o.domain, CORS: c.CORS, Streams: c.Streams, DeploySecret: o.deploySecret,
		NoScript: c.Web.JS == "off", SSHPort: portOf(c.SSHListen),
	}
	o.connectReplicas()
}
