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

// tool sets the row of a call of a tool.
func (row *talkRow) tool(e *conversation.Entry) {
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
	row.Bodies = resultBodies(e.Tool)
	if len(row.Bodies) == 0 || e.Tool.Kind != "edit" { // the input of an edit is the change again
		row.Bodies = append(row.Bodies, inputBodies(e.Tool)...)
	}
}

// toolPath returns the path of a file as people see it.
func toolPath(name string) string {
	return render.OneLine(strings.TrimPrefix(name, executor.WorkDir+"/"), 300)
}

// resultBodies returns the result of a call.
func resultBodies(tool *acp.Tool) (list []resultPart) {
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
			list = append(list, resultPart{Class: "wrap term", HTML: markup.Terminal(text.ClipEnd(c.Block.Text, maxTail))})
		case tool.Kind == "read":
			list = append(list, resultPart{Class: "chroma",
				HTML: markup.Code(text.Clip(c.Block.Text, maxTail), "", text.Clip(file, 300))})
		default:
			list = append(list, resultPart{Class: "wrap", HTML: escaped(text.Clip(c.Block.Text, maxTail))})
		}
	}
	return list
}

// inputBodies returns the files that a call is about, and its input.
func inputBodies(tool *acp.Tool) (list []resultPart) {
	var about strings.Builder
	for _, l := range tool.Locations {
		about.WriteString(toolPath(l.Path))
		if l.Line != nil {
			fmt.Fprintf(&about, ":%d", *l.Line)
		}
		about.WriteString("\n")
	}
	var raw any
	if len(tool.RawInput) > 0 && json.Unmarshal(tool.RawInput, &raw) == nil {
		if b, err := json.MarshalIndent(raw, "", "  "); err == nil {
			about.WriteString(render.ClipClean(string(b), maxRawInput))
		}
	}
	if about.Len() > 0 {
		list = append(list, resultPart{Class: "wrap soft", HTML: escaped(about.String())})
	}
	return list
}

func escaped(s string) template.HTML {
	return template.HTML(template.HTMLEscapeString(markup.Visible(s)))
}

// lineCounts returns the size of a change, such as "+3 −1".
func lineCounts(added, deleted int) string { return fmt.Sprintf("+%d −%d", added, deleted) }

// pictures returns the pictures that a check of a page took.
func (m *talkMaker) pictures(r record.Run, e *conversation.Entry) (list []talkFile) {
	if e.Page == nil || m.api.Evidence == nil || m.api.Evidence.Links == nil {
		return nil
	}
	for _, v := range e.Page.Views {
		if v.Screenshot == "" || len(list) == maxBodies {
			continue
		}
		href := m.api.Address + m.api.Evidence.Links.SignUntil(links.FilePath(r, v.Screenshot), m.api.linksUntil())
		list = append(list, talkFile{Name: render.OneLine(e.Text+", "+v.Viewport.Name, 120), Href: href + "&view=1", Picture: true})
	}
	return list
}
