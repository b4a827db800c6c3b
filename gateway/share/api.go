package share

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/timeline"
	"github.com/ramus-dev/ramus/gitd"
)

// Path is the path below which links are.
const Path = "/shared/"

// The life of a link, in days.
const (
	DefaultDays = 7
	MaxDays     = 90
)

// The actions of people in the log.
const (
	ActionMake   = "share.make"
	ActionRevoke = "share.revoke"
)

// maxListed bounds a list of links.
const maxListed = 500

// API makes, lists, revokes and opens links. Its fields are its options. All methods are safe for concurrent use.
type API struct {
	// Store keeps the records. Nil means that there are no links.
	Store *Store
	Find  *lookup.Lookup
	// Timelines finds moments.
	Timelines *timeline.Timelines
	// Links signs the tokens. Nil means that there are no links.
	Links *links.Signer
	// Owner returns the id of the owner of a workspace, and whether the workspace is private. Nil means that none is.
	Owner func(c record.Caller) (id string, private bool)
	// Moved reports whether another server of the installation has a repository, which lists its links. Nil means that none has.
	Moved func(repo string) bool
	// Loopback is the base of links if people reach the server at no known address.
	Loopback string
	Now      func() time.Time
}

// Wish is a wish for a link.
type Wish struct {
	// Of is a run ("run:brave-otter/ID") or a caller.
	Of string `json:"of" jsonschema:"a run, or a caller for its conversation"`
	At string `json:"at,omitempty" jsonschema:"the id of a command of the caller, for a link to that moment of its timeline"`
	// Days is how long the link opens. The default is [DefaultDays], and the most [MaxDays].
	Days int `json:"days,omitempty" jsonschema:"how many days the link opens, 7 if it is missing and at most 90"`
}

// Link is a link with its record.
type Link struct {
	Record
	Count
	// URL is set in the answer that made the link, and nowhere else.
	URL string `json:"url,omitempty"`
	// State is "open", "expired" or "revoked".
	State string `json:"state"`
}

// The states of links.
const (
	StateOpen    = "open"
	StateExpired = "expired"
	StateRevoked = "revoked"
)

// listQuery is the query of a list of links.
type listQuery struct {
	Of string `json:"of,omitempty" jsonschema:"a caller, to which the list is limited"`
}

// Routes returns the routes of links.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/shares", Access: route.AccessRead, Query: listQuery{}, Response: []Link{}, Handle: api.list,
			Summary: "The links that the caller of the request made, and for administrators all: of what, until when, and how often they were opened"},
		{Method: "POST", Pattern: "/api/shares", Access: route.AccessWrite, Request: Wish{}, Response: Link{}, Handle: api.make,
			Summary: "Make a link to a run, a moment of a timeline or a conversation that opens without signing in"},
		{Method: "DELETE", Pattern: "/api/shares/{share}", Access: route.AccessWrite, Response: Link{}, Handle: api.revoke,
			Summary: "Revoke such a link"},
	}
}

func (api *API) list(c *route.Call) error {
	var q listQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	list, err := api.List(c.R.Context(), c.Who, q.Of)
	if err != nil {
		return err
	}
	return c.Reply(list)
}

func (api *API) make(c *route.Call) error {
	var w Wish
	if err := c.ReadJSON(&w); err != nil {
		return err
	}
	l, err := api.Make(c.R.Context(), c.Who, w, c.Address())
	if err != nil {
		return err
	}
	if err := c.Audit(ActionMake, l.Of()); err != nil {
		return err
	}
	return c.Reply(l)
}

func (api *API) revoke(c *route.Call) error {
	l, err := api.Revoke(c.R.Context(), c.Who, c.R.PathValue("share"))
	if err != nil {
		return err
	}
	if err := c.Audit(ActionRevoke, l.Of()); err != nil {
		return err
	}
	return c.Reply(l)
}

// ready returns a problem if there are no links here.
func (api *API) ready() error {
	if api.Store == nil || api.Links == nil {
		return route.NewProblem(route.KindConflict, "this server makes no links")
	}
	return nil
}

// Make makes a link, for people who may change the branch of the caller. address is the URL at which people reach the server, or
// empty.
func (api *API) Make(ctx context.Context, who route.Who, w Wish, address string) (Link, error) {
	if err := api.ready(); err != nil {
		return Link{}, err
	}
	address, err := api.Links.Address(address, api.Loopback)
	if err != nil {
		return Link{}, route.NewProblem(route.KindConflict, "%v", err).WithHint("set `url` in the configuration")
	}
	if _, err := record.ParseCaller(who.Subject); err == nil {
		return Link{}, route.NewProblem(route.KindDenied, "%s makes no links, because only people decide who reads their work", who.Subject)
	}
	r, st, err := api.target(ctx, who, w)
	if err != nil {
		return Link{}, err
	}
	if err := who.CheckChangeCaller(st); err != nil {
		return Link{}, err
	}
	days := cmp.Or(w.Days, DefaultDays)
	if days < 1 || days > MaxDays {
		return Link{}, route.NewProblem(route.KindInvalid, "a link opens for 1 to %d days, and not for %d", MaxDays, days)
	}
	if owner, private := api.owner(r.Caller); private {
		if owner == "" || owner != who.Subject {
			return Link{}, route.NewProblem(route.KindDenied, "%s is private, and only its owner makes links to it", r.Caller)
		}
		r.Private = true
	}
	r.ID, r.By = strings.ToLower(rand.Text()[:16]), who.Person(gitd.Person{})
	r.Made = api.Now().UTC().Truncate(time.Second)
	r.Expires = r.Made.Add(time.Duration(days) * 24 * time.Hour)
	if err := api.Store.Make(ctx, r); err != nil {
		return Link{}, err
	}
	return Link{Record: r, State: StateOpen, URL: address + api.path(r)}, nil
}

// path returns the path of a link, with its token.
func (api *API) path(r Record) string {
	return Path + r.ID + "/" + api.Links.Pass(Path+r.ID, r.Expires)
}

// target returns the record of the thing that a wish names.
func (api *API) target(ctx context.Context, who route.Who, w Wish) (Record, executor.CallerStatus, error) {
	if w.Of == "" {
		return Record{}, executor.CallerStatus{}, route.NewProblem(route.KindInvalid, "of is missing: it names a run or a caller")
	}
	if strings.Contains(w.Of, "/") {
		if w.At != "" {
			return Record{}, executor.CallerStatus{}, route.NewProblem(route.KindInvalid, "at is a moment of a caller, and %.200q is a run", w.Of)
		}
		run, err := api.Find.Run(ctx, who, w.Of)
		if err != nil {
			return Record{}, executor.CallerStatus{}, err
		}
		st, err := api.Find.Caller(ctx, who, run.Caller.String())
		return Record{Kind: KindRun, Repo: run.Repo, Caller: run.Caller, Run: run.ID}, st, err
	}
	st, err := api.Find.Caller(ctx, who, w.Of)
	if err != nil {
		return Record{}, st, err
	}
	r := Record{Kind: KindConversation, Repo: st.Repo, Caller: st.Caller}
	if w.At == "" {
		return r, st, nil
	}
	line, err := api.Timelines.Read(ctx, who, st.Caller, timeline.Window{At: w.At, Ticks: 1})
	if err != nil {
		return r, st, err
	}
	if line.At < 0 {
		return r, st, route.NotFound("moment", w.At)
	}
	r.Kind, r.Moment = KindMoment, line.Ticks[line.At].ID
	return r, st, nil
}

func (api *API) owner(c record.Caller) (string, bool) {
	if api.Owner == nil {
		return "", false
	}
	return api.Owner(c)
}

// RepoOf returns the repository of a link. Returns "" if there is no such link.
func (api *API) RepoOf(id string) string {
	if api.Store == nil {
		return ""
	}
	r, _ := api.Store.Get(id)
	return r.Repo
}

// mine reports whether a person may list and revoke a link.
func mine(who route.Who, r Record) bool {
	return who.Admin() || r.By.ID != "" && r.By.ID == who.Subject
}

// List returns the links that a person made, and for administrators all, the newest first. of limits them to a caller, and is empty for all.
func (api *API) List(ctx context.Context, who route.Who, of string) ([]Link, error) {
	if err := api.ready(); err != nil {
		return nil, err
	}
	var caller record.Caller
	if of != "" {
		st, err := api.Find.Caller(ctx, who, of)
		if err != nil {
			return nil, err
		}
		caller = st.Caller
	}
	if err := api.Store.KeepCounts(); err != nil {
		return nil, err
	}
	list := []Link{}
	for _, r := range api.Store.List() {
		if api.Moved != nil && api.Moved(r.Repo) || !mine(who, r) || of != "" && r.Caller != caller {
			continue
		}
		if list = append(list, api.linkOf(r)); len(list) == maxListed {
			break
		}
	}
	return list, nil
}

// linkOf returns a link without its token.
func (api *API) linkOf(r Record) Link {
	l := Link{Record: r, Count: api.Store.Count(r.ID), State: StateOpen}
	switch {
	case !r.Revoked.IsZero():
		l.State = StateRevoked
	case !r.Open(api.Now()):
		l.State = StateExpired
	}
	return l
}

// Revoke ends a link that a person made. Administrators end those of everybody.
func (api *API) Revoke(ctx context.Context, who route.Who, id string) (Link, error) {
	if api.ready() != nil {
		return Link{}, route.NotFound("link", id)
	}
	r, ok := api.Store.Get(id)
	if !ok || !mine(who, r) {
		return Link{}, route.NotFound("link", id)
	}
	r, err := api.Store.Revoke(ctx, id, who.Person(gitd.Person{}))
	if err == nil {
		err = api.Store.KeepCounts()
	}
	if err != nil {
		return Link{}, err
	}
	return api.linkOf(r), nil
}

// Read returns the record of a link that somebody opens with a token, and counts that if count is set. Without the token, nobody learns
// whether there is such a link.
func (api *API) Read(id, token string, count bool) (Record, error) {
	none := route.NewProblem(route.KindNotFound, "this link does not open").WithHint("ask for a new one")
	if api.ready() != nil {
		return Record{}, none
	}
	r, ok := api.Store.Get(id)
	if _, err := api.Links.CheckPass(Path+id, token); !ok || errors.Is(err, links.ErrForged) {
		return Record{}, none
	}
	if !r.Open(api.Now()) || api.closed(r) {
		return Record{}, route.NewProblem(route.KindNotFound, "this link has ended").WithHint("ask for a new one")
	}
	if count {
		api.Store.countOpening(id)
	}
	return r, nil
}

// closed reports whether the workspace of a link has become private, and somebody else made the link.
func (api *API) closed(r Record) bool {
	owner, private := api.owner(r.Caller)
	return private && owner != r.By.ID
}

// Guest returns the caller of a request that came by a link. It sees the branch of one caller, and changes nothing.
func (r Record) Guest() route.Who {
	return route.Who{Subject: "link:" + r.ID, Repo: "*", Scopes: []string{gitd.ScopeRead}, Read: []string{"refs/heads/" + r.Caller.Branch()}}
}
