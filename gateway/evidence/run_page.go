package evidence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/replay"
	"github.com/ramus-dev/ramus/executor/store"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// Limits of a page. The evidence has everything.
const (
	pageSteps    = 300
	pageFilesMax = 500
	pageShots    = 24
	pageText     = 4 << 10 // of a command, a prompt or an error
	pageLive     = 4 << 10 // of the output of the current command
	pageView     = 1 << 20 // of a text file
	pageReload   = 5       // seconds between two reloads of the page of a run that goes on
)

// RunPage is a run as its page shows it. All texts in it are clean.
type RunPage struct {
	Run                      record.Run
	Title                    string
	State                    badge
	Verdict                  *badge
	Badges                   []badge
	Doing                    string
	Unverified               []string
	Facts                    []fact
	Prompts                  []promptRow
	Tests                    []testRow
	Checks                   []checkRow
	Browser                  []lookRow
	BrowserNote              string
	Steps                    []*stepRow
	StepsNote                string
	Files                    []*diffFile
	FilesNote                string
	Shots, Artifacts         []fileRow
	ArtifactsNote            string
	Egress                   []egressRow
	Clone, Fetch, Now, Until string
	Links                    []pageLink
	Ports                    []pageLink // links to the open ports of its container
	Costs                    *costChart // nil if nothing is known to have cost anything
	Reload                   int        // seconds; 0 if the run has ended
}

type (
	badge struct{ Text, Class string }
	fact  struct {
		Label, Value string
		Mono         bool
	}
	promptRow struct{ By, When, Text string }
	testRow   struct {
		Mark, Class, Framework, Step, Note, Counts string
		FailedNames                                []string
	}
	checkRow  struct{ Mark, Class, Check, Tool, Why, Result string }
	egressRow struct{ Host, Verdict, Class string }
	fileRow   struct{ Name, Size, SHA256, View, File string }
	pageLink  struct{ Text, Href string }
	stepRow   struct {
		Step, Mark, Class, Command, End, Commit, Reason, Message string
		Open, Over                                               bool
		Streams                                                  []streamRow
	}
	streamRow struct {
		Name, Note, Link, Tail string
		raw                    string // Tail as it was printed
	}
)

// Printed returns the end of the stream with its colours.
func (s streamRow) Printed() template.HTML { return markup.Terminal(s.raw) }

// evidencePage shows the current state of a run, or its result if it has ended. It ignores unknown query parameters,
// because mail and chat programs add some to links.
func (api *API) evidencePage(c *route.Call) error {
	r, err := api.evidenceOf(c)
	if err != nil {
		return err
	}
	m, err := api.manifestOf(c, r)
	if err != nil {
		return err
	}
	p, err := api.runPage(c, r, m)
	if err != nil {
		return err
	}
	return page.Write(c.W, http.StatusOK, page.Policy, pages, "run.html", p)
}

// runPage returns the data of a page. m is nil while the run goes on.
func (api *API) runPage(c *route.Call, r record.Run, m *record.Manifest) (*RunPage, error) {
	p := &RunPage{Run: r, Title: runTitle(r), State: stateBadge(r), Now: render.Time(api.Now())}
	p.Run.Error, p.Run.Hint = render.ClipClean(r.Error, pageText), render.ClipClean(r.Hint, pageText)
	if r.Gate != nil {
		p.Run.Gate = &record.Gate{Step: r.Gate.Step, Message: render.ClipClean(r.Gate.Message, pageText),
			Allowed: r.Gate.Allowed}
	}
	if !c.Until.IsZero() {
		p.Until = render.Time(c.Until)
	}
	var policy *record.ManifestPolicy
	kept := map[string]bool{}
	if m != nil {
		policy = m.Policy
		for _, f := range m.Files {
			kept[f.Name] = true
		}
		api.showManifest(c, p, r, m)
		api.showBrowser(c, p, r, m, kept)
		if err := api.showDiff(c, p, r, m); err != nil {
			return nil, err
		}
	}
	steps := steps{api: api, call: c, run: r, kept: kept, by: map[string]*stepRow{}}
	var costs costs
	for e, err := range api.Executor.Events(c.R.Context(), r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		if e.Type == record.EventPolicy {
			policy = &record.ManifestPolicy{Runner: e.Message, Reason: e.Reason}
		}
		steps.add(e)
		costs.add(e)
	}
	p.Costs = costs.chart()
	p.Steps, p.StepsNote = steps.rows(m == nil)
	if m == nil {
		p.Reload = pageReload
		p.Doing = api.doing(c, r)
		p.Ports = api.portLinks(c, r)
	}
	p.Facts = slices.Concat(importFacts(r), api.facts(c, r, m, policy), api.replayFacts(c, r))
	api.showWays(c, p, r, m)
	return p, nil
}

// runTitle returns a one-line description of a run.
func runTitle(r record.Run) string {
	switch {
	case r.Workflow != "":
		return "Workflow " + render.ClipClean(r.Workflow, 200)
	case r.Task != nil:
		return "Task " + render.ClipClean(r.Task.Name, 200)
	case r.Agent != nil:
		line, _, _ := strings.Cut(strings.TrimSpace(r.Agent.Prompt), "\n")
		return render.ClipClean(line, 200)
	case r.Command != "":
		line, _, _ := strings.Cut(strings.TrimSpace(r.Command), "\n")
		return render.ClipClean(line, 200)
	}
	return "Request"
}

func stateBadge(r record.Run) badge {
	switch r.State {
	case record.StateComplete:
		return badge{"Complete", "good"}
	case record.StateFailed:
		switch r.Reason {
		case record.ReasonCancelled:
			return badge{"Cancelled", "warn"}
		case record.ReasonTimedOut:
			return badge{"Timed out", "bad"}
		}
		return badge{"Failed", "bad"}
	case record.StateAwaitingReview:
		return badge{"Waits for an answer", "calm"}
	case record.StateSubmitted:
		return badge{"Submitted", "calm"}
	}
	return badge{"Running", "calm"}
}

func verdictBadge(v record.Verdict) *badge {
	switch v {
	case record.VerdictVerified:
		return &badge{"Verified", "good"}
	case record.VerdictUnverified:
		return &badge{"Not verified", "warn"}
	case record.VerdictFailed:
		return &badge{"Failed verification", "bad"}
	case record.VerdictNone:
		return &badge{"Nothing to verify", ""}
	}
	return nil
}

// doing returns a sentence about the current state of a run that goes on.
func (api *API) doing(c *route.Call, r record.Run) string {
	since := r.CreatedAt
	if !r.StartedAt.IsZero() {
		since = r.StartedAt
	}
	took := render.Duration(api.Now().Sub(since))
	switch {
	case r.Ended():
		return "It has ended; its evidence is being written."
	case r.Place > 0:
		return fmt.Sprintf("Place %d in line for a container, for %s.", r.Place, took)
	case r.StartedAt.IsZero():
		return fmt.Sprintf("It waits for its turn, for %s.", took)
	case r.Step != "":
		return fmt.Sprintf("At work for %s; now at %s.", took, render.ClipClean(r.Step, 200))
	}
	return fmt.Sprintf("At work for %s.", took)
}

// triggerEvent describes the event that had a trigger start the run. Returns "" if the run does not have it.
func triggerEvent(r record.Run) string {
	var e struct {
		Kind  string `json:"kind"`
		Title string `json:"title"`
	}
	if r.Origin == nil || json.Unmarshal(r.Origin.Event, &e) != nil || e.Kind == "" {
		return ""
	}
	return " (" + e.Kind + "): " + e.Title
}

// facts returns the rows of facts at the top of the page.
func (api *API) facts(c *route.Call, r record.Run, m *record.Manifest, policy *record.ManifestPolicy) []fact {
	var list []fact
	add := func(label, value string, mono bool) {
		if value != "" {
			list = append(list, fact{label, render.ClipClean(value, 500), mono})
		}
	}
	add("Asked by", r.Asker.Name, false)
	switch name := r.Trigger(); {
	case name != "":
		add("Trigger", name+triggerEvent(r), false)
	case r.Origin != nil:
		add("Asked in", r.Origin.Source, false)
	}
	add("Asked at", render.Time(r.CreatedAt), false)
	if policy != nil {
		add("Runner", policy.Runner+" ("+policy.Reason+")", false)
	}
	if r.Agent != nil {
		add("Agent", r.Agent.Name, false)
	}
	switch {
	case !r.StartedAt.IsZero() && !r.EndedAt.IsZero():
		add("Took", render.Duration(r.EndedAt.Sub(r.StartedAt))+", after waiting "+
			render.Duration(r.StartedAt.Sub(r.CreatedAt)), false)
	case !r.EndedAt.IsZero():
		add("Ended after", render.Duration(r.EndedAt.Sub(r.CreatedAt)), false)
	}
	base := r.Base + " at " + render.ShortHash(r.BaseCommit)
	if m != nil && !m.BaseRefreshed.IsZero() {
		base += ", refreshed " + render.Duration(r.CreatedAt.Sub(m.BaseRefreshed)) + " before"
	}
	add("Base", base, false)
	add("Branch", r.Branch, true)
	if r.Head != "" {
		head := render.ShortHash(r.Head)
		if r.Head == r.Start {
			head += " (not moved)"
		}
		add("Tip of the branch", head, true)
	}
	if r.Merged != "" {
		add("Merged", r.Base+" is at "+render.ShortHash(r.Merged), false)
	}
	if r.Pull != nil {
		add("Pull request", r.Pull.URL, false)
	}
	usage := r.Usage
	if m != nil {
		usage = m.Usage
		image := m.Engine
		if m.Image != "" {
			image += ", " + m.Image
		}
		add("Engine", image, false)
	}
	if usage != nil {
		text := fmt.Sprintf("%d calls, %d tokens in, %d out", usage.Calls, usage.InputTokens, usage.OutputTokens)
		if usage.CostMicros > 0 {
			text += fmt.Sprintf(", cost %.4f", float64(usage.CostMicros)/1e6)
		}
		add("Model", text, false)
	}
	return list
}

// importFacts returns the row about the server from which a run was imported.
func importFacts(r record.Run) []fact {
	i := r.Imported
	if i == nil {
		return nil
	}
	text := fmt.Sprintf("%s of %s, exported by %s, imported at %s. It is the word of that server", i.Run,
		cmp.Or(i.Origin, "a server without an address"), cmp.Or(i.Exported, "nobody it names"), render.Time(i.Time))
	if i.Verdict != "" {
		text += ", which said: " + string(i.Verdict)
	}
	if i.Asker != "" {
		text += "; asked there by " + i.Asker
	}
	return []fact{{"Imported", render.ClipClean(text, 1000), false}}
}

// replayFacts returns the row about the last replay of a run, if there was one.
func (api *API) replayFacts(c *route.Call, r record.Run) []fact {
	var v replay.Verdict
	repo, err := api.Find.Git.Repo(r.Repo)
	if err == nil {
		v, err = replay.Read(c.R.Context(), repo, r)
	}
	switch {
	case errors.Is(err, gitd.ErrNotFound):
		return nil
	case err != nil:
		return []fact{{"Replayed", "the verdict cannot be read", false}}
	}
	text := fmt.Sprintf("%s: %s, %d same, %d different, %d left out", render.Time(v.Time), v.Result, v.Count(replay.Same),
		v.Count(replay.Differs), v.Count(replay.Left))
	for _, k := range v.Commands {
		if len(k.Differences) > 0 {
			text += fmt.Sprintf("; %s differs in %s", k.Step, k.Differences[0])
			break
		}
	}
	return []fact{{"Replayed", render.ClipClean(text, 500), false}}
}

// showManifest fills in the parts of the page that only the manifest has.
func (api *API) showManifest(c *route.Call, p *RunPage, r record.Run, m *record.Manifest) {
	p.Verdict = verdictBadge(m.Verdict)
	for _, text := range m.Unverified {
		p.Unverified = append(p.Unverified, render.ClipClean(text, 500))
	}
	for _, q := range m.Prompts {
		row := promptRow{By: render.ClipClean(q.By, 100), Text: render.ClipClean(q.Text, pageText)}
		if !q.Time.IsZero() {
			row.When = render.Time(q.Time)
		}
		p.Prompts = append(p.Prompts, row)
	}
	for _, t := range m.Tests {
		row := testRow{Framework: render.ClipClean(t.Framework, 100), Step: render.ClipClean(t.Step, 100), Mark: "✓",
			Class:  "good",
			Counts: fmt.Sprintf("%d passed, %d failed, %d skipped", t.Passed, t.Failed, t.Skipped)}
		if t.Unknown {
			row.Counts = "not counted"
		}
		if !t.OK {
			row.Mark, row.Class = "✗", "bad-text"
		}
		if t.Commit != m.Head {
			row.Note = render.Earlier
		}
		if n := slices.IndexFunc(m.Checks, func(k record.ManifestCheck) bool { return k.Step == t.Step }); n >= 0 && m.Checks[n].Reused != nil {
			row.Note = strings.TrimPrefix(row.Note+", "+render.Reused(m.Checks[n].Reused), ", ")
		}
		for _, name := range t.FailedNames {
			row.FailedNames = append(row.FailedNames, render.ClipClean(name, 500))
		}
		p.Tests = append(p.Tests, row)
	}
	for _, k := range m.Checks {
		if k.Check == "tests" && k.Result.Ran() {
			continue // the rows of tests show it with its counts
		}
		row := checkRow{Check: render.ClipClean(k.Check, 100), Tool: render.ClipClean(k.Tool, 100),
			Why:    render.ClipClean(k.Why, 500),
			Result: string(k.Result), Mark: "✓", Class: "good"}
		switch k.Result {
		case record.CheckFailed:
			row.Mark, row.Class = "✗", "bad-text"
		case record.CheckSkipped:
			row.Mark, row.Class = "–", "warn-text"
		case record.CheckNotRun:
			row.Mark, row.Class, row.Result = "!", "warn-text", "could not run"
		}
		if k.Reused != nil {
			row.Why = strings.TrimPrefix(row.Why+", "+render.Reused(k.Reused), ", ")
		}
		if k.Result.Ran() && !k.Current {
			row.Why = strings.TrimPrefix(row.Why+", "+render.Earlier, ", ")
		}
		p.Checks = append(p.Checks, row)
	}
	for _, e := range m.Egress {
		row := egressRow{Host: render.ClipClean(e.Host, 300), Verdict: e.Verdict}
		if e.Verdict != "allowed" {
			row.Class = "warn-text"
		}
		if !slices.Contains(p.Egress, row) && len(p.Egress) < pageFilesMax {
			p.Egress = append(p.Egress, row)
		}
	}
	api.showArtifacts(c, p, r, m)
}

func (api *API) showArtifacts(c *route.Call, p *RunPage, r record.Run, m *record.Manifest) {
	count := 0
	for _, f := range m.Files {
		name, ok := strings.CutPrefix(f.Name, "artifacts/")
		if !ok {
			continue
		}
		if count++; len(p.Artifacts) >= pageFilesMax {
			continue
		}
		row := fileRow{Name: render.ClipClean(name, 500), Size: bytesize.Text(f.Size), SHA256: f.SHA256,
			File: c.Link(links.FilePath(r, f.Name))}
		if viewable(f.Type) {
			row.View = viewLink(c, r, f.Name)
		}
		if strings.HasPrefix(render.Showable(f.Type), "image/") && !isLook(f.Name) && len(p.Shots) < pageShots {
			p.Shots = append(p.Shots, row)
		}
		p.Artifacts = append(p.Artifacts, row)
	}
	if count > len(p.Artifacts) {
		p.ArtifactsNote = fmt.Sprintf("the first %d of %d; the bundle has all", len(p.Artifacts), count)
	}
}

// viewable reports whether files of a media type can be shown in a page.
func viewable(media string) bool {
	return strings.HasPrefix(media, "text/") || render.Showable(media) != ""
}

func viewLink(c *route.Call, r record.Run, name string) string {
	link := c.Link(links.FilePath(r, name))
	if strings.Contains(link, "?") {
		return link + "&view=1"
	}
	return link + "?view=1"
}

// showWays fills in the commands and links with which people get the evidence.
func (api *API) showWays(c *route.Call, p *RunPage, r record.Run, m *record.Manifest) {
	if address := c.CloneURL(r.Repo); address != "" && r.Head != "" {
		p.Clone = fmt.Sprintf("git clone -b %s %s", r.Branch, address)
	}
	p.Links = []pageLink{{"status", c.Link(links.RunPath(r) + "/status.json")}}
	if m == nil {
		return
	}
	if p.Clone != "" {
		ref := "refs/ramus/runs/" + r.Caller.Slug() + "/" + r.ID
		p.Fetch = fmt.Sprintf("git fetch origin %s:%s", ref, ref)
	}
	p.Links = append([]pageLink{
		{"all files (.tar.gz)", c.Link(links.RunPath(r) + "/bundle.tar.gz")},
		{"manifest", c.Link(links.FilePath(r, manifestName))},
		{"journal", viewLink(c, r, "journal.jsonl")},
		{"diff", viewLink(c, r, "evidence/changes.diff")},
	}, p.Links...)
}

// steps collects the commands of a run from its journal.
type steps struct {
	api  *API
	call *route.Call
	run  record.Run
	kept map[string]bool // files of the manifest
	list []*stepRow
	by   map[string]*stepRow
}

func (s *steps) add(e record.Event) {
	switch e.Type {
	case record.EventStepStarted:
		row := s.by[e.Step]
		if row == nil {
			row = &stepRow{Step: render.ClipClean(e.Step, 200)}
			s.by[e.Step] = row
			s.list = append(s.list, row)
		}
		row.Command, row.Mark, row.Class, row.Open, row.Over, row.End = commandText(e), "·", "soft", true, false, "no result"
	case record.EventStepFinished:
		row := s.by[e.Step]
		if row == nil {
			row = &stepRow{Step: render.ClipClean(e.Step, 200), Command: commandText(e)}
			s.by[e.Step] = row
			s.list = append(s.list, row)
		}
		ok := e.OK != nil && *e.OK
		row.Over, row.Open, row.Mark, row.Class = true, !ok, "✓", "good"
		if !ok {
			row.Mark, row.Class = "✗", "bad-text"
		}
		row.End = render.Duration(time.Duration(e.DurationMS) * time.Millisecond)
		if e.Exit != nil {
			row.End = fmt.Sprintf("exit %d · %s", *e.Exit, row.End)
		}
		if e.Reused != nil {
			row.End = strings.TrimSuffix(row.End, render.Duration(time.Duration(e.DurationMS)*time.Millisecond)) + "known"
		}
		row.Commit, row.Reason, row.Message = render.ShortHash(e.Commit), render.ClipClean(e.Reason, 100),
			render.ClipClean(strings.TrimPrefix(e.Message+"\n"+render.Reused(e.Reused), "\n"), pageText)
		row.Streams = nil
		// The output as the task parsed it is easier to read than the raw output of its tool.
		var task struct {
			Result struct {
				Output struct {
					Stdout string `json:"stdout"`
					Stderr string `json:"stderr"`
				} `json:"output"`
			} `json:"result"`
		}
		if e.Task != "" {
			_ = json.Unmarshal(e.Data, &task) // on an error, the end of the stream is shown
		}
		s.stream(row, "output", e.Stdout, task.Result.Output.Stdout)
		s.stream(row, "errors", e.Stderr, task.Result.Output.Stderr)
	}
}

func commandText(e record.Event) string {
	if e.Command != "" {
		return render.ClipClean(e.Command, pageText)
	}
	return render.ClipClean(e.Step, 200)
}

func (s *steps) stream(row *stepRow, name string, st *record.Stream, better string) {
	if st == nil || st.Bytes == 0 {
		return
	}
	out := streamRow{Name: name, Tail: render.Clean(st.Tail), raw: st.Tail}
	switch {
	case better != "":
		out.raw = better[max(0, len(better)-pageLive):]
		out.Tail = render.Clean(out.raw)
		out.Note = "as the task read it"
		if len(better) > pageLive {
			out.Note = "the end, " + out.Note
		}
	case int64(len(st.Tail)) < st.Bytes:
		out.Note = "the end of " + bytesize.Text(st.Bytes)
	}
	if file := "output/" + st.File; st.File != "" && s.kept[file] {
		out.Link = viewLink(s.call, s.run, file)
	}
	row.Streams = append(row.Streams, out)
}

// rows returns the commands to show and a note. If live is set, a current command has its latest output.
func (s *steps) rows(live bool) ([]*stepRow, string) {
	note := ""
	list := s.list
	if len(list) > pageSteps {
		note = fmt.Sprintf("the last %d of %d; the journal has all", pageSteps, len(list))
		list = list[len(list)-pageSteps:]
	}
	if len(list) == 1 {
		list[0].Open = true
	}
	if !live {
		return list, note
	}
	for step, row := range s.by {
		if row.Over || !slices.Contains(list, row) {
			continue
		}
		row.Mark, row.Class, row.End = "▸", "calm", "at work"
		for name, stream := range map[string]string{"output": "stdout", "errors": "stderr"} {
			if tail := s.api.liveTail(s.call, s.run, step, stream); tail != "" {
				row.Streams = append(row.Streams, streamRow{Name: name, Tail: render.Clean(tail), raw: tail})
			}
		}
		slices.SortFunc(row.Streams, func(a, b streamRow) int { return strings.Compare(b.Name, a.Name) })
	}
	return list, note
}

// liveTail returns the end of the output of the current command as it is.
func (api *API) liveTail(c *route.Call, r record.Run, step, stream string) string {
	out, err := api.Executor.Output(c.R.Context(), r.Name(), step, stream)
	if err != nil {
		return "" // the command has only just begun or has ended meanwhile; the next reload shows it
	}
	defer out.Close()
	if f, ok := out.(io.Seeker); ok {
		_, _ = f.Seek(-pageLive, io.SeekEnd) // a shorter output is read from its beginning
	}
	b, _ := io.ReadAll(io.LimitReader(out, pageLive))
	return string(b)
}

// viewPage is the data of the page of one file.
type viewPage struct {
	Run, Name, Size, Type, SHA256 string
	Page, File                    string
	Image, Film, IsText           bool
	Text, Cut                     string
}

// viewFile shows a file in a sandboxed page. The file itself is never served as a page.
func (api *API) viewFile(c *route.Call, r record.Run, f *store.File) error {
	p := viewPage{Run: r.Name(), Name: render.ClipClean(f.Name, 500), Size: bytesize.Text(f.Size), Type: f.Type,
		SHA256: f.SHA256,
		Page:   c.Link(links.RunPath(r)), File: c.Link(links.FilePath(r, f.Name))}
	media := render.Showable(f.Type)
	switch {
	case strings.HasPrefix(media, "image/"):
		p.Image = true
	case media != "":
		p.Film = true
	case strings.HasPrefix(f.Type, "text/"):
		b := make([]byte, min(f.Size, pageView))
		if _, err := io.ReadFull(f, b); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		p.IsText, p.Text = true, render.Clean(string(b))
		if f.Size > pageView {
			p.Cut = fmt.Sprintf("Only the first %s are shown.", bytesize.Text(pageView))
		}
	}
	return page.Write(c.W, http.StatusOK, page.SandboxPolicy, pages, "view.html", p)
}

// manifestName is the name of the manifest among the files of a sealed run.
const manifestName = "evidence/manifest.json"

// portsWithin limits how long a page waits for the list of open ports.
const portsWithin = time.Second

// maxPortLinks limits how many ports the page of a run links to.
const maxPortLinks = 16

// portLinks returns links to the open ports of the container of a run that goes on.
func (api *API) portLinks(c *route.Call, r record.Run) []pageLink {
	if api.Links == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.R.Context(), portsWithin)
	defer cancel()
	open, err := api.Programs.Ports(ctx, r.Caller)
	if err != nil {
		return nil // the run has no container yet or the container is busy; the next reload asks again
	}
	var list []pageLink
	for _, port := range open[:min(len(open), maxPortLinks)] {
		list = append(list, pageLink{strconv.Itoa(port), c.Link(links.PreviewPath(r.Caller, port))})
	}
	return list
}
