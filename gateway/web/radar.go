package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/radar"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/live"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
)

// Limits of the page of the radar.
const (
	matrixBranches = 16 // sides of the matrix, those with the most conflicts
	shownConflicts = 100
	namedFiles     = 5 // of a conflict in the list
	comparedFiles  = 10
	comparedPlaces = 6  // of one file
	comparedLines  = 40 // of one side of a place
	linesAround    = 2
	maxCompared    = 1 << 20 // bytes of a file whose lines are shown
	toldRuns       = 20      // of a caller, in which a prompt is looked for
)

// radarData is the data of the page of the radar. All texts except the names of branches are clean.
type radarData struct {
	Repo, RepoPath, Of, All string // All is the page of all conflicts, if Of limits this one
	Branches, Pairs, Left   int
	MoreBranches, More      int
	Names                   []string // of the sides of the matrix
	Matrix                  []radarRow
	Cut                     bool // there are more branches with conflicts than the matrix has
	Conflicts               []conflictRow
	Shown                   *conflictShown
	ShownMissing            string
}

// radarRow is a row of the matrix.
type radarRow struct {
	Name  string
	Cells []radarCell
}

// radarCell is a pair of branches. Path is empty if they merge.
type radarCell struct {
	Path, Text, Title string
	Same              bool
}

// conflictRow is a conflict in the list.
type conflictRow struct {
	One, Other, Path string
	Files            []string
	More             int
	Current          bool
}

// conflictShown is the conflict that is shown with its lines.
type conflictShown struct {
	One, Other conflictSide
	Files      []conflictFile
	More       int
}

// conflictSide is a branch of the shown conflict.
type conflictSide struct {
	Name, Files, Workspace string
	Agent                  string // that hears of the conflict if somebody presses the button; empty if there is none
	Told                   bool   // it has heard of it
}

// conflictFile is a file of the shown conflict.
type conflictFile struct {
	Path, Kind, Note string
	Places           []conflictPlace
}

// conflictPlace has the lines of both sides at one place.
type conflictPlace struct{ One, Other []conflictLine }

type conflictLine struct {
	Number  int
	Text    string
	Changed bool
}

// conflictPath returns the page of a conflict.
func conflictPath(repo, of, one, other string) string {
	return sourcePath(repo, "radar", url.Values{"of": {of}, "one": {one}, "other": {other}}) + "#conflict"
}

// radarPages serves the conflicts between branches.
type radarPages struct {
	finder     *finder
	executor   *executor.Executor
	workspaces *workspace.Workspaces
	past       Past
	talk       *conversation.Talk
}

func (h *radarPages) register(t *table) {
	t.page("/repos/{repo}/radar", "The pairs of branches of a repository that do not merge, and one conflict with its lines", h.radarPage)
	t.form("/repos/{repo}/radar/tell", "Tell the agent of a branch of a conflict, by the page of the radar", h.tellAgent)
}

// radarPage shows which branches of a repository do not merge, and one of these conflicts with its lines.
func (h *radarPages) radarPage(c *route.Call) (*Page, error) {
	q := c.R.URL.Query()
	r, err := h.finder.workRepo(c)
	if err != nil {
		return nil, err
	}
	d := &radarData{Repo: r.Name(), RepoPath: repoPath(r.Name()), Of: q.Get("of")}
	p := &Page{Title: "Radar of " + d.Repo, Nav: "repos", Template: "radar", Data: d, Topics: []string{live.RepoTopic(d.Repo)},
		Refresh: 30}
	if d.Of != "" {
		d.All = d.RepoPath + "/radar"
	}
	rep, err := findConflicts(c, h.past, p, d.Repo, d.Of)
	if err != nil {
		return nil, err
	}
	d.Branches, d.Pairs, d.Left, d.MoreBranches = len(rep.Branches), rep.Pairs, rep.Left, rep.MoreBranches
	d.fill(rep, q.Get("one"), q.Get("other"))
	if q.Get("one") == "" {
		return p, nil
	}
	for _, x := range rep.Conflicts {
		if x.One == q.Get("one") && x.Other == q.Get("other") {
			d.Shown, err = h.showConflict(c, r, rep, x)
			return p, err
		}
	}
	d.ShownMissing = fmt.Sprintf("%s and %s merge now.", render.OneLine(q.Get("one"), 200), render.OneLine(q.Get("other"), 200))
	if rep.Left > 0 {
		d.ShownMissing = "The merge is not known yet."
	}
	return p, nil
}

// fill fills in the list and the matrix. one and other are the branches of the shown conflict.
func (d *radarData) fill(rep radar.Report, one, other string) {
	at, count := map[[2]string]radar.Conflict{}, map[string]int{}
	for i, x := range rep.Conflicts {
		at[[2]string{x.One, x.Other}] = x
		count[x.One]++
		count[x.Other]++
		if i >= shownConflicts {
			d.More++
			continue
		}
		row := conflictRow{One: x.One, Other: x.Other, Path: conflictPath(d.Repo, d.Of, x.One, x.Other), More: x.More,
			Current: x.One == one && x.Other == other}
		for j, f := range x.Files {
			if j == namedFiles {
				row.More += len(x.Files) - namedFiles
				break
			}
			row.Files = append(row.Files, fileAndLine(f))
		}
		d.Conflicts = append(d.Conflicts, row)
	}
	d.More += rep.MoreConflicts
	for name := range count {
		d.Names = append(d.Names, name)
	}
	slices.SortFunc(d.Names, func(a, b string) int { return cmp.Or(count[b]-count[a], cmp.Compare(a, b)) })
	if len(d.Names) > matrixBranches {
		d.Names, d.Cut = d.Names[:matrixBranches], true
	}
	for _, a := range d.Names {
		row := radarRow{Name: a}
		for _, b := range d.Names {
			cell := radarCell{Same: a == b}
			x, ok := at[[2]string{a, b}]
			if !ok {
				x, ok = at[[2]string{b, a}]
			}
			if ok {
				cell.Path, cell.Text = conflictPath(d.Repo, d.Of, x.One, x.Other), fmt.Sprint(len(x.Files)+x.More)
				cell.Title = render.Plural(len(x.Files)+x.More, "file") + " of " + render.OneLine(a, 200) + " and " + render.OneLine(b, 200)
			}
			row.Cells = append(row.Cells, cell)
		}
		d.Matrix = append(d.Matrix, row)
	}
}

// fileAndLine returns the name of a file of a conflict with the first line, or with the kind of the conflict.
func fileAndLine(f gitd.CollidingFile) string {
	name := render.OneLine(f.Path, 200)
	if len(f.Regions) > 0 {
		return fmt.Sprintf("%s:%d", name, max(f.Regions[0].Ours.From, 1))
	}
	if f.Kind != "" {
		return name + " (" + f.Kind + ")"
	}
	return name
}

// tips returns the commits of the two branches of a conflict.
func tips(rep radar.Report, x radar.Conflict) (one, other gitd.Hash) {
	of := func(name string) gitd.Hash {
		if name == rep.Base {
			return rep.Commit
		}
		for _, b := range rep.Branches {
			if b.Branch == name {
				return b.Commit
			}
		}
		return ""
	}
	return of(x.One), of(x.Other)
}

// showConflict returns a conflict with its lines.
func (h *radarPages) showConflict(c *route.Call, r *gitd.Repo, rep radar.Report, x radar.Conflict) (*conflictShown, error) {
	one, other := tips(rep, x)
	s := &conflictShown{More: max(0, len(x.Files)-comparedFiles) + x.More}
	var err error
	if s.One, err = h.conflictSide(c, r.Name(), x.One, tellKey(x, one, other)); err != nil {
		return nil, err
	}
	if s.Other, err = h.conflictSide(c, r.Name(), x.Other, tellKey(x, one, other)); err != nil {
		return nil, err
	}
	for _, f := range x.Files[:min(len(x.Files), comparedFiles)] {
		shown, err := showCollision(c.R.Context(), r, one, other, f)
		if err != nil {
			return nil, err
		}
		s.Files = append(s.Files, shown)
	}
	return s, nil
}

// showCollision returns a file of a conflict with the lines of both sides.
func showCollision(ctx context.Context, r *gitd.Repo, one, other gitd.Hash, f gitd.CollidingFile) (conflictFile, error) {
	shown := conflictFile{Path: render.OneLine(f.Path, 300), Kind: f.Kind}
	if len(f.Regions) == 0 {
		return shown, nil
	}
	var sides [2][]string
	for i, commit := range []gitd.Hash{one, other} {
		content, err := r.ReadFile(ctx, string(commit), f.Path, maxCompared)
		switch {
		case errors.Is(err, gitd.ErrNotFound):
			shown.Note = "One of the sides renamed the file."
			return shown, nil
		case errors.Is(err, gitd.ErrTooLarge):
			shown.Note = "The file is too large for a page."
			return shown, nil
		case err != nil:
			return shown, err
		case bytes.IndexByte(content, 0) >= 0 || !utf8.Valid(content):
			shown.Note = "The file is not text."
			return shown, nil
		}
		sides[i] = strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	}
	for i, region := range f.Regions {
		if i == comparedPlaces {
			shown.Note = "There are more places in this file."
			break
		}
		if max(region.Ours.To-region.Ours.From, region.Theirs.To-region.Theirs.From) >= comparedLines-linesAround {
			shown.Note = "Some places have more lines than are shown."
		}
		shown.Places = append(shown.Places, conflictPlace{conflictLines(sides[0], region.Ours), conflictLines(sides[1], region.Theirs)})
	}
	return shown, nil
}

// conflictLines returns the first lines of a range with those around it.
func conflictLines(lines []string, at gitd.LineRange) (list []conflictLine) {
	from, to := max(1, at.From-linesAround), min(len(lines), at.To+linesAround)
	for n := from; n <= to && len(list) < comparedLines; n++ {
		list = append(list, conflictLine{Number: n, Text: markup.Visible(render.ClipClean(lines[n-1], 500)),
			Changed: n >= at.From && n <= at.To})
	}
	return list
}

// shownSide is the data of the template of a side of the shown conflict.
type shownSide struct {
	Page  *Page
	Side  conflictSide
	Shown *conflictShown
}

func sideOf(p *Page, side conflictSide, shown *conflictShown) shownSide {
	return shownSide{p, side, shown}
}

// tellKey returns the key of the prompt about a conflict. A conflict of other commits has another key.
func tellKey(x radar.Conflict, one, other gitd.Hash) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "conflict %q %q %s %s", x.One, x.Other, one, other))
	return "radar-" + hex.EncodeToString(sum[:10])
}

// conflictSide returns a side of the shown conflict. key is the key of the prompt about it.
func (h *radarPages) conflictSide(c *route.Call, repo, branch, key string) (side conflictSide, err error) {
	side = conflictSide{Name: branch, Files: sourcePath(repo, "files", url.Values{"at": {branch}})}
	run, ok := lastRun(h.executor, branch)
	if !ok || run.Repo != repo || !c.Who.SeesRun(run) {
		return side, nil
	}
	side.Workspace = workspacePath(run.Caller.Slug())
	if _, side.Told, err = h.talk.Sent(c.R.Context(), run.Caller, key, toldRuns); err != nil {
		return side, err
	}
	if !side.Told && c.Who.CheckChangeRun(run) == nil {
		side.Agent, _ = h.agentOf(run.Caller)
	}
	return side, nil
}

// agentOf returns the agent of a caller and the label of its session, those of its newest run with a configured one.
func (h *radarPages) agentOf(caller record.Caller) (agent, session string) {
	names := h.executor.AgentNames()
	for _, r := range slices.Backward(h.executor.OfCaller(caller)) {
		if r.Agent != nil && !r.Aside() && slices.Contains(names, r.Agent.Name) {
			return r.Agent.Name, r.Agent.Session
		}
	}
	if len(names) > 0 {
		return names[0], ""
	}
	return "", ""
}

// tellAgent tells the agent of a branch of a conflict, once.
func (h *radarPages) tellAgent(c *route.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	r, err := h.finder.workRepo(c)
	if err != nil {
		return err
	}
	one, other, branch := formText(c, "one", 500), formText(c, "other", 500), formText(c, "branch", 500)
	caller, ok := callerOfBranch(branch)
	if !ok || branch != one && branch != other {
		return route.NewProblem(route.KindInvalid, "no agent works on the branch %.200q", branch)
	}
	s, err := h.workspaces.Changeable(c.R.Context(), c.Who, caller.Slug())
	if err != nil {
		return err
	}
	rep, err := findConflicts(c, h.past, &Page{}, r.Name(), branch)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(rep.Conflicts, func(x radar.Conflict) bool { return x.One == one && x.Other == other })
	if at < 0 && rep.Left > 0 {
		return route.NewProblem(route.KindUnavailable, "whether %s and %s merge is not known yet", one, other).WithHint("try again in some seconds")
	}
	if at < 0 {
		return route.NewProblem(route.KindConflict, "%s and %s merge now, so there is nothing to tell", one, other)
	}
	x := rep.Conflicts[at]
	tipOne, tipOther := tips(rep, x)
	key := tellKey(x, tipOne, tipOther)
	_, found, err := h.talk.Sent(c.R.Context(), caller, key, toldRuns)
	if err != nil {
		return err
	}
	if !found {
		agent, session := h.agentOf(caller)
		if agent == "" {
			return route.NewProblem(route.KindConflict, "no agent is configured that could be told")
		}
		_, err = h.talk.Say(c.R.Context(), c.Who, conversation.Saying{Caller: s.Caller, Repo: s.Repository, Agent: agent,
			Session: session, Prompt: record.Prompt{Key: key, Text: conflictPrompt(x, branch), By: by(c), From: "web"}})
		if err != nil {
			return err
		}
	}
	return see(c, conflictPath(r.Name(), "", one, other))
}

// conflictPrompt returns the prompt about a conflict for the agent of a branch.
func conflictPrompt(x radar.Conflict, branch string) string {
	other, own := x.Other, true
	if branch == x.Other {
		other, own = x.One, false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "This branch does not merge with the branch %s. These files are in conflict:\n", other)
	for _, f := range x.Files {
		fmt.Fprintf(&b, "\n- %s", render.OneLine(f.Path, 300))
		for i, region := range f.Regions {
			ours, theirs := region.Ours, region.Theirs
			if !own {
				ours, theirs = theirs, ours
			}
			if i == 0 {
				b.WriteString(": ")
			} else {
				b.WriteString("; ")
			}
			fmt.Fprintf(&b, "line %d here and line %d there", max(ours.From, 1), max(theirs.From, 1))
		}
		if len(f.Regions) == 0 && f.Kind != "" {
			fmt.Fprintf(&b, " (%s)", f.Kind)
		}
	}
	if x.More > 0 {
		fmt.Fprintf(&b, "\n- and %s more", render.Plural(x.More, "file"))
	}
	b.WriteString("\n\nChange this branch so that both merge, if that keeps what each is for. Otherwise say which of the two should change.")
	return b.String()
}
