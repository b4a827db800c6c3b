package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Privacy keeps which callers are private.
type Privacy interface {
	IsPrivate(c record.Caller) bool
	// SetPrivate makes a caller of a repository private for its owner, or shows it to everybody. It counts when it is on disk.
	SetPrivate(ctx context.Context, c record.Caller, repo string, private bool, owner gitd.Person) error
}

// NewPrivacy changes who sees a workspace.
type NewPrivacy struct {
	Private bool `json:"private" jsonschema:"only its owner and administrators see it"`
}

// errNoPrivacy is the problem of a server on which nothing can be private.
func errNoPrivacy() error {
	return route.NewProblem(route.KindConflict, "this server keeps no private workspaces")
}

// fromPrivate reports whether a wish begins from a private workspace.
func (w *Workspaces) fromPrivate(n Wish) bool {
	of, ok := CallerOf(n.From)
	return ok && w.Privacy != nil && w.Privacy.IsPrivate(of)
}

// createPrivate begins a private workspace.
func (w *Workspaces) createPrivate(ctx context.Context, who route.Who, r record.Request) (record.Run, error) {
	if w.Privacy == nil {
		return record.Run{}, errNoPrivacy()
	}
	if r.Caller.IsZero() {
		r.Caller = drawCaller(w.Executor, r.Key)
	}
	return SubmitPrivate(ctx, w.Executor, w.Privacy, who.Person(r.Asker), r)
}

// SubmitPrivate begins a run of a caller that is private before it begins. A caller without a name gets one.
func SubmitPrivate(ctx context.Context, x Executor, p Privacy, owner gitd.Person,
	r record.Request) (record.Run, error) {
	if r.Caller.IsZero() {
		r.Caller = drawCaller(x, "")
	}
	repeated := len(x.OfCaller(r.Caller)) > 0 // with the same key
	if !repeated {
		if err := p.SetPrivate(ctx, r.Caller, r.Repo, true, owner); err != nil {
			return record.Run{}, err
		}
	}
	run, err := x.Submit(ctx, r)
	if err != nil && !repeated && len(x.OfCaller(r.Caller)) == 0 {
		// The name is free again.
		clean := p.SetPrivate(context.WithoutCancel(ctx), r.Caller, r.Repo, false, owner)
		return run, errors.Join(err, clean)
	}
	return run, err
}

// Hide makes the new caller of a request private if it begins from a private one, for the person who began that one. The
// request is bound, and its caller gets a name if it has none. settle is called with the error of the request. It returns
// the error, and frees the name if the caller did not begin.
func Hide(ctx context.Context, x Executor, p Privacy, r *record.Request) (settle func(error) error, err error) {
	settle = func(err error) error { return err }
	name := ""
	switch {
	case r.Fork != nil:
		name = r.Fork.Of
	case r.Of != "" && r.From != "":
		name, _, _ = strings.Cut(r.Of, "/")
	}
	of, err := record.ParseCaller(name)
	if err != nil || p == nil || !p.IsPrivate(of) {
		return settle, nil
	}
	if r.Caller.IsZero() {
		r.Caller = drawCaller(x, r.Key)
	}
	if len(x.OfCaller(r.Caller)) > 0 {
		return settle, nil // it is there, or the request is repeated
	}
	caller, repo, owner := r.Caller, r.Repo, r.Asker
	if runs := x.OfCaller(of); len(runs) > 0 {
		repo, owner = runs[len(runs)-1].Repo, runs[0].Asker
	}
	if err := p.SetPrivate(ctx, caller, repo, true, owner); err != nil {
		return settle, err
	}
	return func(err error) error {
		if err == nil || len(x.OfCaller(caller)) > 0 {
			return err
		}
		return errors.Join(err, p.SetPrivate(context.WithoutCancel(ctx), caller, repo, false, owner))
	}, nil
}

// drawCaller returns a caller that has no runs. The name follows from the key, if there is one, so that a request that
// is repeated finds its workspace.
func drawCaller(x Executor, key string) record.Caller {
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		c, _ := record.RunCaller("w-" + hex.EncodeToString(sum[:8])) // it fits the form
		return c
	}
	for {
		c, _ := record.RunCaller(record.NewID(2)) // ids that are drawn fit the form
		if len(x.OfCaller(c)) == 0 {
			return c
		}
	}
}

// SetPrivate makes a workspace private, or shows it to everybody who sees its repository. Only its owner and
// administrators may.
func (w *Workspaces) SetPrivate(c *route.Call, id string, private bool) (Workspace, error) {
	ctx := c.R.Context()
	s, err := w.Changeable(ctx, c.Who, id)
	switch {
	case err != nil:
		return s, err
	case w.Privacy == nil:
		return s, errNoPrivacy()
	case !c.Who.Admin() && (s.Owner.ID == "" || s.Owner.ID != c.Who.Subject):
		return s, route.NewProblem(route.KindDenied, "%s belongs to %s", s.Name, s.Owner.Name).
			WithHint("its owner, or an administrator, says who sees it")
	}
	if err := w.Privacy.SetPrivate(ctx, s.Caller, s.Repository, private, s.Owner); err != nil {
		return s, err
	}
	action := "workspace.show"
	if private {
		action = "workspace.hide"
	}
	if err := c.Audit(action, s.ID); err != nil {
		return s, err
	}
	s.Private = private
	return s, nil
}

func (api *API) setPrivate(c *route.Call) error {
	var n NewPrivacy
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	s, err := api.SetPrivate(c, c.R.PathValue("workspace"), n.Private)
	if err != nil {
		return err
	}
	return c.Reply(s)
}
