package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/forge"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// titleMax is the maximal length of a pull request's title, in characters. It is that of a squashed commit's subject.
const titleMax = 72

// Pull returns the title and the body of a pull request. The manifests of the task's work are in order, the oldest
// first. The body has the request, the changes, the commands and test results, the checks of pages, screenshots, links
// to evidence, and the list of unverified things. No part of it is an agent's claim. A title has at most 72 characters,
// a body 60,000.
func Pull(t record.Task, work []record.Manifest, links PullLinks) (title, body string) {
	p := pullBody{task: t, work: work, links: links}
	parts := []string{p.asked(), p.changed(), p.checked(), p.looked(), p.unverified(), p.commands(),
		p.screenshots(), p.runs()}
	body = join("\n\n", parts...)
	// The bounds of all parts add up to less than the limit. The loop is for a later change of one of them.
	for i := len(parts) - 1; width(body) > pullMax && i >= 0; i-- {
		parts[i] = ""
		body = join("\n\n", parts...)
	}
	return pullTitle(t), body + "\n"
}

// pullTitle returns the first line of the description. Only code is Markdown in a title, which becomes the subject of a
// squashed commit.
func pullTitle(t record.Task) string {
	for line := range strings.SplitSeq(readable(head(t.Description, 4*titleMax)), "\n") {
		line = strings.TrimLeft(strings.TrimSpace(line), "#>*-+=~_` \t")
		line = strings.TrimRight(NoTicks(strings.ReplaceAll(OneLine(line, 4*titleMax), "**", "")), " .:;,*_")
		if line == "" {
			continue
		}
		// The gaps come first, because they count as well.
		line = numbered.ReplaceAllString(strings.ReplaceAll(inert(line), "@", "@"+gap), "$1"+gap+"$2")
		if width(line) > titleMax {
			line = line[:boundary(line, titleMax-1)]
			if i := strings.LastIndexByte(line, ' '); i > len(line)/2 {
				line = line[:i]
			}
			line = strings.TrimRight(line, " .:;,") + "…"
		}
		return line
	}
	return Cut("Task "+OneLine(t.ID, titleMax), titleMax)
}

// PullLinks makes the links from a pull request to the evidence of runs. A nil function and an empty address mean that
// there is no link.
type PullLinks struct {
	Page        func(run string) string       // of a run
	File, Trace func(run, name string) string // of a picture of a run, and of a trace in its viewer
	Picture     func(run, name string) string // of a picture that the body shows
}

// pullBody is the input for the parts of a body.
type pullBody struct {
	task  record.Task
	work  []record.Manifest
	links PullLinks
}

// last returns the manifest that describes the current state. It is the newest one, or the one before it if the newer
// ones have changed and checked nothing.
func (p pullBody) last() *record.Manifest {
	for i := len(p.work) - 1; i >= 0; i-- {
		m := &p.work[i]
		if m.Verdict != record.VerdictNone || i == 0 || p.work[i-1].Head != m.Start {
			return m
		}
	}
	return nil
}

func (p pullBody) asked() string {
	text := markdownQuote(p.task.Description, 6000)
	if text == "" {
		text = "> (no words)"
	}
	s := "## What was asked\n\n" + text
	if who := MarkdownText(p.task.Asker.Name, 100); who != "" {
		s += "\n\nAsked for by " + who + "."
	}
	return join("\n\n", s, markdownDetails("Context that was given", markdownQuote(p.task.Context, 8000)))
}

func (p pullBody) changed() string {
	list, rounds := p.changes()
	if len(list) == 0 {
		return "## What changed\n\nNothing."
	}
	const shown = 20
	added, deleted := 0, 0
	for _, c := range list {
		added, deleted = added+max(c.Added, 0), deleted+max(c.Deleted, 0)
	}
	s := fmt.Sprintf("## What changed\n\n%s, +%d −%d", Plural(len(list), "file"), added, deleted)
	if rounds > 1 {
		s += fmt.Sprintf(", added up over %d rounds of work", rounds)
	}
	s += "\n\n" + markdownList(min(len(list), shown), shown, 6000, func(i int) string { return mdChange(list[i]) })
	if more := list[min(len(list), shown):]; len(more) > 0 {
		s += "\n\n" + markdownDetails(Plural(len(more), "more file"),
			markdownList(len(more), 200, 6000, func(i int) string { return mdChange(more[i]) }))
	}
	return s
}

// changes returns the changed files by name, and the number of runs that changed files.
func (p pullBody) changes() (list []gitd.Change, rounds int) {
	at := map[string]int{}
	for _, m := range p.work {
		if len(m.Changed) > 0 {
			rounds++
		}
		for _, c := range m.Changed {
			i, seen := at[c.Path]
			if !seen {
				at[c.Path] = len(list)
				list = append(list, c)
				continue
			}
			was := &list[i]
			if c.Added < 0 || was.Added < 0 {
				was.Added, was.Deleted = -1, -1
			} else {
				was.Added, was.Deleted = was.Added+c.Added, was.Deleted+c.Deleted
			}
			switch {
			case was.Status == "A" && c.Status == "M": // still new
			case was.Status == "D" && c.Status == "A":
				was.Status = "M"
			default:
				was.Status = c.Status
			}
		}
	}
	slices.SortStableFunc(list, func(a, b gitd.Change) int { return strings.Compare(a.Path, b.Path) })
	return list, rounds
}

func mdChange(c gitd.Change) string {
	s := markdownCode(c.Path, 200)
	if c.OldPath != "" {
		s = markdownCode(c.OldPath, 200) + " → " + s
	}
	if c.Added < 0 || c.Deleted < 0 {
		s += " binary"
	} else {
		s += fmt.Sprintf(" +%d −%d", c.Added, c.Deleted)
	}
	switch c.Status {
	case "A":
		s += ", new"
	case "D":
		s += ", deleted"
	}
	return s
}

func (p pullBody) checked() string {
	m := p.last()
	if m == nil {
		return "## Checks\n\nNothing has run yet."
	}
	head, what := Headline(m)
	return join("\n\n", "## Checks\n\n"+strings.TrimSpace("**"+MarkdownText(head, 100)+"** "+MarkdownText(what, 300)),
		checkTable(m))
}

// checkTable returns a table of the results of a run's checks.
func checkTable(m *record.Manifest) string {
	ran, alone := lastChecks(m)
	if len(ran)+len(alone) == 0 {
		return ""
	}
	return markdownTable([]string{"check", "result", ""}, len(ran)+len(alone), 20, 4000, func(i int) []string {
		if i >= len(ran) {
			t := alone[i-len(ran)]
			return []string{writing(MarkdownText).tool("tests", t.Framework), mdMark(t.OK && t.Failed == 0),
				writing(markdownCell).counted(t, 10, 120)}
		}
		c := ran[i]
		came := ""
		if t := testsOf(m, c); t != nil {
			came = writing(markdownCell).counted(*t, 10, 120)
		}
		if came == "" {
			came = MarkdownText(c.Why, 300)
		}
		if !c.Current {
			came = join(", ", came, Earlier)
		}
		return []string{writing(MarkdownText).tool(c.Check, c.Tool), mdMark(c.Result == record.CheckPassed), came}
	})
}

func mdMark(ok bool) string {
	if ok {
		return "✅ passed"
	}
	return "❌ failed"
}

func (p pullBody) unverified() string {
	m := p.last()
	if m == nil {
		return ""
	}
	list := unchecked(m)
	if len(list) == 0 {
		return ""
	}
	return "### Not verified\n\n" + markdownList(len(list), 20, 4000,
		func(i int) string { return MarkdownText(list[i], 400) })
}

// screenshots lists the pictures and films of the newest run that made any. Only the page of the run shows them,
// because a picture may not be intended for everybody.
func (p pullBody) screenshots() string {
	for _, m := range slices.Backward(p.work) {
		var shots []record.ManifestFile
		for _, f := range m.Files {
			browser := len(m.Browser) > 0 && strings.HasPrefix(f.Name, BrowserFiles) // shown elsewhere
			if strings.HasPrefix(f.Name, "artifacts/") && Showable(f.Type) != "" && !browser {
				shots = append(shots, f)
			}
		}
		if len(shots) == 0 {
			continue
		}
		s := "## Screenshots\n\n" + markdownList(len(shots), 20, 2000, func(i int) string {
			return markdownCode(strings.TrimPrefix(shots[i].Name, "artifacts/"), 200) + " (" +
				bytesize.Text(shots[i].Size) + ")"
		})
		if page := p.page(m.Run, "the run's page"); page != "" {
			s += "\n\nThey are shown on " + page + "."
		}
		return s
	}
	return ""
}

// page returns a link to a run's page, or "" if there is none.
func (p pullBody) page(run, label string) string {
	if p.links.Page == nil {
		return ""
	}
	if l := markdownLink(p.links.Page(run), label); strings.HasPrefix(l, "[") {
		return l
	}
	return ""
}

func (p pullBody) commands() string {
	var list []record.ManifestCommand
	for _, m := range p.work {
		list = append(list, m.Commands...)
	}
	if len(list) == 0 {
		return ""
	}
	slices.Reverse(list) // the oldest are cut
	return markdownDetails("Commands ("+strconv.Itoa(len(list))+", the last one first)",
		markdownTable([]string{"command", "result", "took"}, len(list), 60, 7000, func(i int) []string {
			c := list[i]
			first, _, more := strings.Cut(strings.TrimSpace(c.Command), "\n")
			line := markdownCell(cmp.Or(first, c.Step), 200)
			if more {
				line += " …"
			}
			result := "failed"
			switch {
			case c.Exit != nil:
				result = "exit " + strconv.Itoa(*c.Exit)
			case c.OK:
				result = "ok"
			}
			if c.Reason != "" && !c.OK {
				result += ", " + MarkdownText(c.Reason, 100)
			}
			if c.Reused != nil {
				return []string{line, result, MarkdownText(Reused(c.Reused), 300)}
			}
			return []string{line, result, Duration(time.Duration(max(c.DurationMS, 0)) * time.Millisecond)}
		}))
}

// runs lists the runs that worked for the task, their agents, and the age of the base.
func (p pullBody) runs() string {
	if len(p.work) == 0 {
		return ""
	}
	var usage record.Usage
	agents := []string{}
	for _, m := range p.work {
		if m.Agent != "" && !slices.Contains(agents, m.Agent) {
			agents = append(agents, m.Agent)
		}
		if u := m.Usage; u != nil {
			usage.Calls += u.Calls
			usage.InputTokens += u.InputTokens
			usage.OutputTokens += u.OutputTokens
			usage.CostMicros += u.CostMicros
		}
	}
	newest := slices.Clone(p.work)
	slices.Reverse(newest)
	s := "## Evidence\n\n" + markdownList(len(newest), 20, 7000, func(i int) string {
		m := &newest[i]
		head, _ := Headline(m)
		line := MarkdownText(head, 100)
		if page := p.page(m.Run, m.Run); page != "" {
			line = page + ": " + line
		} else {
			line = markdownCode(m.Run, 100) + ": " + line
		}
		return join(", ", line, runDuration(m))
	})
	var small []string
	for _, a := range agents[:min(len(agents), 5)] {
		small = append(small, "agent "+markdownCode(a, 64))
	}
	if usage.Calls > 0 {
		small = append(small, usageWords(usage))
	}
	m := &newest[0]
	if base := markdownCode(m.Base, 100); base != "" {
		if age := refreshed(m.BaseRefreshed, m.EndedAt); age != "" {
			small = append(small, "cut from "+base+", which was "+strings.TrimPrefix(age, "base "))
		} else {
			small = append(small, "cut from "+base)
		}
	}
	if len(small) > 0 {
		s += "\n\n" + strings.Join(small, " · ")
	}
	return s
}

// Reply returns the reply to a comment, or to the conversation if c is zero. It is made from the manifest of the work
// that addressed the comment, and has the commit, the changes and the results of the checks.
func Reply(t record.Task, c forge.Comment, work record.Manifest, links PullLinks) string {
	p := pullBody{task: t, work: []record.Manifest{work}, links: links}
	m := &p.work[0]
	head := ""
	switch {
	case m.State == record.StateFailed:
		what, _ := Headline(m)
		head = MarkdownText(what, 100) + "."
		if m.Error != "" {
			head += "\n\n" + markdownQuote(m.Error, 1000)
		}
	case len(m.Changed) == 0:
		head = "Nothing was changed for this."
	default:
		head = "Addressed in " + mdHash(m.Head) + ": " + changes(m)
		if i := slices.IndexFunc(m.Changed,
			func(d gitd.Change) bool { return d.Path == c.Path || d.OldPath == c.Path }); c.Path != "" && i >= 0 {
			head += ", here " + mdChange(m.Changed[i])
		}
		head += "."
	}
	files := ""
	if c.Path == "" {
		files = markdownList(len(m.Changed), 10, 2000, func(i int) string { return mdChange(m.Changed[i]) })
	}
	_, what := Headline(m)
	if m.State == record.StateFailed || m.Verdict == record.VerdictNone {
		what = ""
	}
	missing := ""
	if list := unchecked(m); len(list) > 0 && m.State != record.StateFailed {
		missing = markdownDetails("Not verified",
			markdownList(len(list), 10, 2000, func(i int) string { return MarkdownText(list[i], 300) }))
	}
	return join("\n\n", head, files, MarkdownText(what, 300), checkTable(m), p.lookTable(m, m.Head),
		markdownDetails("Pictures", p.lookPictures(m)), missing, p.page(m.Run, "Run's page")) + "\n"
}

// mdHash returns a commit in a form that GitHub turns into a link.
func mdHash(h gitd.Hash) string {
	if gitd.CheckHash(h) != nil {
		return markdownCode(string(h), 64)
	}
	return ShortHash(h)
}
