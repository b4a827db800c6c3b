package step

import (
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
	"github.com/ramus-dev/ramus/tasks/rules"
)

// Settings returns the settings of the target as of now. If they cannot be read, the last ones count, and without any
// those of a repository that reaches no host, and asks about every command.
func (t *Target) Settings() settings.Settings {
	now, err := t.runner.Settings.Read(t.runner.Context, t.Repo, t.Base)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.last = &now
	case t.last == nil:
		t.runner.Log.Warn("the settings of a repository cannot be read", "repo", t.Repo.Name(), "err", err)
		b := t.runner.Settings.Bounds()
		b.Egress = nil
		none := settings.Resolve(b, t.Repo.Name(), environment.File{})
		none.Rules = rules.Broken("the rules of the base cannot be read")
		return none
	}
	return *t.last
}

// container returns the options of the target's next container.
func (t *Target) container() worktree.Container {
	s := t.Settings()
	return worktree.Container{Image: s.Image, Limits: s.Limits}
}

// Env returns the environment of a command for author.
func (t *Target) Env(author gitd.Person) []string {
	env := t.runner.Trees.Identity.Env(author)
	if t.runner.RepoEnv != nil {
		env = append(env, t.runner.RepoEnv(t.Repo.Name())...)
	}
	env = append(env, t.Settings().CommandEnv()...)
	if len(t.Others.All()) > 0 {
		env = append(env, "RAMUS_REPOS="+worktree.AdditionsDir)
	}
	if w := t.AtWork(); w != nil {
		env = append(env, w.Run.placeholders()...)
	}
	return env
}

// Header returns the header that the door adds to requests for a host, as the settings have it.
func (t *Target) Header(host string) egress.Header {
	for _, h := range t.Settings().Egress {
		if strings.TrimSuffix(strings.ToLower(h.Host), ":443") == host {
			return egress.Header{Values: h.Header, Trusted: h.Trusted}
		}
	}
	return egress.Header{}
}

// SecretValue returns the value of a secret for a request to a host. A trusted header of the server's configuration may
// have a secret that names no host.
func (t *Target) SecretValue(ctx context.Context, name, host string, trusted bool) (string, error) {
	if t.runner.SecretStore == nil {
		return "", fmt.Errorf("secret %s: %w", name, record.ErrNotFound)
	}
	if trusted {
		host = ""
	}
	return t.runner.SecretStore.Value(ctx, name, t.User(), host)
}

// User returns the run at work as a user of secrets. Between steps only the repository has some.
func (t *Target) User() secret.User {
	if w := t.AtWork(); w != nil {
		return w.User()
	}
	return secret.User{Repo: t.Repo.Name()}
}

// User returns the step as a user of secrets.
func (w *Work) User() secret.User {
	return secret.User{Repo: w.Target.Repo.Name(), Run: w.Run.Initial.Name(), Person: w.Run.Person()}
}

// Person returns the id of the person that the run works for now, and "" if that is nobody or several people. An agent
// works for the people of the prompts of its last turn.
func (l *Run) Person() string {
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
func (l *Run) prepare(ctx context.Context, t *Target, lease *containers.Lease, tip gitd.Hash, unbuilt *images.Failed) (err error) {
	s := t.Settings()
	if err := l.tellSettings(s); err != nil {
		return err
	}
	if l.Initial.NoSetup() || t.isPrepared(lease.Container.ID) {
		return nil
	}
	job := prepare.Job{
		Host:    lease.Host,
		Start:   s.Start,
		Env:     t.Env(l.Initial.Asker),
		Secrets: l.Runner.Secrets,
		Emit:    func(e record.Event) error { return l.Emit(e, false) },
	}
	if len(s.Keep) > 0 {
		kept := prepare.KeptOf(l.Runner.Bucket, t.Repo.Name(), t.Caller)
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
			return &Failure{record.ReasonSetupFailed, l.Runner.Secrets.String(err.Error())}
		}
		if err != nil {
			return err
		}
	}
	t.setPrepared(lease.Container.ID)
	return nil
}

// installed returns the layers of installed dependencies that fit a commit, for a user. A repository whose configuration
// installs nothing gets none.
func (t *Target) installed(ctx context.Context, at gitd.Hash, uid int) ([]*worktree.Layer, error) {
	if s := t.Settings(); s.Dependencies != nil && len(s.Dependencies) == 0 {
		return nil, nil
	}
	return t.runner.Deps.Installed(ctx, t.Repo, at, uid)
}

// installs returns the commands that install the dependencies of a commit: those of the repository's configuration, or
// else those that the container found in its cache.
func (t *Target) installs(ctx context.Context, s settings.Settings, at gitd.Hash) (list []prepare.Command, err error) {
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
	installs, err := t.runner.Deps.Installs(ctx, t.Repo, at, found, done)
	for _, i := range installs {
		list = append(list, prepare.Command{Kind: "install", Shell: i.Shell, Dir: i.Dir, Env: i.Env, Optional: true})
	}
	return list, err
}

// tellSettings journals, once a run, the mistakes of the repository's configuration and the parts that the server
// refuses.
func (l *Run) tellSettings(s settings.Settings) error {
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

func (t *Target) isPrepared(container string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.prepared == container
}

func (t *Target) setPrepared(container string) {
	t.mu.Lock()
	t.prepared = container
	t.mu.Unlock()
}

// Timeout bounds a command of the run that sets no timeout.
func (l *Run) Timeout() time.Duration { return l.Target.Settings().Timeout }
