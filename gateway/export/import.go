package export

import (
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Import says where an export goes.
type Import struct {
	Repo   string `json:"repo" jsonschema:"the repository; it has commits in common with the file"`
	New    bool   `json:"new,omitempty" jsonschema:"make the repository"`
	Caller string `json:"caller,omitempty" jsonschema:"the caller's id here; that of the file, with a number if it is taken, if empty"`
	// Public shows everybody the callers that were private on the other server.
	Public bool `json:"public,omitempty" jsonschema:"show everybody a caller that was private on its server"`
	Dry    bool `json:"dry,omitempty" jsonschema:"check the file, say where it would go, and change nothing"`
}

const (
	// MediaLink is the media type of a body that has a link to an export in place of the export.
	MediaLink = "text/uri-list"

	maxLink = 8 << 10
)

func (api *API) importRoute() route.Route {
	return route.Route{Method: "POST", Pattern: "/api/import", Access: route.AccessAdmin, Body: -1,
		Summary: "Take in the export of another server, which is the body or, as text/uri-list, a link to it; its runs are marked as imported and verify nothing",
		Query:   Import{}, Response: export.Imported{}, Handle: api.takeIn}
}

func (api *API) takeIn(c *route.Call) error {
	var q Import
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	var done export.Imported
	var err error
	if media, _, _ := mime.ParseMediaType(c.R.Header.Get("Content-Type")); media == MediaLink {
		link, rerr := io.ReadAll(io.LimitReader(c.R.Body, maxLink+1))
		if rerr != nil {
			return rerr
		}
		done, err = api.ImportLink(c.R.Context(), c.Who, q, strings.TrimSpace(string(link)))
	} else {
		done, err = api.takeFile(c.R.Context(), c.Who, q, c.R.Body)
	}
	if err != nil {
		return err
	}
	return c.Reply(done)
}

// takeFile takes a file in.
func (api *API) takeFile(ctx context.Context, who route.Who, q Import, in io.Reader) (export.Imported, error) {
	if q.Repo == "" {
		return export.Imported{}, route.NewProblem(route.KindInvalid, "the repository is missing: which one does the file go to?")
	}
	w := export.Wish{Repo: q.Repo, New: q.New, Caller: q.Caller, Dry: q.Dry, By: who.Person(gitd.Person{})}
	if !q.Public {
		w.Hide = api.hide(w.By)
	}
	return api.Executor.Importer().Import(ctx, in, w)
}

// ImportLink takes in the export that a link of another server leads to, see [Link]. The caller is an administrator, who can have
// this server connect to any address, as an import of a repository does. Nothing of an answer that is no export is told.
func (api *API) ImportLink(ctx context.Context, who route.Who, q Import, link string) (export.Imported, error) {
	u, err := url.Parse(link)
	if err != nil || len(link) > maxLink || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
		!strings.HasSuffix(u.Path, "/export.bundle") || !strings.Contains(u.Path, "/evidence/") {
		return export.Imported{}, route.NewProblem(route.KindInvalid, "cannot import: %.200q is no link to an export", link).
			WithHint("`ramus export RUN --link` of the other server prints one")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return export.Imported{}, err
	}
	resp, err := linkClient.Do(request)
	if err != nil {
		return export.Imported{}, route.NewProblem(route.KindUnavailable, "cannot import: %s does not answer", u.Host)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return export.Imported{}, route.NewProblem(route.KindInvalid, "cannot import: %s answers with the status %d", u.Host, resp.StatusCode).
			WithHint("a link opens until it expires; the other server makes another one")
	}
	return api.takeFile(ctx, who, q, resp.Body)
}

// linkClient follows no redirection, so that a link leads to the server that it names.
var linkClient = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: time.Minute},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// hide returns the function that makes an imported caller private.
func (api *API) hide(owner gitd.Person) func(context.Context, record.Caller, string) error {
	return func(ctx context.Context, caller record.Caller, repo string) error {
		const hint = "`--public` shows it to everybody who sees the repository"
		if api.Privacy == nil {
			return route.NewProblem(route.KindConflict, "the caller was private on its server, and nothing is private here").
				WithHint(hint)
		}
		if owner.ID == "" {
			return route.NewProblem(route.KindConflict, "the caller was private on its server, and has no owner here").WithHint(hint)
		}
		return api.Privacy.SetPrivate(ctx, caller, repo, true, owner)
	}
}
