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
	"github.com/ramus-dev/ramus/gateway/links"
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
	// Links signs the links. Nil means that there are none.
	Links *links.Signer
	// Loopback is the base URL of links if no other is known. Empty means none.
	Loopback string
	Version  string // of the program
	Now      func() time.Time

	packing route.Streams // exports that are being made
}

// mostPacked bounds the exports that are made at once.
const mostPacked = 8

// New returns the API. Its other fields are set before the first request.
func New(x *executor.Executor, find *lookup.Lookup) *API {
	api := &API{Executor: x, Find: find}
	api.packing.Max = mostPacked
	return api
}

// MediaCast is the media type of a recording of a terminal.
const MediaCast = "application/x-asciicast"

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
		{Method: "GET", Pattern: "/api/runs/{run}/cast", Access: route.AccessRead,
			Summary: "The commands of a run and their outputs as a recording of a terminal, asciicast v2",
			Media:   MediaCast, Handle: api.cast},
		{Method: "POST", Pattern: "/api/runs/{run}/export/link", Access: route.AccessWrite,
			Summary:  "Make a link to the export of a run that opens without a token until it expires",
			Response: Link{}, Handle: api.link},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/export.bundle", Access: route.AccessSigned,
			Summary: "The export of a run, by a link that was made for it", Query: linkQuery{},
			Media: MediaBundle, Handle: api.linked},
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
	return api.SendCaller(c, st)
}

// SendCaller answers with a caller and those of its runs that the caller of the request sees.
func (api *API) SendCaller(c *route.Call, st executor.CallerStatus) error {
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
	release, err := api.packing.Acquire(c.Who)
	if err != nil {
		return route.NewProblem(route.KindLimited, "as many exports are made as may at once").
			WithHint("try again when another one has ended")
	}
	defer release()
	last := q.Runs[len(q.Runs)-1]
	repo, err := api.Executor.Git.Repo(last.Repo)
	if err != nil {
		return err
	}
	q.WithoutArtifacts = asked.WithoutArtifacts
	q.Origin, q.Version, q.By = c.Address(), api.Version, c.Who.Subject
	q.Private = api.isPrivate(last)
	parcel, err := api.Executor.Exporter(repo).Prepare(c.R.Context(), q)
	if err != nil {
		return err
	}
	defer parcel.Close() // the next start of the server removes the rest
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
