package gateway

import (
	"context"

	"github.com/ramus-dev/ramus/gateway/route"
)

type removeRepoQuery struct {
	Force bool `json:"force,omitempty" jsonschema:"stop the runs in it first"`
}

// RenameRepo is a request to give a repository another name.
type RenameRepo struct {
	Name string `json:"name"`
}

// RepoMoved is the answer to the removal or the renaming of a repository.
type RepoMoved struct {
	Name string `json:"name"`         // that it had
	To   string `json:"to,omitempty"` // that it has; empty if it is gone
	// Hint says what remains to be done, or is empty.
	Hint string `json:"hint,omitempty"`
}

func (api *reposAPI) removeRepo(c *route.Call) error {
	var q removeRepoQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	name := c.R.PathValue("repo")
	if api.Replicas != nil && api.Replicas.Lost(name) != nil { // nothing of it is here but its name
		if err := api.Replicas.Group.Drop(c.R.Context(), name); err != nil {
			return err
		}
		api.Log.Info("the name of a lost repository was given up", "repo", name, "by", c.Who.Subject)
		return c.Reply(RepoMoved{Name: name})
	}
	if err := api.Executor.Repos.Remove(c.R.Context(), name, q.Force, c.Who.Person(api.Executor.Bot)); err != nil {
		return err
	}
	api.Log.Info("repository removed", "repo", name, "by", c.Who.Subject)
	if err := sweepNames(context.WithoutCancel(c.R.Context()), api.Names, api.Executor); err != nil {
		api.Log.Warn("cannot remove the names of sessions; `ramus prune` tries it again", "repo", name, "err", err)
	}
	done := RepoMoved{Name: name}
	if api.Executor.Bases.Sources[name].URL != "" {
		done.Hint = "the configuration names its upstream, so its next use imports it again"
	}
	return c.Reply(done)
}

func (api *reposAPI) renameRepo(c *route.Call) error {
	var q RenameRepo
	if err := c.ReadJSON(&q); err != nil {
		return err
	}
	name := c.R.PathValue("repo")
	repo, err := api.Executor.Repos.Rename(c.R.Context(), name, q.Name, c.Who.Person(api.Executor.Bot))
	if err != nil {
		return err
	}
	api.Log.Info("repository renamed", "repo", name, "to", repo.Name(), "by", c.Who.Subject)
	done := RepoMoved{Name: name, To: repo.Name()}
	if _, configured := api.Executor.Bases.Sources[name]; configured {
		done.Hint = "the configuration has its old name; change it and restart the server"
	}
	return c.Reply(done)
}
