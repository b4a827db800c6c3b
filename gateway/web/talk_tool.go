package web

import (
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/markup"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/internal/text"
)

// maxBodies bounds the parts of the result of one call that are shown.
const maxBodies = 10

// resultPart is a part of the body of an entry: the change of a file, the end of an output, an excerpt or a text.
type resultPart struct {
	Title string // the path of a file, or empty
	Note  string
	Class string // of the element pre
	HTML  template.HTML
}

// tool sets the row of a call of a tool, with its result if the whole of it is wanted.
func (row *talkRow) tool(e *conversation.Entry, whole bool) {
	row.Mark, row.Class = mark(e.OK)
	row.Text = render.OneLine(row.Text, 300)
	if e.Tool == nil {
		return
	}
	if e.Kind == conversation.KindTool {
		row.Text = render.OneLine(e.Tool.Words(), 300)
	}
	row.Note = render.OneLine(e.Tool.Kind, 40)
	if e.DurationMS >= 1000 {
		row.Note += " · " + render.Duration(time.Duration(e.DurationMS)*time.Millisecond)
	}
	if whole {
		row.Bodies = toolBodies(e.Tool)
		row.Src = ""
	} else if len(e.Tool.Content) == 0 && inputText(e.Tool) == "" {
		row.Src = "" // there is nothing to show
	}
}

// toolBodies returns the result of a call, and its input.
func toolBodies(tool *acp.Tool) []resultPart {
	list := resultBodies(tool)
	if len(list) > 0 && tool.Kind == "edit" { // the input of an edit is the change again
		return list
	}
	if about := inputText(tool); about != "" {
		list = append(list, resultPart{Class: "wrap soft", HTML: escaped(about)})
	}
	return list
}

// toolPath returns the path of a file as people see it.
func toolPath(name string) string {
	return render.OneLine(strings.TrimPrefix(name, executor.WorkDir+"/"), 300)
}

// resultBodies returns the result of a call.
func resultBodies(tool *acp.Tool) (list []resultPart) {
	var colours markup.Colours
	file := ""
	if len(tool.Locations) > 0 {
		file = tool.Locations[0].Path
	}
	for _, c := range tool.Content {
		if len(list) == maxBodies {
			break
		}
		switch {
		case c.Type == acp.ContentDiff:
			before := ""
			if c.Old != nil {
				before = *c.Old
			}
			html, added, deleted := markup.Diff(before, c.New)
			if added+deleted > 0 {
				list = append(list, resultPart{Title: toolPath(c.Path), Note: lineCounts(added, deleted), Class: "diff", HTML: html})
			}
		case c.Block == nil || strings.TrimSpace(c.Block.Text) == "":
		case tool.Kind == "execute":
			list = append(list, resultPart{Class: "wrap printed", HTML: markup.Terminal(text.ClipEnd(c.Block.Text, maxTail))})
		case tool.Kind == "read":
			list = append(list, resultPart{Class: "chroma",
				HTML: colours.Code(text.Clip(c.Block.Text, maxTail), "", text.Clip(file, 300))})
		default:
			list = append(list, resultPart{Class: "wrap", HTML: escaped(text.Clip(c.Block.Text, maxTail))})
		}
	}
	return list
}

// inputText returns the files that a call is about, and its input. Returns "" if the title says all of it.
func inputText(tool *acp.Tool) string {
	var about strings.Builder
	for _, l := range tool.Locations {
		path := toolPath(l.Path)
		if l.Line == nil && strings.Contains(tool.Title, path) {
			continue
		}
		about.WriteString(path)
		if l.Line != nil {
			fmt.Fprintf(&about, ":%d", *l.Line)
		}
		about.WriteString("\n")
	}
	var raw any
	if len(tool.RawInput) == 0 || json.Unmarshal(tool.RawInput, &raw) != nil || titled(raw, tool.Title) {
		return about.String()
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // the text is escaped where it is shown
	e.SetIndent("", "  ")
	if e.Encode(raw) == nil {
		about.WriteString(render.ClipClean(strings.TrimSpace(b.String()), maxRawInput))
	}
	return about.String()
}

// titled reports whether a title has all values of an input.
func titled(input any, title string) bool {
	values, ok := input.(map[string]any)
	for _, v := range values {
		s, isText := v.(string)
		if !isText || !strings.Contains(title, s) {
			return false
		}
	}
	return ok
}

func escaped(s string) template.HTML {
	return template.HTML(template.HTMLEscapeString(markup.Visible(s)))
}

// lineCounts returns the size of a change, such as "+3 −1".
func lineCounts(added, deleted int) string { return fmt.Sprintf("+%d −%d", added, deleted) }

// pictures returns the pictures that a check of a page took.
func (m *talkMaker) pictures(r record.Run, e *conversation.Entry) (list []talkFile) {
	if e.Page == nil || m.sources.evidence == nil || m.sources.evidence.Links == nil {
		return nil
	}
	for _, v := range e.Page.Views {
		if v.Screenshot == "" || len(list) == maxBodies {
			continue
		}
		href := m.sources.address + m.sources.evidence.Links.SignUntil(links.FilePath(r, render.BrowserFiles+v.Screenshot), linksUntil(m.sources.now()))
		list = append(list, talkFile{Name: render.OneLine(e.Text+", "+v.Viewport.Name, 120), Href: href + "&view=1", Picture: true})
	}
	return list
}
