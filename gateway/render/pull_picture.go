package render

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// looked returns the results of the checks of pages, from the newest work that has any.
func (p pullBody) looked() string {
	for i := range slices.Backward(p.work) {
		m := &p.work[i]
		if len(m.Browser) == 0 {
			continue
		}
		head := m.Head
		if last := p.last(); last != nil {
			head = last.Head
		}
		return join("\n\n", "## Browser\n\n"+p.lookTable(m, head), p.lookPictures(m))
	}
	return ""
}

// lookTable returns a table with a row for each check and viewport. head is the current tip of the branch.
func (p pullBody) lookTable(m *record.Manifest, head gitd.Hash) string {
	var rows []func() []string // called only for the rows that are shown
	for _, c := range lastLooks(m) {
		old := ""
		if c.Commit != "" && head != "" && c.Commit != string(head) {
			old = Earlier
		}
		if !slices.ContainsFunc(c.Views, func(v record.BrowserView) bool { return v.Verdict == c.Verdict }) {
			// No program listened, or more than the limit differs. The reason does not belong to a view.
			rows = append(rows, func() []string {
				return []string{MarkdownText(c.Name, 80), "", mdLook(string(c.Verdict)),
					join(", ", MarkdownText(c.Reason, 300), old), ""}
			})
		}
		for _, v := range c.Views {
			rows = append(rows, func() []string {
				why := ""
				if v.Verdict != record.BrowserPass {
					why = MarkdownText(v.Reason, 300)
				}
				return []string{MarkdownText(c.Name, 80),
					MarkdownText(v.Viewport.Name, 40) + fmt.Sprintf(" %d×%d", v.Viewport.Width, v.Viewport.Height),
					mdLook(string(v.Verdict)), join(", ", why, changedAt(c, v.Viewport.Name), old), p.lookLinks(m, c, v)}
			})
		}
	}
	if len(rows) == 0 {
		return ""
	}
	return markdownTable([]string{"check", "at", "verdict", "", "evidence"}, len(rows), 20, 6000,
		func(i int) []string { return rows[i]() })
}

func mdLook(verdict string) string { return lookMark(verdict) + MarkdownText(verdict, 20) }

// changedAt returns the changed share of a page at a viewport, or "" if the page was not compared.
func changedAt(c record.BrowserCheck, viewport string) string {
	if c.Compare == nil {
		return ""
	}
	for _, d := range c.Compare.Views {
		switch {
		case d.Viewport != viewport:
		case d.Note != "":
			return "not compared"
		case d.Changed > 0:
			return Percent(d.Changed) + " changed"
		default:
			return "nothing changed"
		}
	}
	return ""
}

// lookLinks returns links to the files of one view.
func (p pullBody) lookLinks(m *record.Manifest, c record.BrowserCheck, v record.BrowserView) string {
	var list []string
	add := func(to func(run, name string) string, file, label string) {
		name := BrowserFiles + file
		if to == nil || file == "" || !slices.ContainsFunc(m.Files, func(f record.ManifestFile) bool { return f.Name == name }) {
			return
		}
		if l := markdownLink(to(m.Run, name), label); strings.HasPrefix(l, "[") {
			list = append(list, l)
		}
	}
	for i, s := range v.Steps {
		if !s.OK {
			add(p.links.File, s.Screenshot, fmt.Sprintf("step %d", i+1))
		}
	}
	add(p.links.File, v.Screenshot, "picture")
	if c.Compare != nil {
		for _, d := range c.Compare.Views {
			if d.Viewport == v.Viewport.Name {
				add(p.links.File, d.Picture, "before and after")
			}
		}
	}
	add(p.links.Trace, v.Trace, "trace")
	return strings.Join(list, " · ")
}

// lookPictures shows the pictures that are at GitHub.
func (p pullBody) lookPictures(m *record.Manifest) string {
	if p.links.Picture == nil {
		return ""
	}
	var list []string
	shown, _ := Pictures(m)
	for _, q := range shown {
		caption := q.Caption(MarkdownText)
		if l := markdownLink(p.links.Picture(m.Run, q.File.Name), q.Caption(OneLine)); strings.HasPrefix(l, "[") {
			list = append(list, caption+"\n\n!"+l)
		}
	}
	return strings.Join(list, "\n\n")
}
