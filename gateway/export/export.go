package export

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/export"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// MediaBundle is the media type of an export.
const MediaBundle = "application/x-git-bundle"

// API serves the routes of exports. Its fields are its options.
type API struct {
	Executor *executor.Executor
	Find     *lookup.Lookup
	// Privacy keeps which callers are private. Nil means none.
	Privacy workspace.Privacy
	Version string // of the program
	Now     func() time.Time
}

// SummaryHeader is the header of an answer that has a [Summary], as JSON in base64.
const SummaryHeader = "Ramus-Export"

// Summary describes an export in front of its bytes.
type Summary struct {
	Caller    record.Caller `json:"caller"`
	Branch    string        `json:"branch"`
	Head      gitd.Hash     `json:"head"`
	Runs      int           `json:"runs"`
	Artifacts int           `json:"artifacts"` // of the artifact store
	// LeftOut are sentences about work that the file lacks, at most 20.
	LeftOut []string `json:"left_out,omitempty"`
}

func summarize(m export.Manifest) Summary {
	return Summary{Caller: m.Caller, Branch: m.Branch, Head: m.Head, Runs: len(m.Runs), Artifacts: len(m.Artifacts),
		LeftOut: m.LeftOut[:min(len(m.LeftOut), 20)]}
}

// Query chooses the contents of an export.
type Query struct {
	WithoutArtifacts bool `json:"without_artifacts,omitempty" jsonschema:"leave out the files of the artifact store"`
}

// Routes returns the routes.
func (api *API) Routes() []route.Route {
	return []route.Route{
		{Method: "GET", Pattern: "/api/runs/{run}/export", Access: route.AccessRead,
			Summary: "One run with its branch, record, outputs and artifacts, as a file that git clone opens",
			Query:   Query{}, Media: MediaBundle, Handle: api.run},
		{Method: "GET", Pattern: "/api/callers/{caller}/export", Access: route.AccessRead,
			Summary: "A caller with its branch and the records of its runs, as a file that git clone opens",
			Query:   Query{}, Media: MediaBundle, Handle: api.caller},
		api.importRoute(),
	}
}

func (api *API) run(c *route.Call) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	return api.send(c, export.Request{Runs: []record.Run{r}, One: true})
}

func (api *API) caller(c *route.Call) error {
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	var q export.Request
	for _, r := range api.Executor.OfCaller(st.Caller) {
		if r.Repo == st.Repo && c.Who.SeesRun(r) {
			q.Runs = append(q.Runs, r)
		}
	}
	return api.send(c, q)
}

// send answers with an export.
func (api *API) send(c *route.Call, q export.Request) error {
	var asked Query
	if err := c.ReadQuery(&asked); err != nil {
		return err
	}
	return api.sendAs(c, asked, q)
}

func (api *API) sendAs(c *route.Call, asked Query, q export.Request) error {
	last := q.Runs[len(q.Runs)-1]
	repo, err := api.Executor.Git.Repo(last.Repo)
	if err != nil {
		return err
	}
	q.WithoutArtifacts = asked.WithoutArtifacts
	q.Origin, q.Version, q.By = c.Address(), api.Version, c.Who.Subject
	q.Private = api.Privacy != nil && api.Privacy.IsPrivate(last.Caller)
	parcel, err := api.Executor.Exporter(repo).Prepare(c.R.Context(), q)
	if err != nil {
		return err
	}
	defer parcel.Close() // what is left goes when the server starts
	page.MarkPrivate(c.W.Header())
	name := last.Caller.String()
	if q.One {
		name = last.Name()
	}
	c.MarkAttachment(strings.NewReplacer(":", "-", "/", "-").Replace(name) + ".bundle")
	c.W.Header().Set("Content-Type", MediaBundle)
	about, err := json.Marshal(summarize(parcel.Manifest))
	if err != nil {
		return err
	}
	c.W.Header().Set(SummaryHeader, base64.StdEncoding.EncodeToString(about))
	if err := parcel.Write(c.R.Context(), struct{ io.Writer }{c.W}); err != nil {
		return c.CutShort(err)
	}
	return nil
}
