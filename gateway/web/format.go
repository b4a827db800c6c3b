package web

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// functions are the functions of templates.
var functions = template.FuncMap{
	"termKeys": termKeys,
	"icon":     icon,
	"when":     when,
	"short":    render.ShortHash,
	"clean":    render.Clean,
	"plural":   render.Plural,
	"size":     bytesize.Text,
	"initial":  initial,
	"sentence": sentence,
	"prose":    prose,
	"badge":    badge,
	"join":     strings.Join,
	"side":     sideOf,
	"duration": render.Duration,
	"fragment": func(p *Page, data any) fragmentData { return fragmentData{p, data} },
	"line":     func(s string) string { return render.OneLine(s, 200) },
}

// when returns a time as an element. Scripts replace its text by one in the reader's zone.
func when(t time.Time) template.HTML {
	if t.IsZero() {
		return `<span class="soft">–</span>`
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time class="when nowrap" datetime="%s">%s</time>`, t.Format(time.RFC3339),
		t.Format("2 Jan 15:04 UTC")))
}

// initial returns the first letter of a name.
func initial(name string) string {
	r, _ := utf8.DecodeRuneInString(strings.TrimSpace(name))
	if r == utf8.RuneError {
		return "?"
	}
	return string(unicode.ToUpper(r))
}

// sentence makes a sentence of the text of a problem.
func sentence(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return ""
	}
	s = string(unicode.ToUpper(r)) + s[size:]
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}

// prose returns the text of an error or a hint as a sentence, with the words between backticks as code.
func prose(s string) template.HTML {
	var b strings.Builder
	for i, part := range strings.Split(sentence(s), "`") {
		part = template.HTMLEscapeString(part)
		if i%2 == 1 {
			part = "<code>" + part + "</code>"
		}
		b.WriteString(part)
	}
	return template.HTML(b.String())
}

// Badge is a short state with its kind: "good", "bad", "warn", "info" or "".
type Badge struct{ Text, Kind string }

// badge returns the badge of a state of a workspace, a run or a verdict.
func badge(v any) Badge {
	switch v := v.(type) {
	case workspace.State:
		return workspaceBadge(v)
	case record.State:
		return runStateBadge(v)
	case record.Verdict:
		return verdictBadge(v)
	}
	return Badge{Text: fmt.Sprint(v)}
}

var workspaceBadges = map[workspace.State]Badge{
	workspace.Pending:  {"Waits", "info"},
	workspace.Creating: {"Starts", "info live"},
	workspace.Running:  {"Running", "good"},
	workspace.Recovery: {"Recovery", "warn"},
	workspace.Stopping: {"Stops", "info live"},
	workspace.Error:    {"Error", "bad"},
}

func workspaceBadge(s workspace.State) Badge {
	if b, ok := workspaceBadges[s]; ok {
		return b
	}
	return Badge{"Asleep", ""}
}

var runStateBadges = map[record.State]Badge{
	record.StateSubmitted:          {"Waits", "info"},
	record.StateRunning:            {"At work", "info live"},
	record.StateAwaitingReview:     {"Needs you", "warn"},
	record.StateAddressingComments: {"Answers comments", "info live"},
	record.StateComplete:           {"Complete", "good"},
	record.StateFailed:             {"Failed", "bad"},
}

func runStateBadge(s record.State) Badge {
	if b, ok := runStateBadges[s]; ok {
		return b
	}
	return Badge{string(s), ""}
}

// runBadge returns the badge of a run, with the reason of its end.
func runBadge(r record.Run) Badge {
	if r.State == record.StateFailed {
		switch r.Reason {
		case record.ReasonCancelled:
			return Badge{"Stopped", "warn"}
		case record.ReasonTimedOut:
			return Badge{"Timed out", "bad"}
		}
	}
	if r.Kind == record.KindExec && r.Exit != nil && *r.Exit != 0 && r.State == record.StateComplete {
		return Badge{fmt.Sprintf("Exit %d", *r.Exit), "warn"}
	}
	return runStateBadge(r.State)
}

var verdictBadges = map[record.Verdict]Badge{
	record.VerdictVerified:   {"Verified", "good"},
	record.VerdictUnverified: {"Not verified", "warn"},
	record.VerdictFailed:     {"Checks failed", "bad"},
}

func verdictBadge(v record.Verdict) Badge {
	if b, ok := verdictBadges[v]; ok {
		return b
	}
	return Badge{"Nothing to verify", ""}
}

// personName returns the name of a person, for people.
func personName(p gitd.Person) string {
	if p.Name == "" {
		return "somebody"
	}
	return render.ClipClean(p.Name, 80)
}

// decider returns the name of the person of a decision, or the id if the name is not known. People choose their names
// in Slack, so that the id follows such a name.
func decider(d record.Decision) string {
	if d.Name != "" && strings.HasPrefix(d.By, "slack:") {
		return render.OneLine(d.Name, 100) + " (" + render.OneLine(d.By, 100) + ")"
	}
	return render.OneLine(cmp.Or(d.Name, d.By), 100)
}
