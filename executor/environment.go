package executor

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/prepare"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/executor/settings"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// bounds returns the server's values as they are in the fields of the executor.
func (x *Executor) bounds() settings.Bounds {
	b := settings.Bounds{Image: x.Containers.Image, Limits: x.Options.Limits, Env: x.Options.Env, Timeout: x.Options.Timeout}
	for _, name := range x.Options.Egress {
		h := settings.Host{Private: slices.Contains(x.Options.PrivateEgress, name), Trusted: true}
		h.Host = name
		b.Egress = append(b.Egress, h)
	}
	for name := range x.Options.Agents {
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

// keep is [containers.Fleet].Ending. It keeps the files that a repository's configuration wants back in the caller's next
// container.
func (x *Executor) keep(ctx context.Context, key string, h *containers.Host) {
	c, err := record.ParseCaller(key)
	if err != nil {
		return // it worked for no caller
	}
	repo, base, err := x.HomeRepo(ctx, c)
	if err != nil {
		return // its branch is gone
	}
	s, err := x.Settings.Read(ctx, repo, base)
	if err == nil && len(s.Keep) > 0 {
		err = prepare.KeptOf(x.Artifacts.Bucket, repo.Name(), c).Save(ctx, h, s.Keep)
	}
	if err != nil {
		x.Log.Warn("files of a container are not kept", "caller", c, "err", err)
	}
}

// ProposeSettings returns a request for a new caller whose branch has, as a change of .ramus/config.yaml, what another
// caller found out: the file of its own branch, and the setup commands that were recorded in its runs. The error is
// [settings.ErrNothing] if that changes nothing.
func (x *Executor) ProposeSettings(ctx context.Context, c record.Caller) (record.Request, error) {
	repo, base, err := x.HomeRepo(ctx, c)
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
	for _, r := range x.Index.OfCaller(c) {
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
