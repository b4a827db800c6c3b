package evidence

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/diff"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// Limits of the browser checks on a page. The evidence has all of them.
const (
	pageLooks  = 12 // checks
	pageFaults = 5  // console errors and network errors of a view
	pageAria   = 400
)

type (
	// lookRow is one check by a browser.
	lookRow struct {
		Name, Verdict, Class, Reason, Note, Log string
		Views                                   []viewRow
		Compare                                 *compareRow
		Links                                   []pageLink
	}
	// viewRow is the result of a check at one viewport.
	viewRow struct {
		Name, Size, Verdict, Class, Reason, Address, Title, Numbers string
		Shot                                                        *shotRow
		Faults                                                      []faultRow
		More                                                        string // number of faults that are not shown
		Steps                                                       []doneRow
		StepsNote                                                   string
		Open                                                        bool
		Links                                                       []pageLink
	}
	// shotRow is a picture. Its size is part of the page, so the layout does not change when the picture is loaded.
	shotRow struct {
		Alt, View, File, Class string
		Width, Height          int
	}
	faultRow   struct{ Kind, Text string }
	doneRow    struct{ Mark, Class, Text, End, Error, View string }
	compareRow struct {
		Base, Verdict, Class, Reason, Note string
		Views                              []changeRow
	}
	changeRow struct {
		Viewport, Changed, Note string
		Picture                 *shotRow
		// Before and After are the two pictures. They are nil if one of them is missing.
		Before, After *shotRow
		Aria          []diffText
		AriaNote      string
	}
)

// showBrowser fills in the browser checks. kept has the files of the manifest. A file that is not in kept is not
// linked, even if a check names it.
func (api *API) showBrowser(c *route.Call, p *RunPage, r record.Run, m *record.Manifest, kept map[string]bool) {
	link := func(name string, view bool) string {
		switch full := render.BrowserFiles + name; {
		case name == "" || !kept[full]:
			return ""
		case view:
			return viewLink(c, r, full)
		default:
			return c.Link(links.FilePath(r, full))
		}
	}
	for _, k := range m.Browser {
		if len(p.Browser) == pageLooks {
			p.BrowserNote = fmt.Sprintf("the first %d of %d; the bundle has all", pageLooks, len(m.Browser))
			break
		}
		row := lookRow{Name: render.ClipClean(k.Name, 200), Verdict: verdictWord(k.Verdict),
			Class: verdictClass(k.Verdict), Reason: render.ClipClean(k.Reason, 1000), Log: render.ClipClean(k.Log, pageText)}
		notes := []string{render.Duration(time.Duration(k.DurationMS) * time.Millisecond)}
		if k.Spec != "" {
			notes = append([]string{k.Spec}, notes...)
		}
		if k.Commit != "" {
			notes = append(notes, "at "+k.Commit[:min(10, len(k.Commit))])
			if k.Commit != string(m.Head) {
				notes = append(notes, render.Earlier)
			}
		}
		if k.Browser != "" {
			notes = append(notes, k.Browser)
		}
		if k.MemoryPeak > 0 {
			notes = append(notes, bytesize.Text(k.MemoryPeak)+" of memory")
		}
		row.Note = render.ClipClean(strings.Join(notes, " · "), 500)
		for i, v := range k.Views {
			if i == pageLooks {
				break
			}
			view := api.viewRow(c, v, link)
			if view.Reason == row.Reason {
				view.Reason = "" // the row shows the reason already
			}
			row.Views = append(row.Views, view)
		}
		if k.Compare != nil {
			row.Compare = compared(*k.Compare, k.Views, link)
		}
		p.Browser = append(p.Browser, row)
	}
}

func (api *API) viewRow(c *route.Call, v record.BrowserView, link func(name string, view bool) string) viewRow {
	row := viewRow{Name: render.ClipClean(v.Viewport.Name, 100),
		Size:    fmt.Sprintf("%d × %d", v.Viewport.Width, v.Viewport.Height),
		Verdict: verdictWord(v.Verdict), Class: verdictClass(v.Verdict), Reason: render.ClipClean(v.Reason, 1000),
		Address: render.ClipClean(v.FinalURL, 500), Title: render.ClipClean(v.Title, 200)}
	if row.Address == "" {
		row.Address = render.ClipClean(v.URL, 500)
	}
	if v.Viewport.Scale > 1 {
		row.Size += fmt.Sprintf(" at %g×", v.Viewport.Scale)
	}
	numbers := []string{"no answer"}
	if v.Status > 0 {
		numbers[0] = fmt.Sprintf("HTTP %d", v.Status)
	}
	numbers = append(numbers, render.Plural(v.Requests, "request"))
	said := 0
	for _, n := range v.Console.Counts {
		said += n
	}
	numbers = append(numbers, render.Plural(said, "console message"), render.Plural(len(v.Network), "failed request"))
	if v.Allowed > 0 {
		numbers = append(numbers, fmt.Sprintf("%d allowed", v.Allowed))
	}
	numbers = append(numbers, render.Duration(time.Duration(v.DurationMS)*time.Millisecond))
	row.Numbers = strings.Join(numbers, " · ")

	var faults []faultRow
	for _, t := range v.Console.PageErrors {
		faults = append(faults, faultRow{"uncaught", render.ClipClean(t, 500)})
	}
	for _, t := range v.Console.Errors {
		faults = append(faults, faultRow{"console", render.ClipClean(t, 500)})
	}
	for _, n := range v.Network {
		what := n.Failure
		if n.Status > 0 {
			what = fmt.Sprint(n.Status)
		}
		faults = append(faults, faultRow{"network", render.ClipClean(n.Method+" "+n.URL+": "+what, 500)})
	}
	row.Faults = faults[:min(len(faults), 2*pageFaults)]
	if more := len(faults) - len(row.Faults); more > 0 {
		row.More = fmt.Sprintf("and %d more", more)
	}
	for _, step := range v.Steps {
		row.Steps = append(row.Steps, doneStep(step, link))
		row.Open = row.Open || !step.OK
	}
	if n := len(v.Steps); n > 0 {
		row.StepsNote = render.Plural(n, "step")
	}
	if file := link(v.Screenshot, false); file != "" {
		row.Shot = &shotRow{Alt: row.Name + " picture of the page", File: file, View: link(v.Screenshot, true),
			Class: "wide", Width: v.Viewport.Width, Height: v.Viewport.Height}
		if v.Viewport.Height > v.Viewport.Width {
			row.Shot.Class = "tall"
		}
	}
	if link(v.Trace, false) != "" {
		row.Links = append(row.Links, pageLink{"open the trace", api.traceLink(c, link(v.Trace, false))})
	}
	for _, f := range []struct {
		text, name string
		view       bool
	}{{"trace.zip", v.Trace, false}, {"HAR", v.HAR, false}, {"console", v.Console.File, true},
		{"accessibility tree", v.Aria, true}, {"video", v.Video, true}, {"PDF", v.PDF, false}} {
		if to := link(f.name, f.view); to != "" {
			row.Links = append(row.Links, pageLink{f.text, to})
		}
	}
	return row
}

// doneStep returns a row that describes a step, such as fill #new with "Write tests".
func doneStep(s record.BrowserStep, link func(name string, view bool) string) doneRow {
	text := strings.ReplaceAll(s.Do, "_", " ")
	for _, part := range []struct{ before, text string }{{" ", s.Target}, {" · ", s.Value}, {" in ", s.In}} {
		if part.text != "" {
			text += part.before + part.text
		}
	}
	row := doneRow{Mark: "✓", Class: "good", Text: render.ClipClean(text, 300),
		End:   render.Duration(time.Duration(s.MS) * time.Millisecond),
		Error: render.ClipClean(s.Error, 1000), View: link(s.Screenshot, true)}
	if !s.OK {
		row.Mark, row.Class = "✗", "bad-text"
	}
	return row
}

// compared returns the differences from the base.
func compared(k record.BrowserComparison, views []record.BrowserView, link func(name string, view bool) string) *compareRow {
	row := &compareRow{Base: render.ClipClean(k.Base, 200), Verdict: verdictWord(k.Verdict),
		Class: verdictClass(k.Verdict), Reason: render.ClipClean(k.Reason, 1000)}
	if k.Commit != "" {
		row.Base = strings.TrimPrefix(row.Base+" at "+k.Commit[:min(10, len(k.Commit))], " ")
	}
	if k.Cached {
		row.Note = "from an earlier look"
	}
	for _, d := range k.Views {
		change := changeRow{Viewport: render.ClipClean(d.Viewport, 100), Changed: "no pixel differs",
			Note: render.ClipClean(d.Note, 500)}
		if d.Pixels > 0 {
			change.Changed = render.Percent(d.Changed) + " of the pixels differ"
			if n := len(d.Boxes); n > 0 {
				change.Changed += fmt.Sprintf(" in %s", render.Plural(n, "place"))
			}
		}
		if d.Note != "" {
			change.Changed = ""
		}
		width, height := 3, 1
		if at := slices.IndexFunc(views, func(v record.BrowserView) bool { return v.Viewport.Name == d.Viewport }); at >= 0 {
			scale := max(views[at].Viewport.Scale, 1)
			width = int(float64(views[at].Viewport.Width) * scale)
			height = int(float64(views[at].Viewport.Height) * scale)
		}
		if file := link(d.Picture, false); file != "" {
			change.Picture = &shotRow{Alt: "before, after, and what differs", File: file, View: link(d.Picture, true),
				Class: "triptych", Width: 3*width + 8, Height: height} // the panels are separated by two lines
			if height > width {
				change.Picture.Class = "triptych small"
			}
		}
		if before, after := link(d.Before, false), link(d.After, false); before != "" && after != "" {
			change.Before = &shotRow{Alt: "the page before", File: before, View: link(d.Before, true), Width: width, Height: height}
			change.After = &shotRow{Alt: "the page after", File: after, View: link(d.After, true), Width: width, Height: height}
		}
		if d.Aria != "" {
			change.AriaNote = "what assistive technology sees"
			parts, whole, _ := diff.Read(strings.NewReader(d.Aria), diff.Limits{Lines: pageAria}) // a text has no errors
			for _, f := range parts {
				change.Aria = append(change.Aria, diffRows(f)...)
			}
			if !whole {
				change.AriaNote += fmt.Sprintf(", its first %d lines", pageAria)
			}
		}
		row.Views = append(row.Views, change)
	}
	return row
}

func verdictWord(v record.BrowserVerdict) string {
	switch v {
	case record.BrowserPass, record.BrowserFail:
		return string(v)
	}
	return string(record.BrowserUnverified)
}

func verdictClass(v record.BrowserVerdict) string {
	switch v {
	case record.BrowserPass:
		return "good"
	case record.BrowserFail:
		return "bad"
	}
	return "warn"
}

// isLook reports whether a file is a picture of a browser check, which is shown with its check.
func isLook(name string) bool {
	return strings.HasPrefix(name, render.BrowserFiles) && path.Ext(name) == ".png"
}
