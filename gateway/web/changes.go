package web

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/comment"
	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/page"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/seen"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Limits of the page of changes.
const (
	maxPictureBytes = 8 << 20
	maxFolderLinks  = 30
	maxElements     = 3900 // of the whole page
)

// contexts are the numbers of equal lines around a difference that the page offers.
var contexts = []int{3, 20, 200, 10_000}

// changesData is the data of the page of changes. All texts are clean.
type changesData struct {
	Workspace workspace.Workspace
	Path      string // of the workspace
	changes.Set
	Files   []*fileChanged
	Folders []folderLink
	Only    bool // one file, by its path
	Find    string
	Split   bool
	// Query are the parameters of the page, for forms that lead back to it.
	Query string
	// Keeps is set if marks are kept. Marked counts the viewed files of the page.
	Keeps, Fresh bool
	Marked       int
	Looked       time.Time
	// Choices are links that show the changes in another way. Back shows all files, and Before and After the parts next to this one.
	Choices             []choice
	Back, Before, After string
	// Repos are links to the changes in the other repositories of the workspace. In is the one that is shown, if it is not its own.
	Repos []choice
	In    string
	// Ends are the revisions that the person asked for.
	Ends changes.Window
	// Newer is the link to the changes with the commits that there are since the page was opened.
	Newer    string
	Comments *commentsData // nil if there are none
	may      bool          // the person may change the workspace
	Stale    bool          // there are newer comments, and no newer commits
	Begin    string        // the link to all changes since the base, if the page shows others
	Since    string        // the link to the changes since the person looked
}

type (
	choice struct {
		Text, Path, Key string
		Current         bool
	}
	folderLink struct {
		Name, Path string
		Files      int
	}
)

// fileChanged is a file of the page.
type fileChanged struct {
	*changes.File
	Name, Was, Folder, Base, Mark, Word string
	Notes                               []string
	Viewed, Pictures                    bool
	Path                                string // of the page with this file alone
	Before, After                       string // links to pictures
	Save                                string // the link to the file, if it is one of the end of the branch
	Lines                               template.HTML
	Sizes                               string
	Part, More                          string // links to the first and to the next part of its lines
	Hidden                              string // why there are no lines
}

// changesView is how a page of changes is shown.
type changesView struct {
	changes.Window
	Split bool
	// Shown is the commit that an open page shows, with the version of the comments. Empty means that it is being opened.
	Shown string
	// Comment is the name of the line that has the form of a new comment.
	Comment string
	at      string // the path of the page
	// prefix comes before paths in lines, which no template makes.
	prefix string
}

// changesPages serves the changes of workspaces.
type changesPages struct {
	address    string
	find       *lookup.Lookup
	workspaces *workspace.Workspaces
	changes    *changes.Changes
	seen       *seen.Store // nil means that the marks of people are not kept
	comments   *commentPages
	colours    colours
}

func (h *changesPages) register(t *table) {
	t.page("/workspaces/{workspace}/changes", "The files that a workspace changed, with their lines", h.changesPage)
	t.form("/workspaces/{workspace}/changes/{action}", "Mark changes as viewed or looked at, by their page", h.markChanges)
	t.file("/workspaces/{workspace}/changes/picture", "A picture of a commit, for the page of changes", route.MediaBytes, h.changePicture)
}

// readView reads the parameters of a page of changes.
func (h *changesPages) readView(c *route.Call, s workspace.Workspace) changesView {
	q := c.R.URL.Query()
	number := func(name string) int {
		n, err := strconv.Atoi(q.Get(name))
		if err != nil || n < 0 || n > 1<<30 {
			return 0
		}
		return n
	}
	return changesView{at: workspacePath(s.ID) + "/changes", prefix: h.address, Split: q.Get("view") == "split", Shown: q.Get("shown"), Comment: q.Get("c"), Window: changes.Window{In: q.Get("in"), From: q.Get("a"), To: q.Get("b"),
		Find: q.Get("q"), Page: number("page"), Path: q.Get("file"), Line: number("line"), Context: min(number("context"), contexts[len(contexts)-1]),
		IgnoreSpace: q.Get("w") == "1"}}
}

// query returns the parameters that lead to the view.
func (v changesView) query() string {
	q := url.Values{}
	for _, x := range []struct{ name, value string }{{"in", v.In}, {"a", v.From}, {"b", v.To}, {"q", v.Find}, {"file", v.Window.Path}, {"shown", v.Shown}} {
		if x.value != "" {
			q.Set(x.name, x.value)
		}
	}
	for _, x := range []struct {
		name        string
		value, base int
	}{{"page", v.Page, 1}, {"line", v.Line, 0}, {"context", v.Context, 3}} {
		if x.value > 0 && x.value != x.base {
			q.Set(x.name, strconv.Itoa(x.value))
		}
	}
	if v.Split {
		q.Set("view", "split")
	}
	if v.IgnoreSpace {
		q.Set("w", "1")
	}
	return q.Encode()
}

// href returns the path of the page of the view.
func (v changesView) href() string {
	if q := v.query(); q != "" {
		return v.at + "?" + q
	}
	return v.at
}

// with returns the view after a change.
func (v changesView) with(change func(*changesView)) changesView {
	change(&v)
	return v
}

// file returns the path of the page with one file alone.
func (v changesView) file(path string, line, context int) string {
	return v.with(func(v *changesView) { v.Window.Path, v.Find, v.Page, v.Line, v.Context = path, "", 0, line, context }).href()
}

// changesPath returns the path of the page of the changes between two commits of a workspace.
func changesPath(s workspace.Workspace, from, to gitd.Hash) string {
	return workspacePath(s.ID) + "/changes?" + url.Values{"a": {string(from)}, "b": {string(to)}}.Encode()
}

// seenPlace returns the place of the marks of a workspace in one of its repositories.
func seenPlace(s workspace.Workspace, in string) string {
	if in == "" || in == s.Repository {
		return s.ID
	}
	return s.ID + " " + in
}

// person returns the name of the reader in the marks.
func person(who route.Who) string { return who.Subject }

// changesPage shows the files that differ between two commits of a workspace.
func (h *changesPages) changesPage(c *route.Call) (*Page, error) {
	ctx := c.R.Context()
	s, st, err := h.workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	v := h.readView(c, s)
	repo, from, to, err := changes.Ends(ctx, h.find, c.Who, st, v.Window)
	if err != nil {
		return nil, err
	}
	title := "Changes of " + s.Name
	if v.Window.Path != "" {
		title = render.OneLine(render.Clean(v.Window.Path), 200) + " · " + title
	}
	d := &changesData{Workspace: s, Path: workspacePath(s.ID)}
	p := &Page{Title: title, Nav: "workspaces", Template: "changes", Data: d, Layout: "full"}
	if v.To == "" {
		shows := string(to) + "." + h.comments.reviewVersion(c, repo, s)
		if v.Shown != "" && v.Shown != shows {
			d.Newer = v.with(func(v *changesView) { v.Shown = "" }).href()
			d.Stale = strings.HasPrefix(v.Shown, string(to)+".")
		}
		p.Topics = []string{live.CallerTopic(s.Caller)}
		p.Follow = v.with(func(v *changesView) { v.Shown = shows }).href()
		if ctx.Value(following{}) != nil {
			return p, nil // the lines stay as they are
		}
	}
	v.Shown = ""
	var marks seen.Marks
	if h.seen != nil {
		if marks, err = h.seen.Of(person(c.Who), seenPlace(s, v.In)); err != nil {
			return nil, err
		}
	}
	viewed := marks.Viewed()
	set, err := h.changes.Read(ctx, repo, from, to, v.Window, func(key string) bool { return viewed[key] })
	if err != nil {
		return nil, err
	}
	v.Page = set.Page
	d.Set, d.Only, d.Find, d.Split, d.Query = set, v.Window.Path != "", render.OneLine(v.Find, 200), v.Split, v.query()
	d.Ends = changes.Window{From: render.OneLine(v.From, 100), To: render.OneLine(v.To, 100)}
	d.Keeps, d.Looked, d.Fresh = h.seen != nil, marks.When, marks.Looked != to
	d.In = v.In
	d.choose(v, marks, to)
	if len(st.Last.With) > 0 {
		for _, name := range st.Last.Repos() {
			if c.Who.Sees(name) {
				at := changesView{at: v.at, Split: v.Split}
				if at.In = name; name == s.Repository {
					at.In = ""
				}
				d.Repos = append(d.Repos, choice{Text: name, Path: at.href(), Current: at.In == v.In})
			}
		}
	}
	lines := lineMaker{ctx: ctx, repo: repo, split: v.Split, known: &h.colours}
	lines.pieces = maxElements - fitLines(set.Files, v.Split)
	d.may = c.Who.CheckChangeCaller(st) == nil
	work := comment.Work{Caller: st.Caller, Repo: repo, Home: st.Repo, Branch: st.Branch, Ends: anchor.Ends{Base: from, Commit: to}}
	if err := h.comments.showComments(c, p, d, v, &lines, work); err != nil {
		return nil, err
	}
	for _, f := range set.Files {
		row := fileRowOfChange(f, v, d)
		if row.Viewed = viewed[f.Key]; row.Viewed {
			d.Marked++
		}
		if row.Pictures && f.Shown {
			row.Before, row.After = v.picture(from, f.OldMode, orPath(f)), v.picture(to, f.Mode, f.Change.Path)
		}
		if v.In == "" && to == s.Head && f.Mode != "" && !f.Submodule() {
			row.Save = d.Path + "/download?path=" + url.QueryEscape(f.Change.Path)
		}
		row.Lines = lines.file(f, v)
		row.describe(v)
		d.Files = append(d.Files, row)
	}
	if d.Comments != nil {
		d.Comments.Elsewhere = append(d.Comments.Elsewhere, lines.left()...)
	}
	return p, nil
}

// fitLines leaves out the lines of files that the page has no room for, and returns the number of elements of the page without colours.
func fitLines(files []*changes.File, split bool) int {
	all := 200 + 28*len(files)
	for _, f := range files {
		elements := 0
		for _, h := range f.Hunks {
			elements += 2
			for _, l := range h.Lines {
				switch {
				case !split:
					elements += 2
				case l.Sign == diff.Same:
					elements += 5
				default:
					elements += 4
				}
			}
		}
		if all+elements > maxElements && len(files) > 1 {
			f.Shown, f.Hunks, f.Next = false, nil, 0
			continue
		}
		all += elements
	}
	return all
}

func orPath(f *changes.File) string {
	if f.OldPath != "" {
		return f.OldPath
	}
	return f.Change.Path
}

// choose fills in the links to other views.
func (d *changesData) choose(v changesView, marks seen.Marks, to gitd.Hash) {
	view := func(text, key string, current bool, change func(*changesView)) {
		d.Choices = append(d.Choices, choice{text, v.with(change).href(), key, current})
	}
	view("Unified", "u", !v.Split, func(v *changesView) { v.Split = false })
	view("Side by side", "s", v.Split, func(v *changesView) { v.Split = true })
	if v.IgnoreSpace {
		view("White space too", "w", false, func(v *changesView) { v.IgnoreSpace = false })
	} else {
		view("Without white space", "w", false, func(v *changesView) { v.IgnoreSpace = true })
	}
	part := func(n int) string { return v.with(func(v *changesView) { v.Page = n }).href() }
	if d.Page > 1 {
		d.Before = part(d.Page - 1)
	}
	if d.Page < d.Pages {
		d.After = part(d.Page + 1)
	}
	if d.Only || v.Find != "" {
		d.Back = v.with(func(v *changesView) { v.Window.Path, v.Find, v.Line, v.Page = "", "", 0, 0 }).href()
	}
	if v.From != "" || v.To != "" {
		d.Begin = v.with(func(v *changesView) { v.From, v.To, v.Page = "", "", 0 }).href()
	}
	if marks.Looked != "" && marks.Looked != to && v.From != string(marks.Looked) {
		d.Since = v.with(func(v *changesView) { v.From, v.To, v.Page = string(marks.Looked), "", 0 }).href()
	}
	for _, f := range d.Set.Folders[:min(len(d.Set.Folders), maxFolderLinks)] {
		name := f.Name
		if name == "" {
			continue
		}
		d.Folders = append(d.Folders, folderLink{render.OneLine(name, 80),
			v.with(func(v *changesView) { v.Find, v.Page, v.Window.Path = name, 0, "" }).href(), f.Files})
	}
}

// fileRowOfChange returns a file of the page without its lines.
func fileRowOfChange(f *changes.File, v changesView, d *changesData) *fileChanged {
	row := &fileChanged{File: f, Name: render.OneLine(render.Clean(f.Change.Path), 500), Path: v.file(f.Change.Path, 0, v.Context)}
	row.Folder, row.Base = path.Split(row.Name)
	if f.OldPath != "" {
		row.Was = render.OneLine(render.Clean(f.OldPath), 500)
	}
	switch f.Status {
	case "A":
		row.Mark, row.Word = "A", "added"
	case "D":
		row.Mark, row.Word = "D", "deleted"
	case "R":
		row.Mark, row.Word = "R", "renamed"
	case "C":
		row.Mark, row.Word = "C", "copied"
	case "T":
		row.Mark, row.Word = "T", "changed its type"
	default:
		row.Mark, row.Word = "M", "changed"
	}
	if f.Binary() {
		row.Sizes = "binary"
	}
	switch strings.ToLower(path.Ext(f.Change.Path)) {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp":
		row.Pictures = f.Binary() || f.Added+f.Deleted > 0
	}
	row.Pictures = row.Pictures && f.Binary()
	switch {
	case f.Submodule():
		row.Notes = append(row.Notes, "a commit of another repository")
	case f.OldMode != "" && f.Mode != "" && f.OldMode != f.Mode:
		row.Notes = append(row.Notes, modeWord(f.OldMode)+" → "+modeWord(f.Mode))
	case f.OldMode == "" && f.Mode != "100644", f.Mode == "" && f.OldMode != "100644":
		row.Notes = append(row.Notes, modeWord(f.Mode+f.OldMode))
	case f.Mode == "120000":
		row.Notes = append(row.Notes, modeWord(f.Mode))
	}
	return row
}

// modeWord returns the mode of a file in words.
func modeWord(mode string) string {
	switch mode {
	case "100644":
		return "file"
	case "100755":
		return "executable file"
	case "120000":
		return "symbolic link"
	case "160000":
		return "submodule"
	}
	return "mode " + mode
}

// describe says why a file has no lines, and links to its other parts.
func (row *fileChanged) describe(v changesView) {
	f := row.File
	count := f.Added + f.Deleted
	switch {
	case row.Viewed && !f.Shown:
		row.Hidden = "You have viewed it."
	case !f.Shown:
		row.Hidden = render.Plural(count, "line") + " differ."
	case f.Binary() && row.Pictures:
	case f.Binary():
		row.Hidden = "A binary file has no lines."
	case len(f.Hunks) > 0 && row.Lines != "":
	case v.Line > 0:
		row.Hidden = "There are no further lines."
	case count == 0 && f.Status == "R":
		row.Hidden = "Only its path differs."
	case count == 0 && f.Status == "A", count == 0 && f.Status == "D":
		row.Hidden = "It is empty."
	case count == 0:
		row.Hidden = "Only its mode differs."
	case v.IgnoreSpace:
		row.Hidden = "Only white space differs."
	default:
		row.Hidden = "Its lines are not here."
	}
	if f.Next > 0 {
		row.More = v.file(f.Change.Path, f.Next, v.Context)
	}
	if v.Line > 0 {
		row.Part = v.file(f.Change.Path, max(0, v.Line-changes.MaxLines), v.Context)
	}
}

// picture returns the link to a picture on one side, and "" if that side has no file.
func (v changesView) picture(commit gitd.Hash, mode, path string) string {
	if mode == "" || mode == "120000" {
		return ""
	}
	q := url.Values{"at": {string(commit)}, "path": {path}}
	if v.In != "" {
		q.Set("in", v.In)
	}
	return v.at + "/picture?" + q.Encode()
}

// changePicture answers with a picture of a commit.
func (h *changesPages) changePicture(c *route.Call) error {
	ctx, q := c.R.Context(), c.R.URL.Query()
	_, st, err := h.workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	repo, _, at, err := changes.Ends(ctx, h.find, c.Who, st, changes.Window{In: q.Get("in"), To: q.Get("at")})
	if err != nil {
		return err
	}
	picture, err := repo.ReadFile(ctx, string(at), q.Get("path"), maxPictureBytes)
	if err != nil {
		return err
	}
	media := http.DetectContentType(picture[:min(len(picture), 512)])
	switch media {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
	default:
		return route.NotFound("picture", q.Get("path"))
	}
	header := c.W.Header()
	page.MarkPrivate(header)
	header.Set("Content-Type", media)
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
	c.SendAsIs()
	_, err = io.Copy(c.W, bytes.NewReader(picture))
	return err
}

// markChanges keeps that the person has viewed a file, or has looked at all changes up to a commit.
func (h *changesPages) markChanges(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	s, st, err := h.workspaces.Named(c.R.Context(), c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return err
	}
	if h.seen == nil {
		return route.NewProblem(route.KindConflict, "this server does not keep what people have looked at")
	}
	switch action := c.R.PathValue("action"); action {
	case "viewed":
		err = h.seen.View(person(c.Who), seenPlace(s, formText(c, "in", 200)), formText(c, "key", 100), formText(c, "on", 1) == "1")
	case "looked":
		var to gitd.Hash
		in := formText(c, "in", 200)
		if _, _, to, err = changes.Ends(c.R.Context(), h.find, c.Who, st, changes.Window{In: in, To: formText(c, "to", 100)}); err == nil {
			err = h.seen.Look(person(c.Who), seenPlace(s, in), to)
		}
	default:
		return route.NotFound("action", action)
	}
	if err != nil {
		return fmt.Errorf("cannot keep what you have looked at: %w", err)
	}
	back := workspacePath(s.ID) + "/changes"
	if q, err := url.ParseQuery(formText(c, "query", 4000)); err == nil && len(q) > 0 {
		back += "?" + q.Encode()
	}
	if id := formText(c, "id", 20); id != "" {
		back += "#" + url.QueryEscape(id)
	}
	return see(c, back)
}
