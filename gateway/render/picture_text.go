package render

import (
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// looked returns the result of a check by a browser, such as "PASS at desktop and mobile; 3.2 % changed" or "FAIL at mobile: step 3 …;
// PASS at desktop".
func (show writing) looked(m *record.Manifest, c record.BrowserCheck) string {
	var parts []string
	worst := record.BrowserPass
	for _, verdict := range []string{string(record.BrowserFail), string(record.BrowserUnverified), string(record.BrowserPass)} {
		// Views with the same result and reason are combined.
		var reasons []string
		at := map[string][]string{}
		for _, v := range c.Views {
			if string(v.Verdict) != verdict {
				continue
			}
			why := v.Reason
			if v.Verdict == record.BrowserPass {
				why = "" // it only has the names of the pages
			}
			if at[why] == nil {
				reasons = append(reasons, why)
			}
			at[why] = append(at[why], show(v.Viewport.Name, 40))
			if worst == record.BrowserPass {
				worst = v.Verdict
			}
		}
		for _, why := range reasons {
			part := verdict + " at " + enumerated(at[why])
			if why != "" {
				part += ": " + strings.TrimSuffix(show(why, 200), ".")
			}
			parts = append(parts, part)
		}
	}
	if c.Verdict != worst || len(c.Views) == 0 {
		// The check as a whole failed, for example because nothing listened, or too much differs.
		own := show(string(c.Verdict), 20)
		if c.Reason != "" {
			own += ": " + strings.TrimSuffix(show(c.Reason, 200), ".")
		}
		parts = append([]string{own}, parts...)
	}
	parts = append(parts, show.differs(c)...)
	if isEarlier(m, c) {
		parts = append(parts, Earlier)
	}
	return strings.Join(parts, "; ")
}

// isEarlier reports whether a check saw another tree than the one at the run's end.
func isEarlier(m *record.Manifest, c record.BrowserCheck) bool {
	return c.Commit != "" && m.Head != "" && c.Commit != string(m.Head)
}

// differs returns the changed share of a page, and nothing if it was not compared.
func (show writing) differs(c record.BrowserCheck) []string {
	if c.Compare == nil || len(c.Compare.Views) == 0 {
		return nil
	}
	var shares []string // by viewport
	same, compared := true, false
	for _, d := range c.Compare.Views {
		if d.Note != "" {
			continue
		}
		compared = true
		same = same && Percent(d.Changed) == Percent(c.Compare.Views[0].Changed)
		if d.Changed > 0 {
			shares = append(shares, Percent(d.Changed)+" at "+show(d.Viewport, 40))
		}
	}
	switch {
	case !compared:
		return []string{"not compared"}
	case len(shares) == 0:
		return []string{"nothing changed"}
	case same:
		return []string{Percent(c.Compare.Views[0].Changed) + " changed"}
	}
	return []string{"changed " + enumerated(shares)}
}

// enumerated joins words, "a, b and c".
func enumerated(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}

func lookMark(verdict string) string {
	switch verdict {
	case string(record.BrowserPass):
		return "✅ "
	case string(record.BrowserFail):
		return "❌ "
	}
	return "⚠️ "
}

// looked returns the part of a result about checks by a browser.
func looked(m *record.Manifest) string {
	list := lastLooks(m)
	if len(list) == 0 {
		return ""
	}
	return "*Browser*" + bullets(len(list), 6, 1200, "and %d more", func(i int) string {
		return lookMark(string(list[i].Verdict)) + InlineText(list[i].Name, 80) + " " +
			cutEscaped(writing(InlineText).looked(m, list[i]), 500)
	})
}

// trace is the browser's recording of a check, for the trace viewer.
type trace struct {
	name     string // in the manifest
	check    string
	viewport string
}

// Traces returns the traces of the last checks. Those of views that failed come first.
func Traces(m *record.Manifest) (list []trace) {
	kept := make(map[string]bool)
	for _, f := range m.Files {
		kept[f.Name] = true
	}
	for _, bad := range []bool{true, false} {
		for _, c := range lastLooks(m) {
			for _, v := range c.Views {
				name := BrowserFiles + v.Trace
				if v.Trace != "" && kept[name] && (v.Verdict != record.BrowserPass) == bad {
					list = append(list, trace{name, c.Name, v.Viewport.Name})
				}
			}
		}
	}
	return list
}

// label returns the label of a link to the trace.
func (t trace) label() string {
	return fmt.Sprintf("%s, %s", OneLine(t.check, 40), OneLine(t.viewport, 30))
}

// PictureLinks return links to files of a run by their names. Nil functions mean that there are no links.
type PictureLinks struct{ File, Trace func(name string) string }

// ShownPictures returns the text above pictures in a thread, in mrkdwn, with their captions and links to the others. Slack makes links
// of addresses in it, unlike in a block, so untrusted text is code.
func ShownPictures(shown, rest []Picture, recorded []trace, links PictureLinks) string {
	text := "*Pictures of the pages*"
	for i, p := range shown {
		text += fmt.Sprintf("\n%d. %s", i+1, p.Caption(CodeSpan))
	}
	return join("\n", text, links.more(rest, recorded, 2000))
}

// LinkedPictures returns the message in place of pictures that cannot be shown.
func LinkedPictures(why string, rest []Picture, recorded []trace, links PictureLinks) slack.Message {
	var l layout
	l.section(join("\n", "*Pictures of the pages*", why, links.more(rest, recorded, 2600)))
	return slack.Message{Text: "Pictures of the pages", Blocks: l.blocks}
}

// more returns links to pictures and traces that fit into units. Links are never cut.
func (links PictureLinks) more(rest []Picture, recorded []trace, units int) string {
	list := func(head string, n int, address func(i int) string, label func(i int) string) string {
		text, left := "", 0
		for i := range n {
			l := link(address(i), label(i))
			next := join(" · ", text, l)
			if !strings.HasPrefix(l, "<") || width(next) > units/2 {
				left++
				continue
			}
			text = next
		}
		if left > 0 {
			text = join(" · ", text, fmt.Sprintf("%d more on the run's page", left))
		}
		if text == "" {
			return ""
		}
		return head + text
	}
	var lines []string
	if links.File != nil {
		lines = append(lines, list("Pictures: ", len(rest), func(i int) string { return links.File(rest[i].File.Name) },
			func(i int) string { return rest[i].Caption(OneLine) }))
	}
	if links.Trace != nil {
		lines = append(lines, list("Traces: ", len(recorded),
			func(i int) string { return links.Trace(recorded[i].name) }, func(i int) string { return recorded[i].label() }))
	}
	return join("\n", lines...)
}
