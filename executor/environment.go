package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/deps"
	"github.com/ramus-dev/ramus/executor/egress"
	"github.com/ramus-dev/ramus/executor/images"
	"github.com/ramus-dev/ramus/executor/prepare"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// bounds returns the server's values as they are in the fields of the executor.
func (x *Executor) bounds() settings.Bounds {
	b := settings.Bounds{Image: x.Image, Limits: x.Limits, Env: x.Env, Timeout: x.Timeout}
	for _, name := range x.Egress {
		h := settings.Host{Private: slices.Contains(x.PrivateEgress, name), Trusted: true}
		h.Host = name
		b.Egress = append(b.Egress, h)
	}
	for name := range x.Agents {
		b.Agents = append(b.Agents, name)
	}
	slices.Sort(b.Agents)
	b.Tasks = TaskNames()
	return b
}

// SettingsOf returns the settings that a base of a repository has now. Empty means the repository's own base.
func (x *Executor) SettingsOf(ctx context.Context, name, base string) (settings.Settings, error) {
	repo, err := x.Git.Repo(name)
	if err != nil {
		return settings.Settings{}, err
	}
	s, err := x.Settings.Read(ctx, repo, base)
	if err != nil {
		return s, err
	}
	s.Values = slices.Clone(s.Values)
	for _, n := range s.Secrets {
		v := settings.Value{Key: "secrets." + n, Value: "missing", Origin: settings.OriginServer,
			Note: "`ramus secret set " + n + "` stores it"}
		if x.SecretStore != nil {
			if known, ok := x.SecretStore.Describe(n, secret.User{Repo: name}); ok {
				v.Value, v.Note = "set", "for "+cmp.Or(strings.Join(known.Hosts, ", "), "no host")
			}
		}
		s.Values = append(s.Values, v)
	}
	return s, nil
}

// settings returns the settings of the target as of now. If they cannot be read, the last ones count, and without any
// those of a repository that reaches no host.
func (t *target) settings() settings.Settings {
	now, err := t.x.Settings.Read(t.x.ctx, t.Repo, t.Base)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.last = &now
	case t.last == nil:
		t.x.Log.Warn("the settings of a repository cannot be read", "repo", t.Repo.Name(), "err", err)
		b := t.x.Settings.Bounds()
		b.Egress = nil
		none := settings.Resolve(b, t.Repo.Name(), environment.File{})
		return none
	}
	return *t.last
}

// container returns the options of the target's next container.
func (t *target) container() worktree.Container {
	s := t.settings()
	return worktree.Container{Image: s.Image, Limits: s.Limits}
}

// env returns the environment of a command for author.
func (t *target) env(author gitd.Person) []string {
	env := t.x.trees.Identity.Env(author)
	if t.x.RepoEnv != nil {
		env = append(env, t.x.RepoEnv(t.Repo.Name())...)
	}
	env = append(env, t.settings().CommandEnv()...)
	if len(t.others.All()) > 0 {
		env = append(env, "RAMUS_REPOS="+worktree.AdditionsDir)
	}
	if w := t.atWork(); w != nil {
		env = append(env, w.l.placeholders()...)
	}
	return env
}

// header returns the header that the door adds to requests for a host, as the settings have it.
func (t *target) header(host string) egress.Header {
	for _, h := range t.settings().Egress {
		if strings.TrimSuffix(strings.ToLower(h.Host), ":443") == host {
			return egress.Header{Values: h.Header, Trusted: h.Trusted}
		}
	}
	return egress.Header{}
}

// secretValue returns the value of a secret for a request to a host. A trusted header of the server's configuration may
// have a secret that names no host.
func (t *target) secretValue(ctx context.Context, name, host string, trusted bool) (string, error) {
	if t.x.SecretStore == nil {
		return "", fmt.Errorf("secret %s: %w", name, record.ErrNotFound)
	}
	if trusted {
		host = ""
	}
	return t.x.SecretStore.Value(ctx, name, t.user(), host)
}

// user returns the run at work as a user of secrets. Between steps only the repository has some.
func (t *target) user() secret.User {
	if w := t.atWork(); w != nil {
		return w.user()
	}
	return secret.User{Repo: t.Repo.Name()}
}

// user returns the step as a user of secrets.
func (w *work) user() secret.User {
	return secret.User{Repo: w.t.Repo.Name(), Run: w.l.Initial.Name(), Person: w.l.person()}
}

// person returns the id of the person that the run works for now, and "" if that is nobody or several people. An agent
// works for the people of the prompts of its last turn.
func (l *liveRun) person() string {
	if l.Initial.Agent == nil {
		return l.Initial.Asker.ID
	}
	events := l.Journalled()
	isTurn := func(e record.Event) bool { return e.PromptsHeard() > 0 }
	from := 0 // the prompts that the agent had got before its last turn, which may have begun several times
	for _, e := range slices.Backward(events) {
		if isTurn(e) {
			began := slices.IndexFunc(events, func(o record.Event) bool { return isTurn(o) && o.Step == e.Step })
			from = l.Initial.Queue(events[:began]).Heard
			break
		}
	}
	q := l.Initial.Queue(events)
	id := ""
	for i, p := range q.Prompts[min(from, q.Heard):q.Heard] {
		if i > 0 && p.By.ID != id {
			return ""
		}
		id = p.By.ID
	}
	return id
}

// prepare makes the container of a lease ready for its first command, and journals what the repository's configuration
// lacks. After a build of its image that failed, a container does without the commands of the devcontainer. The error is
// a failure with [record.ReasonSetupFailed] if a command of the repository fails.
func (l *liveRun) prepare(ctx context.Context, t *target, lease *containers.Lease, tip gitd.Hash, unbuilt *images.Failed) (err error) {
	s := t.settings()
	if err := l.tellSettings(s); err != nil {
		return err
	}
	if l.Initial.NoSetup() || t.isPrepared(lease.Container.ID) {
		return nil
	}
	job := prepare.Job{
		Host:    lease.Host,
		Start:   s.Start,
		Env:     t.env(l.Initial.Asker),
		Secrets: l.x.Secrets,
		Emit:    func(e record.Event) error { return l.Emit(e, false) },
	}
	if len(s.Keep) > 0 {
		kept := prepare.KeptOf(l.x.artifacts.Bucket, t.Repo.Name(), t.Caller)
		job.Kept = &kept
	}
	if job.Commands, err = t.installs(ctx, s, tip); err != nil {
		return err
	}
	if s.Container != nil && unbuilt == nil {
		for _, c := range s.Container.File.Commands {
			job.Commands = append(job.Commands, prepare.Command{Kind: "setup", Shell: c})
		}
	}
	for _, c := range s.Setup {
		job.Commands = append(job.Commands, prepare.Command{Kind: "setup", Shell: c})
	}
	if len(job.Commands)+len(job.Start) > 0 || job.Kept != nil {
		err := job.Run(ctx)
		var failed *prepare.Failed
		if errors.As(err, &failed) {
			return &failure{record.ReasonSetupFailed, l.x.Secrets.String(err.Error())}
		}
		if err != nil {
			return err
		}
	}
	t.setPrepared(lease.Container.ID)
	return nil
}

// keep is [containers.Fleet].Ending. It keeps the files that a repository's configuration wants back in the caller's next
// container.
func (x *Executor) keep(ctx context.Context, key string, h *containers.Host) {
	c, err := record.ParseCaller(key)
	if err != nil {
		return // it worked for no caller
	}
	repo, base, err := x.home(ctx, c)
	if err != nil {
		return // its branch is gone
	}
	s, err := x.Settings.Read(ctx, repo, base)
	if err == nil && len(s.Keep) > 0 {
		err = prepare.KeptOf(x.artifacts.Bucket, repo.Name(), c).Save(ctx, h, s.Keep)
	}
	if err != nil {
		x.Log.Warn("files of a container are not kept", "caller", c, "err", err)
	}
}

// installed returns the layers of installed dependencies that fit a commit, for a user. A repository whose configuration
// installs nothing gets none.
func (t *target) installed(ctx context.Context, at gitd.Hash, uid int) ([]*worktree.Layer, error) {
	if s := t.settings(); s.Dependencies != nil && len(s.Dependencies) == 0 {
		return nil, nil
	}
	return t.x.deps.Installed(ctx, t.Repo, at, uid)
}

// installs returns the commands that install the dependencies of a commit: those of the repository's configuration, or
// else those that the container found in its cache.
func (t *target) installs(ctx context.Context, s settings.Settings, at gitd.Hash) (list []prepare.Command, err error) {
	done := t.InstalledHere()
	for _, d := range s.Dependencies {
		if d.Install == "" && slices.Contains(done, d.Manager) {
			continue
		}
		i := deps.InstallOf(d)
		list = append(list, prepare.Command{Kind: "install", Shell: i.Shell, Dir: i.Dir, Env: i.Env})
	}
	t.mu.Lock()
	found := t.found
	t.mu.Unlock()
	if s.Dependencies != nil || len(found) == 0 {
		return list, nil
	}
	installs, err := t.x.deps.Installs(ctx, t.Repo, at, found, done)
	for _, i := range installs {
		list = append(list, prepare.Command{Kind: "install", Shell: i.Shell, Dir: i.Dir, Env: i.Env, Optional: true})
	}
	return list, err
}

// tellSettings journals, once a run, the mistakes of the repository's configuration and what the server refuses of it.
func (l *liveRun) tellSettings(s settings.Settings) error {
	tell := func(reason, message string) error {
		for _, e := range l.Journalled() {
			if e.Type == record.EventSettings && e.Message == message {
				return nil
			}
		}
		return l.Emit(record.Event{Type: record.EventSettings, Reason: reason, Commit: s.From, Message: message}, false)
	}
	if s.Mistake != "" {
		if err := tell("mistake", s.MistakeWords()); err != nil {
			return err
		}
	}
	for _, w := range s.Warnings {
		if err := tell("refused", w); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) isPrepared(container string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.prepared == container
}

func (t *target) setPrepared(container string) {
	t.mu.Lock()
	t.prepared = container
	t.mu.Unlock()
}

// timeout bounds a command of the run that sets no timeout.
func (l *liveRun) timeout() time.Duration { return l.target.settings().Timeout }

// ProposeSettings returns a request for a new caller whose branch has, as a change of .ramus/config.yaml, what another
// caller found out: the file of its own branch, and the setup commands that were recorded in its runs. The error is
// [settings.ErrNothing] if that changes nothing.
func (x *Executor) ProposeSettings(ctx context.Context, c record.Caller) (record.Request, error) {
	repo, base, err := x.home(ctx, c)
	if err != nil {
		return record.Request{}, err
	}
	from, err := repo.Resolve(ctx, "refs/heads/"+base)
	if err != nil {
		return record.Request{}, err
	}
	tip, err := repo.Resolve(ctx, "refs/heads/"+c.Branch())
	if err != nil {
		return record.Request{}, err
	}
	var setup []string
	for _, r := range x.index.OfCaller(c) {
		if r.Exec != nil && r.Exec.Setup && r.State == record.StateComplete && r.Repo == repo.Name() {
			setup = append(setup, r.Command)
		}
	}
	text, err := settings.Propose(ctx, repo, from, tip, setup)
	if err != nil {
		return record.Request{}, err
	}
	call := &record.TaskCall{Name: "lib_write_file",
		Params: map[string]any{"path": environment.Path, "content": string(text)}, NoSetup: true}
	return record.Request{Repo: repo.Name(), Base: base, Task: call}, nil
}
