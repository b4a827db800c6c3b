package web

import (
	"net/http"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// workspaceActions carries out the forms of the page of a workspace that are not of a pane, and prepares containers while a person types.
type workspaceActions struct {
	executor   *executor.Executor
	find       *lookup.Lookup
	workspaces *workspace.Workspaces
}

func (h *workspaceActions) register(t *table) {
	t.form("/workspaces/warm", "Prepare for a new workspace while its prompt is typed", h.warmRepo)
	t.form("/workspaces/{workspace}/warm", "Wake a workspace while a prompt is typed", h.warmWorkspace)
	t.form("/workspaces/{workspace}/stop", "Stop a workspace, by its page", h.stopWorkspace)
	t.form("/workspaces/{workspace}/restart", "Start a workspace again, by its page", h.restartWorkspace)
	t.form("/workspaces/{workspace}/delete", "Delete a workspace, by its page", h.deleteWorkspace)
	t.form("/workspaces/{workspace}/privacy", "Make a workspace private or show it, by its page", h.setPrivacy)
	t.form("/workspaces/{workspace}/command", "Run a command in a workspace, by its page", h.command)
}

func (h *workspaceActions) stopWorkspace(c *route.Call) error {
	id := c.R.PathValue("workspace")
	if _, err := h.workspaces.Stop(c.R.Context(), c.Who, id); err != nil {
		return err
	}
	return see(c, workspacePath(id))
}

func (h *workspaceActions) restartWorkspace(c *route.Call) error {
	r, err := h.workspaces.Restart(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	return see(c, workspacePath(r.Caller.Slug()))
}

func (h *workspaceActions) deleteWorkspace(c *route.Call) error {
	if _, err := h.workspaces.Delete(c.R.Context(), c.Who, c.R.PathValue("workspace")); err != nil {
		return err
	}
	return see(c, "/workspaces")
}

// setPrivacy makes a workspace private, or shows it.
func (h *workspaceActions) setPrivacy(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	s, err := h.workspaces.SetPrivate(c, c.R.PathValue("workspace"), formText(c, "private", 1) != "")
	if err != nil {
		return err
	}
	return see(c, workspacePath(s.ID))
}

// command runs a command as a run of its own.
func (h *workspaceActions) command(c *route.Call) error {
	s, err := readWorkspaceForm(c, h.workspaces)
	if err != nil {
		return err
	}
	text := formText(c, "command", 64<<10)
	if text == "" {
		return route.NewProblem(route.KindInvalid, "the command is empty")
	}
	r := record.Request{Caller: s.Caller, Repo: s.Repository, Command: &record.Command{Shell: text}}
	if err := h.find.Bind(c.R.Context(), c.Who, &r); err != nil {
		return err
	}
	_, err = h.executor.Submit(c.R.Context(), r)
	if err != nil {
		return err
	}
	return see(c, workspacePath(s.ID)+"?pane="+paneShell)
}

// warmWorkspace wakes the container of a workspace while a person types a prompt. It answers at once.
func (h *workspaceActions) warmWorkspace(c *route.Call) error {
	s, err := h.workspaces.Changeable(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	h.executor.Warmer.WarmUp(s.Caller, by(c))
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}

// warmRepo prepares for a new workspace of a repository while a person types its prompt.
func (h *workspaceActions) warmRepo(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	r, err := h.find.Repo(c.Who, formText(c, "repository", 200))
	if err != nil {
		return err
	}
	base, err := r.Base(c.R.Context())
	if err != nil {
		return err
	}
	if !c.Who.SeesBranch(r.Name(), base) || !c.Who.GrantIn(r.Name()).MayWrite(r.Name()) {
		return route.NewProblem(route.KindDenied, "you may not begin workspaces of %s", r.Name())
	}
	if err := h.executor.Warmer.Expect(c.R.Context(), r.Name(), by(c)); err != nil {
		return err
	}
	c.W.WriteHeader(http.StatusNoContent)
	return nil
}
