package webtest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// term is the terminal of a page, and field the element of the shown terminal that takes keys.
const (
	term  = `document.querySelector('r-term')`
	field = `.term-screen:not([hidden]) .xterm-helper-textarea`
)

// hasTerminal reports whether the page has a terminal.
func (s *Story) hasTerminal() bool { return !s.Plain && s.Page.Holds(term+`?.dataset.src`) }

// Shell has a terminal open, with its prompt and the focus.
func (s *Story) Shell() {
	s.Site.T.Helper()
	s.Page.Wait(term + `.dataset.state === 'open' ||
		['open', 'again'].some(part => { const e = document.querySelector('[data-part=' + part + ']');
			return e.checkVisibility() && !e.disabled; })`)
	for _, part := range []string{"open", "again"} {
		button := "[data-part=" + part + "]"
		if s.Page.Holds(`document.querySelector('` + button + `').checkVisibility()`) {
			s.act(button)
			break
		}
	}
	s.Page.Wait(term + `.dataset.state === 'open' && ` + term + `.active.screen.term.options.disableStdin === false &&
		/\/work\$ *$/.test(` + term + `.text().trimEnd())`)
	s.enter()
}

// enter gives the terminal the focus. A picture at the size of a phone takes it away, because it has one pane.
func (s *Story) enter() {
	s.Site.T.Helper()
	if s.Keys {
		s.Page.TabTo(field)
		return
	}
	s.Page.Eval(`document.querySelector('`+field+`').focus(); 0`, nil)
}

// act presses a button that leads to no other page.
func (s *Story) act(selector string) {
	s.Site.T.Helper()
	if s.Keys {
		s.Page.TabTo(selector)
		s.Page.Press("Enter")
		return
	}
	s.Page.Click(selector)
}

// cutTerminal kills the server, and starts it again when the page has seen that it is gone. Returns its process id.
func (s *Story) cutTerminal() int {
	s.Site.T.Helper()
	killed := s.Site.Kill()
	s.Page.Wait(term + `.dataset.state === 'away'`)
	s.picture("terminal-away")
	s.Site.Serve()
	s.Page.Wait(term + `.dataset.state === 'open'`)
	s.enter()
	return killed
}

// Terminal kills the server while a command in the terminal counts. The next server goes on, and the terminal shows
// each line once. The command is a commit.
func (s *Story) Terminal() {
	s.Site.T.Helper()
	if !s.hasTerminal() {
		s.countByProtocol()
		return
	}
	had := len(s.commits())
	s.Shell()
	s.Page.Type(countLine + "\r")
	s.Page.Wait(`/^count 20$/m.test(` + term + `.text())`)
	killed := s.cutTerminal()
	s.Page.Wait(fmt.Sprintf(`/^count %d$/m.test(%s.text())`, counts, term))
	var list []string
	s.Page.Eval(`[...`+term+`.text().matchAll(/^count (\d+)$/gm)].map(m => m[1])`, &list)
	if want := count(counts); !slices.EqualFunc(list, want, func(has string, n int) bool { return has == strconv.Itoa(n) }) {
		s.Site.T.Fatalf("the terminal shows the lines %v, want 1 to %d", list, counts)
	}
	s.wait("a commit of the command in the terminal", func() bool { return len(s.commits()) == had+1 })
	s.note("the server is killed under an open terminal", "kill -9 %d; lines 1 to %d, each once; %s", killed, counts,
		s.commits()[0])
}

// Vim kills the server in the middle of vim. The next server goes on with the same screen, and the file has what was
// typed before and after. A machine without vim has no such step.
func (s *Story) Vim() {
	s.Site.T.Helper()
	vim, err := exec.LookPath("vim")
	if err == nil {
		vim, err = filepath.EvalSymlinks(vim)
	}
	if err != nil || !s.hasTerminal() {
		s.note("cannot show a kill in the middle of vim here", "there is no vim, or no terminal")
		return
	}
	had := len(s.commits())
	s.Shell()
	s.Page.Type(vim + " -u NONE -i NONE letter.txt\r")
	s.Page.Wait(term + `.text().includes('"letter.txt"')`)
	s.Page.Type("iwritten before, ")
	s.Page.Wait(term + `.text().includes('written before,')`)
	s.picture("vim")
	killed := s.cutTerminal()
	s.Page.Wait(term + `.text().includes('written before,')`)
	s.Page.Type("and after the kill")
	s.Page.Wait(term + `.text().includes('and after the kill')`)
	s.Page.Press("Escape")
	s.Page.Type(":wq\r")
	s.wait("a commit of vim", func() bool { return len(s.commits()) == had+1 })
	if got := s.Site.Git("show", s.branch()+":letter.txt"); got != "written before, and after the kill" {
		s.Site.T.Fatalf("vim wrote %q", got)
	}
	s.note("the server is killed in the middle of vim", "kill -9 %d; the same screen, and all that was typed; %s", killed,
		s.commits()[0])
}
