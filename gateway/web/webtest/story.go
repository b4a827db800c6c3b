package webtest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Story is the day of a person at a Site: sign in, import the sample, make a workspace, run commands, ask an agent,
// answer it, lose the server, stop and start again. Its methods are the steps, in this order. A step that does not
// happen fails the test. The exported fields are options.
type Story struct {
	Site *Site
	Page *Page
	// Name is the name of the workspace.
	Name string
	// Keys has the person use the keyboard alone. The focus is looked at on all ways.
	Keys bool
	// Plain has the browser run no scripts.
	Plain bool
	// Note is called at each step that happened, with its evidence. Nil means that nothing is called.
	Note func(step, evidence string)
	// Picture is called at each state worth a picture. Nil means that nothing is called.
	Picture func(name string)
}

// Words is the number of words that the agent says slowly.
const Words = 60

// The size of the window, in pixels. A page that Look makes larger is not shown as a whole: changes outside of the
// window are no new picture, and an event there waits for one without end.
const (
	windowWidth  = 1440
	windowHeight = 900
)

func (s *Story) id() string     { return "run-" + s.Name }
func (s *Story) path() string   { return "/workspaces/" + s.id() }
func (s *Story) branch() string { return "ramus/" + s.id() }

func (s *Story) note(step, format string, args ...any) {
	if s.Note != nil {
		s.Note(step, fmt.Sprintf(format, args...))
	}
}

func (s *Story) picture(name string) {
	if s.Picture != nil {
		s.Picture(name)
	}
}

// press presses a button or a link, by a click or by Tab and Enter, and waits for the next page.
func (s *Story) press(selector string) {
	s.Site.T.Helper()
	s.Page.Follow(func() {
		if s.Keys {
			s.Page.TabTo(selector)
			s.Page.Press("Enter")
			return
		}
		s.Page.Click(selector)
	})
}

// fill types a text into an empty field.
func (s *Story) fill(selector, text string) {
	s.Site.T.Helper()
	if s.Keys {
		s.Page.TabTo(selector)
	} else {
		s.Page.Click(selector)
	}
	s.Page.Insert(text)
	var has string
	if s.Page.Eval(`document.querySelector(`+Quote(selector)+`).value`, &has); has != text {
		s.Site.T.Fatalf("the field %s has %q after %q was typed", selector, has, text)
	}
}

// until waits until a script is true. A page that does not follow the server by itself is loaded again meanwhile.
func (s *Story) until(script string) {
	s.Site.T.Helper()
	if !s.Plain && s.Page.Holds(`document.querySelector('script[src]') && document.querySelector('[data-live-at]')`) {
		s.Page.Wait(script)
		return
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(400 * time.Millisecond) {
		if s.Page.Holds(script) {
			return
		}
		s.again()
	}
	s.Site.T.Fatalf("not true after a minute: %s\n%s", script, s.text())
}

// again loads the page again.
func (s *Story) again() {
	var here string
	s.Page.Eval(`location.href`, &here)
	s.Page.Go(here)
}

func (s *Story) text() (text string) {
	s.Page.Eval(`document.body.innerText + (document.querySelector('r-term')?.text?.() ?? '')`, &text)
	return text
}

// at checks the path of the page.
func (s *Story) at(path string) {
	s.Site.T.Helper()
	var is string
	if s.Page.Eval(`location.pathname`, &is); is != path {
		s.Site.T.Fatalf("the browser is at %s, want %s\n%s", is, path, s.text())
	}
}

// SignIn follows the owner's link. A second visit of the link is refused.
func (s *Story) SignIn() {
	s.Site.T.Helper()
	p := s.Page
	p.Look(windowWidth, windowHeight, "light")
	p.Focused()
	if s.Plain {
		p.Scripts(false)
	}
	p.Go(s.Site.URL + "/dashboard")
	s.at("/auth")
	p.Go(s.Site.Link())
	s.at("/dashboard")
	p.Wait(`document.body.innerText.includes('Three steps to begin')`)
	status, err := Status(s.Site.Link(), map[string]string{"Accept": "text/html"})
	if err != nil || status < 400 {
		s.Site.T.Fatalf("the link works twice: status %d, %v", status, err)
	}
	s.picture("dashboard-empty")
	s.note("signs in by the owner's link", "the dashboard with three steps; a second visit of the link answers %d",
		status)
}

// Import imports the sample by the form of the repositories.
func (s *Story) Import() {
	s.Site.T.Helper()
	s.press(`.steps3 a[href*="/repos"]`)
	s.at("/repos")
	s.fill("#source", s.Site.Source())
	s.fill("#name", "sample")
	s.press(`#import button.primary`)
	s.at("/repos")
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var text string
		s.Page.Eval(`document.querySelector('main').innerText`, &text)
		if strings.Contains(text, "Ready") {
			break
		}
		if strings.Contains(text, "Not imported") || time.Now().After(deadline) {
			s.Site.T.Fatalf("the sample is not imported:\n%s", text)
		}
		s.Page.Go(s.Site.URL + "/repos")
	}
	s.picture("repositories")
	s.note("imports the sample repository", "main of sample is at %s", s.Site.Git("log", "-1", "--format=%h %an: %s", "main"))
}

// Begin makes a workspace, and waits until it runs.
func (s *Story) Begin() {
	s.Site.T.Helper()
	s.press(`nav.rail a[href$="/workspaces/new"]`)
	s.fill("#name", s.Name)
	s.press(`form.card button.primary`)
	s.at(s.path())
	s.until(s.runs())
	s.picture("workspace")
	s.note("makes the workspace "+s.Name, "it runs, on the branch %s", s.branch())
}

// runs is the script that is true while the workspace runs.
func (s *Story) runs() string {
	return `document.querySelector(` + Quote(s.form("stop")) + `)`
}

// form returns the selector of the button of a form of the workspace.
func (s *Story) form(action string) string {
	return fmt.Sprintf("form[action$=%q] button", s.id()+"/"+action)
}

// commits returns the commits of the workspace, newest first.
func (s *Story) commits() []string {
	out := s.Site.Git("log", "--format=%h %an: %s", "main.."+s.branch())
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

// Command types a command in the terminal, or in the line console if there is no terminal. The command changes
// something, and so becomes a commit.
func (s *Story) Command(line string) {
	s.Site.T.Helper()
	had := len(s.commits())
	if s.hasTerminal() {
		s.Shell()
		s.Page.Type(line)
		s.Page.Wait(term + `.text().replaceAll('\n', '').includes(` + Quote(line) + `)`)
		s.Page.Press("Enter")
	} else {
		s.fill(".console-form input", line)
		s.Page.Follow(func() { s.Page.Press("Enter") })
		s.until(fmt.Sprintf(`[...document.querySelectorAll('.console .cmd')].some(e =>
			e.textContent.includes(%s) && e.textContent.includes('exit 0'))`, Quote(line)))
	}
	s.wait("a commit of "+line, func() bool { return len(s.commits()) == had+1 })
	s.note("types: "+line, "%s", s.commits()[0])
}

// wait waits until a condition of the site is true.
func (s *Story) wait(what string, ok func() bool) {
	s.Site.T.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Site.T.Fatalf("missed after 30 s: %s\n%s", what, s.text())
		}
	}
}

// prompt returns the lines that the agent performs.
func prompt() string {
	words := make([]string, Words)
	for i := range words {
		words[i] = "w" + strconv.Itoa(i+1)
	}
	return strings.Join([]string{"say I read the sample, and ask before I run anything.",
		"plan Read it | Run it | Explain it", "run echo checked >checked.txt",
		"slowly 120 " + strings.Join(words, " ")}, "\n")
}

// Ask asks an agent, and waits for its question. By keys, the other agent is chosen by an arrow. Without scripts the
// browser loads the page by itself until the question is there.
func (s *Story) Ask() {
	s.Site.T.Helper()
	s.fill("#say", prompt())
	agent := "coder"
	if s.Keys {
		s.Page.TabTo("#say-agent")
		s.Page.Press("ArrowDown")
		if s.Page.Eval(`document.querySelector('#say-agent').value`, &agent); agent != "reviewer" {
			s.Site.T.Fatalf("an arrow chooses the agent %s", agent)
		}
	}
	s.press("form.say .line > button.primary")
	const question = `document.querySelector('.ask-card button[value="once"]')`
	if s.Plain {
		s.Page.Wait(question)
	} else {
		s.until(question)
	}
	var options []string
	s.Page.Eval(`[...document.querySelectorAll('.ask-card button')].map(e => e.innerText.trim())`, &options)
	if !slices.Equal(options, []string{"Always", "Once", "No"}) {
		s.Site.T.Fatalf("the options of the question are %q", options)
	}
	s.picture("question")
	s.note("asks the agent "+agent, "it asks back, with its own options %s", strings.Join(options, ", "))
}

// Say says something to the agent of the workspace.
func (s *Story) Say(text string) {
	s.Site.T.Helper()
	s.fill("#say", text)
	s.press("form.say .line > button.primary")
}

// Answer answers with an option of the agent.
func (s *Story) Answer() {
	s.Site.T.Helper()
	s.press(`.ask-card button[value="once"]`)
	s.until(`[...document.querySelectorAll('.ask-card')].some(e => e.innerText.includes('“Once”'))`)
	if got := s.Site.Get("/api/workspaces/" + s.id() + "/transcript"); !strings.Contains(got, `"option":"once"`) {
		s.Site.T.Fatalf("the answer is not in the journal: %s", got)
	}
	var said string
	s.Page.Eval(`[...document.querySelectorAll('.ask-card')].map(e => e.innerText)
		.find(t => t.includes('“Once”')).split('\n').pop()`, &said)
	s.note("answers with “Once”", "%s", strings.TrimSpace(said))
}

// numbers are the words of the agent on the page, as numbers.
const numbers = `[...document.querySelectorAll('[data-live=talk] .entry.words')]
	.flatMap(e => [...e.textContent.matchAll(/\bw(\d+)\b/g)].map(m => +m[1]))`

func (s *Story) numbers() (list []int) {
	s.Page.Eval(numbers, &list)
	return list
}

var spoken = regexp.MustCompile(`\bw(\d+)\b`)

// said returns the words of the agent in the transcript, as numbers. It has also what the page folds.
func (s *Story) said() (list []int) {
	s.Site.T.Helper()
	var transcript struct {
		Turns []struct {
			Entries []struct{ Kind, Text string }
		}
	}
	text := s.Site.Get("/api/workspaces/" + s.id() + "/transcript")
	if err := json.Unmarshal([]byte(text), &transcript); err != nil {
		s.Site.T.Fatal(err)
	}
	for _, turn := range transcript.Turns {
		for _, e := range turn.Entries {
			if e.Kind != "words" {
				continue
			}
			for _, w := range spoken.FindAllStringSubmatch(e.Text, -1) {
				n, _ := strconv.Atoi(w[1]) // it has digits alone
				list = append(list, n)
			}
		}
	}
	return list
}

// count returns the numbers from 1 to n.
func count(n int) []int {
	list := make([]int, max(0, n))
	for i := range list {
		list[i] = i + 1
	}
	return list
}

// Cut kills the server while the agent speaks. The next server goes on. The page keeps the words that were said, and
// the next process of the agent says its sentence again, because it had not said all of it. It does not ask again.
func (s *Story) Cut() {
	s.Site.T.Helper()
	s.Page.Wait(`document.documentElement.dataset.connected === 'yes'`)
	s.Page.Wait(numbers + `.length >= 12`)
	s.picture("sentence")
	before := len(s.numbers())
	if before >= Words {
		s.Site.T.Fatalf("the sentence is over before the server is killed")
	}
	killed := s.Site.Kill()
	s.Page.Wait(`document.documentElement.dataset.connected === 'no'`)
	s.picture("away")
	from := time.Now()
	s.Site.Serve()
	took := time.Since(from)
	s.Page.Wait(`document.documentElement.dataset.connected === 'yes'`)
	s.note("the server is killed in the middle of the sentence",
		"kill -9 %d at word %d; the next server serves after %d ms", killed, before, took.Milliseconds())
	s.heard(before)
	s.picture("sentence-whole")
}

// Heard waits for the end of the agent's work. The page has each word once, in order, and the branch has the work that the
// agent wrote.
func (s *Story) Heard() {
	s.Site.T.Helper()
	s.heard(0)
}

// heard is Heard. If the server was killed when the page had so many words, the page has these and those that the agent said before the
// next server, and then all. It has all once if the agent had said all by then.
func (s *Story) heard(before int) {
	s.Site.T.Helper()
	s.until(`document.querySelector('[data-live=talk] > .entry:last-child').matches('.end')
		&& !document.querySelector('form[action$="/talk/stop"]')`)
	page, all := s.numbers(), s.said()
	first := min(len(all), max(0, len(all)-Words))
	if !slices.Equal(all, append(count(first), count(Words)...)) || first > 0 && (first < before || before == 0) {
		s.Site.T.Fatalf("the conversation has the words %v, want 1 to %d or more and then 1 to %d", all, before, Words)
	}
	if n := len(page) - Words; n < 0 || !slices.Equal(page[n:], count(Words)) || !slices.Equal(page[:n], count(n)) {
		s.Site.T.Fatalf("the page has the words %v, want 1 to %d at the end\n%s", page, Words, s.text())
	}
	if got := s.Site.Git("show", s.branch()+":checked.txt"); got != "checked" {
		s.Site.T.Fatalf("the file of the agent has %q", got)
	}
	said := fmt.Sprintf("words w1 to w%d, none lost, none twice", Words)
	if first > 0 {
		said = fmt.Sprintf("words w1 to w%d of before are kept; then w1 to w%d, none lost, none twice", first, Words)
	}
	s.note("the agent goes on to its end", "%s; %s", said, s.commits()[0])
}

// Rest stops the workspace and starts it again. Its files are there.
func (s *Story) Rest() {
	s.Site.T.Helper()
	s.press(s.form("stop"))
	s.until(`document.querySelector(` + Quote(s.form("restart")) + `)`)
	s.picture("stopped")
	s.note("stops the workspace", "its container is gone, and the branch has %d commits", len(s.commits()))
	s.press(s.form("restart"))
	s.until(s.runs())
	s.note("starts it again", "it runs")
	s.Command("cp checked.txt again.txt")
}

// Phone looks at the pages in the size of a phone.
func (s *Story) Phone() {
	s.Site.T.Helper()
	s.Page.Look(390, 844, "dark")
	list := []string{"/dashboard", "/workspaces", s.path(), s.path() + "?pane=shell", s.path() + "?pane=activity"}
	for _, path := range list {
		s.Page.Go(s.Site.URL + path)
		var state struct {
			Wide bool
			Bar  string
		}
		s.Page.Eval(`({wide: document.documentElement.scrollWidth > innerWidth,
			bar: getComputedStyle(document.querySelector('nav.bar')).display})`, &state)
		if state.Wide || state.Bar == "none" {
			s.Site.T.Fatalf("%s on a phone: sideways scrolling %v, bottom bar %q", path, state.Wide,
				state.Bar)
		}
		s.picture("phone" + strings.NewReplacer("/", "-", "?pane=", "-").Replace(path))
	}
	s.note("goes on with a phone", "390 px, dark: %d pages with the bottom bar, and without sideways scrolling",
		len(list))
}

// Clean checks that no page broke a rule.
func (s *Story) Clean() {
	s.Site.T.Helper()
	if faults := s.Page.Faults(); len(faults) > 0 {
		s.Site.T.Fatalf("the page has faults: %s", strings.Join(faults, "; "))
	}
	s.Site.Check()
	if strings.Contains(s.Site.Log(), "panic") {
		s.Site.T.Fatalf("the server's log:\n%s", s.Site.Log())
	}
}
