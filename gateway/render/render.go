// Package render makes messages, pull requests and prompts. Its input is the evidence of runs, its output is Slack's Block Kit or
// GitHub's Markdown. Its functions are pure.
//
// # Untrusted input
//
// Texts come from containers, models, pages and people. A text never becomes markup: it does not mention anybody, link, close an
// issue, or end the block that it is in, and invisible characters are shown. Each text and each message has a bound, and is cut
// between the signs that a reader sees.
package render

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/links"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/bytesize"
)

// Standing is the input of a run's progress message.
type Standing struct {
	Run    record.Run
	Policy gate.Policy
	Step   string // the step at work in words; empty for none
	Steps  int    // that have ended
	Since  time.Time
	Now    time.Time
	Base   time.Time // when the base was refreshed; zero if unknown
	Link   string    // to the run's page; empty for none
}

// Progress returns the progress message of a run that has not ended, with its buttons.
func Progress(p Standing) slack.Message {
	var l layout
	head := p.head()
	l.section("*" + escape(head) + "*" + p.doing())
	if g := p.gate(); g != nil {
		asked, whole := quoteWhole(g.Message, questionLines, questionMax)
		l.section("A person is asked:\n" + asked)
		if !whole {
			l.section(partShown)
		}
	}
	l.context(p.count(), p.elapsed(), whereabouts(p.Run.Repo, p.Run.Branch, p.Run.Base), refreshed(p.Base, p.Now),
		policyWords(p.Policy), shownPage(p.Link))
	var buttons []any
	if g := p.gate(); g != nil {
		buttons = append(buttons, answers(p.Run.Name(), *g)...)
	}
	if !p.Run.Ended() {
		buttons = append(buttons, press(ActionStop, "Stop", "", p.Run.Name()))
	}
	l.actions(buttons...)
	return slack.Message{Text: notification(head, p.notice()), Blocks: l.blocks}
}

// gate returns the question of a run that waits, or of an agent at work that asks for permission.
func (p Standing) gate() *record.Gate {
	switch p.Run.State {
	case record.StateAwaitingReview, record.StateRunning:
		return p.Run.Gate
	}
	return nil
}

func (p Standing) head() string {
	switch p.Run.State {
	case record.StateSubmitted:
		if p.Run.Place > 0 {
			return fmt.Sprintf("⏳ In line, place %d", p.Run.Place)
		}
		return "👀 On it"
	case record.StateRunning:
		if p.Run.Place > 0 {
			return fmt.Sprintf("⏳ In line for a container, place %d", p.Run.Place)
		}
		if p.gate() != nil {
			return "✋ Waiting for an answer"
		}
		return "⚙️ Working"
	case record.StateAwaitingReview:
		return "✋ Waiting for an answer"
	case record.StateAddressingComments:
		return "✍️ Addressing comments"
	case record.StateComplete:
		return "🏁 Ended"
	case record.StateFailed:
		return "🏁 Ended: " + ReasonText(p.Run.Reason)
	}
	return "⚙️ " + NoTicks(OneLine(string(p.Run.State), 60))
}

// doing returns the current step, which follows the headline.
func (p Standing) doing() string {
	if p.Step == "" || p.Run.Ended() {
		return ""
	}
	return " " + CodeSpan(p.Step, 200)
}

func (p Standing) notice() string {
	if p.Run.Ended() {
		return ""
	}
	if g := p.gate(); g != nil {
		return g.Message
	}
	return p.Step
}

func (p Standing) count() string {
	switch {
	case p.Steps <= 0:
		return ""
	case p.Steps == 1:
		return "1 step done"
	}
	return fmt.Sprintf("%d steps done", p.Steps)
}

func (p Standing) elapsed() string {
	if p.Since.IsZero() || p.Now.Before(p.Since) {
		return ""
	}
	return Duration(p.Now.Sub(p.Since))
}

// Result is the input of the final message of a run. Only Manifest decides about the outcome.
type Result struct {
	Manifest record.Manifest
	Policy   gate.Policy
	// Page is a link to the run's page, and Links returns one for a file of the manifest. Links that are missing are not shown.
	Page  string
	Links func(name string) string
	Clone string // URL to clone the repository from; empty for none
	// Output is the end of the output of a single command, or of the last command that failed, as the executor kept it.
	Output string
	// Says is the last text of the agent. It is shown as the agent's words, and decides nothing.
	Says string
	// Propose offers to open a pull request.
	Propose bool
}

// Message returns the message. It is empty for a request that was answered without running anything.
func (r Result) Message() slack.Message {
	m := &r.Manifest
	if m.Kind == record.KindRequest {
		return slack.Message{}
	}
	var l layout
	head, what := Headline(m)
	l.header(head)
	l.section(join("\n", what, r.why(), r.next()))
	l.section(r.changed())
	l.section(checked(m))
	l.section(looked(m))
	l.section(unverified(m))
	l.section(commands(m))
	l.section(r.printed())
	l.section(r.says())
	l.section(r.links())
	if r.Clone != "" && m.Branch != "" {
		l.context("`git clone -b " + InlineText(m.Branch, 200) + " " + InlineText(r.Clone, 300) + "`")
	}
	l.context(whereabouts(m.Repo, m.Branch, m.Base), refreshed(m.BaseRefreshed, m.EndedAt), policyWords(r.Policy),
		runDuration(m), agentWords(m))
	var buttons []any
	if m.State == record.StateFailed {
		buttons = append(buttons, press(ActionRetry, "Retry", "", m.Run))
	}
	if len(m.Changed) > 0 {
		buttons = append(buttons, press(ActionDiff, "Show diff", "", m.Run))
	}
	if r.proposable() {
		buttons = append(buttons, press(ActionPull, "Open pull request", "", m.Run))
	}
	l.actions(buttons...)
	return slack.Message{Text: notification(head, changes(m)), Blocks: l.blocks}
}

// proposable reports whether a pull request of the branch is offered.
func (r Result) proposable() bool {
	m := &r.Manifest
	return r.Propose && m.State == record.StateComplete && m.Verdict != record.VerdictFailed && len(m.Changed) > 0 &&
		m.Merged == "" && m.Pull == nil
}

// Headline returns the outcome of the run, and the verdict about its changes.
func Headline(m *record.Manifest) (head, what string) {
	switch m.State {
	case record.StateComplete:
	case record.StateFailed:
		what = "The changes so far were committed."
		if m.Start == m.Head {
			what = "Nothing was changed."
		}
		switch m.Reason {
		case record.ReasonCancelled:
			return "🛑 Stopped", what
		case record.ReasonRejected:
			return "🛑 Rejected", "A person said no. " + what
		case record.ReasonTimedOut:
			return "⏱ Timed out", what
		}
		return "❌ Failed: " + ReasonText(m.Reason), what
	default:
		return "✋ Not ended", "It waits for a person."
	}
	switch m.Verdict {
	case record.VerdictVerified:
		return "✅ Done", "Verified: the last commit of the branch passed its checks."
	case record.VerdictNone:
		return "✅ Done", "Nothing was changed."
	case record.VerdictFailed:
		return "❌ Checks failed", "The run came to its end, but the last commit of the branch did not pass its checks."
	}
	return "⚠️ Done, unverified", "Unverified: no check ran on the last commit of the branch."
}

func (r Result) why() string {
	m := &r.Manifest
	if m.State != record.StateFailed || m.Error == "" {
		return ""
	}
	return quote(m.Error, 8, 400)
}

// next returns the next possible actions, in words that a mention understands.
func (r Result) next() string {
	m := &r.Manifest
	switch {
	case m.State == record.StateFailed:
		var refused []string
		for _, e := range m.Egress {
			if e.Verdict == "refused" {
				refused = append(refused, e.Host)
			}
		}
		if what := record.EgressHint(refused); what != "" && (m.Reason == record.ReasonCommandFailed || m.Reason == record.ReasonTimedOut) {
			return "What to do: " + escape(what+"; or "+Hint(m.Reason))
		}
		return "What to do: " + escape(Hint(m.Reason))
	case m.Merged != "":
		return "Merged into " + CodeSpan(m.Base, 100) + " as " +
			CodeSpan(string(m.Merged[:min(10, len(m.Merged))]), 10) + "."
	case m.Pull != nil:
		return fmt.Sprintf("Pull request #%d into %s: %s", m.Pull.Number, CodeSpan(m.Base, 100), shownURL(m.Pull.URL))
	case r.proposable():
		return "To open its pull request, say `pr` in this thread."
	case m.State == record.StateComplete && m.Verdict != record.VerdictFailed && len(m.Changed) > 0:
		return "To merge it, say `merge` in this thread."
	}
	return ""
}

// Hint returns a hint like [record.Reason.Hint] for a person in the thread, without a command line.
func Hint(reason record.Reason) string {
	switch reason {
	case record.ReasonCommandFailed:
		return "read the output on the run's page, say what to correct, or say `retry`."
	case record.ReasonTimedOut:
		return "make it faster, ask for less at once, or ask the operator of ramus for more time; then say `retry`."
	case record.ReasonCancelled:
		return "say `retry`, or what to do instead: it goes on from there."
	case record.ReasonRejected:
		return "say what to change; `retry` asks again."
	case record.ReasonMergeConflict:
		return "bring the branch up to date with its base, then say `merge`."
	case record.ReasonNotMerged:
		return "nothing was merged; correct the problem that is named above, then say `merge`."
	case record.ReasonConflict:
		return "somebody pushed to the branch meanwhile: merge the ref that is named above into it, push, then say `retry`."
	case record.ReasonNotCommitted:
		return "the files are among the run's artifacts; say to remove or ignore them, or ask the operator of ramus to raise the limit, then say `retry`."
	case record.ReasonBranchGone:
		return "push the branch again, or mention ramus in a new thread."
	case record.ReasonContainerLost, record.ReasonInterrupted, record.ReasonUnavailable:
		return "say `retry`; if it happens again, the operator of ramus finds out more with `ramus doctor`."
	case record.ReasonDiskFull:
		return "write less, or ask the operator of ramus to make room or to raise limits.disk; then say `retry`."
	case record.ReasonOutOfMemory:
		return "use less memory, or ask the operator of ramus to raise limits.memory; then say `retry`."
	case record.ReasonBadInput:
		return "correct the request and say it again; `help` lists what can be said."
	case record.ReasonModel:
		return "look at the run's page for the model's answer; then say `retry`."
	case record.ReasonBudget:
		return "ask for less at once, or ask the operator of ramus to raise models.budget; `retry` begins with a new budget."
	case record.ReasonSetupFailed:
		return "correct `setup` in .ramus/config.yaml of the base, then say `retry`; the run's page has the end of the command's output."
	case record.ReasonService:
		return "correct the entry of the service under `services`, then say `retry`; the run's page has the end of its output."
	case record.ReasonInternal:
		return "this is a fault of ramus: its operator finds more in the server's log."
	}
	if h := reason.Hint(); h != "" {
		return h + "."
	}
	return "say `retry`, or what to do instead."
}

func ReasonText(reason record.Reason) string {
	switch reason {
	case "":
		return "no reason is known"
	case record.ReasonCommandFailed:
		return "a command failed"
	case record.ReasonTimedOut:
		return "timed out"
	case record.ReasonCancelled:
		return "stopped"
	case record.ReasonContainerLost:
		return "the container was lost"
	case record.ReasonUnavailable:
		return "no container could be had"
	case record.ReasonDiskFull:
		return "the disk is full"
	case record.ReasonInterrupted:
		return "the server stopped in the middle"
	case record.ReasonModel:
		return "a model failed"
	case record.ReasonBudget:
		return "the budget for models is used up"
	case record.ReasonEnvLost:
		return "the command's environment was lost"
	case record.ReasonSetupFailed:
		return "a command that prepares the container failed"
	case record.ReasonService:
		return "a service did not start"
	case record.ReasonInternal:
		return "a fault of ramus"
	}
	return NoTicks(OneLine(strings.ReplaceAll(string(reason), "_", " "), 60))
}

// changes returns a summary of the changed files, "3 files changed, +10 −2".
func changes(m *record.Manifest) string {
	if len(m.Changed) == 0 {
		return ""
	}
	added, deleted := 0, 0
	for _, c := range m.Changed {
		added += max(c.Added, 0)
		deleted += max(c.Deleted, 0)
	}
	return fmt.Sprintf("%s changed, +%d −%d", Plural(len(m.Changed), "file"), added, deleted)
}

func (r Result) changed() string {
	m := &r.Manifest
	if len(m.Changed) == 0 {
		return ""
	}
	return "*" + changes(m) + "*" + bullets(len(m.Changed), 12, 1600, "and %d more", func(i int) string {
		c := m.Changed[i]
		line := CodeSpan(c.Path, 150)
		if c.OldPath != "" {
			line = CodeSpan(c.OldPath, 100) + " → " + line
		}
		switch {
		case c.Added < 0 || c.Deleted < 0:
			line += " binary"
		default:
			line += fmt.Sprintf(" +%d −%d", c.Added, c.Deleted)
		}
		switch c.Status {
		case "A":
			line += ", new"
		case "D":
			line += ", deleted"
		}
		return line
	})
}

// checked returns the checks that have a result, each with the last one, and tests that no check ran.
func checked(m *record.Manifest) string {
	ran, alone := lastChecks(m)
	if len(ran)+len(alone) == 0 {
		return ""
	}
	return "*Checks*" + bullets(len(ran)+len(alone), 8, 1600, "and %d more", func(i int) string {
		if i >= len(ran) {
			t := alone[i-len(ran)]
			return mark(t.OK && t.Failed == 0) + writing(InlineText).tool("tests", t.Framework) + ": " +
				writing(CodeSpan).counted(t, 5, 80)
		}
		c := ran[i]
		came := ""
		if t := testsOf(m, c); t != nil {
			came = writing(CodeSpan).counted(*t, 5, 80)
		}
		if came == "" {
			came = InlineText(c.Why, 150)
		}
		if came == "" {
			came = string(c.Result)
		}
		line := mark(c.Result == record.CheckPassed) + writing(InlineText).tool(c.Check, c.Tool) + ": " + came
		if !c.Current {
			line += ", " + Earlier
		}
		return line
	})
}

// Reused names the check whose result was used again. Returns "" for nil.
func Reused(r *record.Reused) string {
	if r == nil {
		return ""
	}
	return fmt.Sprintf("known from %s, %s, %s", ClipClean(r.Run, 200), ClipClean(r.Step, 100),
		r.At.UTC().Format("2006-01-02 15:04:05Z"))
}

// lastChecks returns the checks that have a result, each with the last one, and the tests that no check ran.
func lastChecks(m *record.Manifest) (ran []record.ManifestCheck, alone []record.ManifestTests) {
	told := map[string]bool{}
	for i, c := range m.Checks {
		told[c.Step] = true
		again := func(d record.ManifestCheck) bool { return d.Task == c.Task && d.Command == c.Command }
		if c.Result.Ran() && !slices.ContainsFunc(m.Checks[i+1:], again) {
			ran = append(ran, c)
		}
	}
	for _, t := range m.Tests {
		if !told[t.Step] && !t.Unknown {
			alone = append(alone, t)
		}
	}
	return ran, alone
}

// testsOf returns the tests of a check, and nil if it ran none.
func testsOf(m *record.Manifest, c record.ManifestCheck) *record.ManifestTests {
	n := slices.IndexFunc(m.Tests, func(t record.ManifestTests) bool { return t.Step == c.Step && c.Step != "" })
	if n < 0 || c.Check != "tests" {
		return nil
	}
	return &m.Tests[n]
}

func mark(ok bool) string {
	if ok {
		return "✅ "
	}
	return "❌ "
}

// writing escapes untrusted text for one medium, and cuts it to a length.
type writing func(word string, most int) string

// tool returns a check and its tool.
func (show writing) tool(check, by string) string {
	if by == "" {
		return show(check, 40)
	}
	return show(check, 40) + " (" + show(by, 40) + ")"
}

// counted returns the counts of tests and the names of some that failed. It is empty if the tests could not be counted.
func (show writing) counted(t record.ManifestTests, names, most int) string {
	if t.Unknown {
		return ""
	}
	s := fmt.Sprintf("%d passed", t.Passed)
	if t.Failed > 0 {
		s += fmt.Sprintf(", %d failed", t.Failed)
	}
	if t.Skipped > 0 {
		s += fmt.Sprintf(", %d skipped", t.Skipped)
	}
	for i, name := range t.FailedNames {
		if i == names {
			return s + fmt.Sprintf(" and %d more", len(t.FailedNames)-names)
		}
		s += " " + show(name, most)
	}
	return s
}

// unchecked returns the parts that were not checked.
func unchecked(m *record.Manifest) []string {
	list := slices.Clone(m.Unverified)
	// The manifest has them, unless an earlier version wrote it.
	for _, c := range m.Checks {
		words := ""
		switch c.Result {
		case record.CheckSkipped:
			words = c.Check + " skipped: " + c.Why
		case record.CheckNotRun:
			words = c.Check + " could not run: " + c.Why
		}
		if words != "" && !slices.Contains(list, words) {
			list = append(list, words)
		}
	}
	return list
}

func unverified(m *record.Manifest) string {
	list := unchecked(m)
	if len(list) == 0 {
		return ""
	}
	return "*Not verified*" + bullets(len(list), 8, 1400, "and %d more", func(i int) string {
		if m.State == record.StateFailed && m.Error != "" && strings.HasSuffix(list[i], m.Error) {
			return InlineText(strings.TrimSuffix(list[i], m.Error), 100) + " see above"
		}
		return InlineText(list[i], 300)
	})
}

// commands returns the last commands.
func commands(m *record.Manifest) string {
	const most = 6
	if len(m.Commands) == 0 {
		return ""
	}
	title := "*Commands*"
	last := m.Commands
	if len(last) > most {
		title = fmt.Sprintf("*Commands*, the last %d of %d", most, len(last))
		last = last[len(last)-most:]
	}
	return title + bullets(len(last), most, 1600, "and %d more", func(i int) string {
		c := last[i]
		first, _, more := strings.Cut(strings.TrimSpace(c.Command), "\n")
		line := CodeSpan(first, 160)
		if more {
			line += " …" // joined lines would read as another command
		}
		if line == "" {
			line = CodeSpan(c.Step, 160)
		}
		switch {
		case c.Exit != nil:
			line += " exit " + strconv.Itoa(*c.Exit)
		case c.OK:
			line += " ok"
		default:
			line += " failed"
		}
		if c.Reason != "" && !c.OK {
			line += ", " + InlineText(c.Reason, 100)
		}
		if c.Reused != nil {
			return line + ", " + InlineText(Reused(c.Reused), 300)
		}
		return line + ", " + Duration(time.Duration(max(c.DurationMS, 0))*time.Millisecond)
	})
}

// printed returns the end of the output.
func (r Result) printed() string {
	text, _, _ := codeBlock(ending(r.Output, 15, 900), 1000)
	return text
}

func (r Result) says() string {
	q := quote(ending(r.Says, 10, 450), 11, 500)
	if q == "" {
		return ""
	}
	who := "The agent"
	if r.Manifest.Agent != "" {
		who += " " + CodeSpan(r.Manifest.Agent, 64)
	}
	return who + " says (its own words, nobody has checked them):\n" + q
}

// links returns links to the page and to the files that people look for.
func (r Result) links() string {
	const (
		most     = 8
		linksMax = 2000
	)
	var list []string
	if p := shownPage(r.Page); p != "" {
		list = append(list, p)
	}
	named := func(name, label string) {
		if r.Links != nil {
			if l := link(r.Links(name), label); strings.HasPrefix(l, "<") {
				list = append(list, l)
			}
		}
	}
	var artifacts []record.ManifestFile
	for _, f := range r.Manifest.Files {
		switch {
		case f.Name == "evidence/changes.diff" && len(r.Manifest.Changed) > 0:
			named(f.Name, "Diff")
		case f.Name == "journal.jsonl":
			named(f.Name, "Journal")
		case strings.HasPrefix(f.Name, BrowserFiles) && len(r.Manifest.Browser) > 0:
			// Pictures have a message of their own.
		case strings.HasPrefix(f.Name, "artifacts/"):
			artifacts = append(artifacts, f)
		}
	}
	for i, f := range artifacts {
		if i == most {
			list = append(list, fmt.Sprintf("and %s more", Plural(len(artifacts)-most, "artifact")))
			break
		}
		named(f.Name, strings.TrimPrefix(f.Name, "artifacts/")+" ("+bytesize.Text(f.Size)+")")
	}
	// A link that is cut does not work, so links are whole.
	text := ""
	for i, item := range list {
		if next := join(" · ", text, item); width(next) <= linksMax {
			text = next
			continue
		}
		return text + fmt.Sprintf(" · and %d more", len(list)-i)
	}
	return text
}

func runDuration(m *record.Manifest) string {
	if m.StartedAt.IsZero() || m.EndedAt.IsZero() {
		return ""
	}
	return "took " + Duration(time.Duration(max(m.DurationMS, 0))*time.Millisecond)
}

// agentWords returns the name of the agent and its use of models.
func agentWords(m *record.Manifest) string {
	s := ""
	if m.Agent != "" {
		s = "agent " + CodeSpan(m.Agent, 64)
	}
	if u := m.Usage; u != nil && u.Calls > 0 {
		s = join(" · ", s, usageWords(*u))
	}
	return s
}

func usageWords(u record.Usage) string {
	s := fmt.Sprintf("%s to models, %s tokens in, %s out", Plural(int(u.Calls), "call"), thousands(u.InputTokens),
		thousands(u.OutputTokens))
	if u.CostMicros > 0 {
		s += fmt.Sprintf(", cost %.4f", float64(u.CostMicros)/1e6)
	}
	return s
}

func policyWords(p gate.Policy) string {
	if p.Runner == "" {
		return ""
	}
	return "runner " + InlineText(string(p.Runner), 40) + " (" + InlineText(string(p.Reason), 60) + ")"
}

func whereabouts(repo, branch, base string) string {
	s := ""
	if repo != "" {
		s = CodeSpan(repo, 100)
	}
	if branch != "" {
		s = join(" ", s, "branch "+CodeSpan(branch, 120))
	}
	if base != "" && base != branch {
		s = join(" ", s, "from "+CodeSpan(base, 100))
	}
	return s
}

// refreshed returns the age of the base, so that a thread shows that upstream could not be reached for long.
func refreshed(base, now time.Time) string {
	if base.IsZero() || now.Before(base) {
		return ""
	}
	return "base " + Duration(now.Sub(base)) + " old"
}

func shownPage(page string) string {
	if l := link(page, "Run's page"); strings.HasPrefix(l, "<") {
		return l
	}
	return ""
}

// notification returns a message's text for places without blocks. rest may be untrusted.
func notification(head, rest string) string {
	text := escape(head)
	if rest = InlineText(rest, 200); rest != "" {
		text += ": " + rest
	}
	return cutEscaped(text, notifiableMax)
}

// Answer is a message other than the progress or the result of a run.
type Answer struct {
	Text string // prose in mrkdwn, in which mentions and links are escaped
	Code string // shown as a block
	Page string // a link to all of Code, shown if Code is cut; empty for none
	// Own is the address of this server. Only its signed links in Text are shown as links.
	Own string
}

// Text returns a message of plain text, an answer, a question or an error. Code is shown as a block.
func Text(text, code string) slack.Message { return Answer{Text: text, Code: code}.Message() }

// Message returns the message. Code of more than about 8,000 characters is cut at the end of a line.
func (a Answer) Message() slack.Message {
	const (
		pieces = 3
		piece  = sectionMax - 100
	)
	var l layout
	text := strings.TrimSpace(readable(a.Text))
	if text != "" {
		// Escaping makes text longer, so it is cut first.
		short := Cut(text, sectionMax-200)
		for width(escape(short)) > sectionMax-100 {
			short = Cut(short, width(short)*3/4)
		}
		l.section(a.ownLinks(closeFences(escape(short))))
	}
	code, left, short := strings.Trim(readable(a.Code), "\n"), 0, false
	for range pieces {
		var shown string
		var cutLine bool
		if shown, left, cutLine = codeBlock(code, piece); shown == "" {
			break // nothing is left
		}
		l.section(shown)
		short = short || cutLine
		if left == 0 {
			break
		}
		lines := strings.Split(code, "\n")
		code = strings.Join(lines[len(lines)-left:], "\n")
	}
	switch {
	case left > 0:
		l.context(Plural(left, "line")+" more", shownPage(a.Page))
	case short:
		l.context("a line is cut", shownPage(a.Page))
	}
	if len(l.blocks) == 0 {
		l.section("(nothing to show)")
	}
	notice, _, _ := strings.Cut(text, "\n")
	if notice == "" {
		notice, _, _ = strings.Cut(strings.TrimSpace(readable(a.Code)), "\n")
	}
	if notice == "" {
		notice = "(nothing to show)"
	}
	return slack.Message{Text: cutEscaped(escape(noFences(OneLine(notice, notifiableMax/2))), notifiableMax),
		Blocks: l.blocks}
}

// ownLinks turns signed addresses of this server's pages into links.
func (a Answer) ownLinks(escaped string) string {
	if a.Own == "" {
		return escaped
	}
	left := 12 // links that fit, as a link is longer than its address
	own := regexp.MustCompile(regexp.QuoteMeta(escape(strings.TrimSuffix(a.Own, "/"))+"/evidence/") + "[^\\s()<>|`]*")
	return own.ReplaceAllStringFunc(escaped, func(address string) string {
		// An address that would not be shown unchanged was cut, or is another server's.
		l := link(html.UnescapeString(address), "page")
		if left == 0 || !strings.Contains(address, links.SignatureParameter+"=") || l != "<"+address+"|page>" {
			return address
		}
		left--
		return l
	})
}

// closeFences closes a block of code that a text leaves open, for example after a cut.
func closeFences(s string) string {
	if strings.Count(s, "```")%2 == 1 {
		return s + "\n```"
	}
	return s
}

// Ask returns a question for the repository, with a choice for each. The value of a choice is key, a space and the repository's name.
func Ask(key string, repos []string) slack.Message {
	var l layout
	const ask = "Which repository is this about?"
	var options []option
	left := 0
	for _, r := range repos {
		value := key + " " + r
		if len(options) == optionsMax || width(value) > optionValue || gitd.CheckName(r) != nil {
			left++
			continue
		}
		options = append(options, option{plainText(Cut(r, optionMax)), value})
	}
	text := ask + " Choose it, or mention me again with `repo:NAME`."
	if len(options) == 0 {
		text = ask + " Mention me again with `repo:NAME`."
	}
	if left > 0 {
		text += fmt.Sprintf(" (%d more are not listed.)", left)
	}
	l.section(text)
	if len(options) > 0 {
		l.actions(choice{"static_select", plainText("Repository"), ActionRepo, options})
	}
	return slack.Message{Text: ask, Blocks: l.blocks}
}

func join(between string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), between)
}

// thousands returns a large number, rounded for people.
func thousands(n int64) string {
	switch {
	case n < 1000:
		return strconv.FormatInt(n, 10)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1000)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}
