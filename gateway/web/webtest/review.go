package webtest

import (
	"fmt"
	"strconv"
	"strings"
)

// GitHubSignIn signs in by GitHub. login is the name of the person at a stand-in of GitHub, which has no form to type it in.
func (s *Story) GitHubSignIn(login string) {
	s.Site.T.Helper()
	p := s.Page
	p.Look(windowWidth, windowHeight, "light")
	p.Focused()
	p.Go(s.Site.URL + "/auth/github")
	var at string
	p.Eval(`location.href`, &at)
	p.Go(at + "&login=" + login)
	s.at("/dashboard")
	s.note(login+" signs in by GitHub", "on a dashboard of their own")
}

// Exec runs a command in the workspace by the command line. Its exit status does not matter.
func (s *Story) Exec(line string) {
	s.Site.T.Helper()
	out, err := s.Site.try(s.Site.Ramus, "exec", s.id(), "--", line)
	status := "exit 0"
	if err != nil {
		status = err.Error()
	}
	s.note("runs: "+line, "%s %s", strings.ReplaceAll(status, "exit status", "exit"), out)
}

// Work has the agent perform the lines of a prompt, and waits for the end of its run.
func (s *Story) Work(lines string) {
	s.Site.T.Helper()
	had := len(s.commits())
	s.Page.Go(s.Site.URL + s.path())
	s.fill("#say", lines)
	s.press("form.say .line > button.primary")
	s.wait("a commit of the agent", func() bool { return len(s.commits()) > had })
	s.note("asks the agent", "%s", s.commits()[0])
}

// changes is the page of the changes of the workspace.
func (s *Story) changes() string { return s.Site.URL + s.path() + "/changes" }

// Comment keeps a draft of a comment on a line of the only changed file that has this line.
func (s *Story) Comment(line int, text string) {
	s.Site.T.Helper()
	p := s.Page
	p.Go(s.changes())
	var href string
	p.Eval(fmt.Sprintf(`[...document.querySelectorAll('.dfile .l > a')].map(a => a.href)
		.find(h => new RegExp('[?&]c=f[0-9a-f]{12}-R%d([&#]|$)').test(h)) ?? ''`, line), &href)
	if href == "" {
		s.Site.T.Fatalf("line %d has no link to comment on it\n%s", line, s.text())
	}
	p.Go(href)
	p.Click("#line-text")
	p.Insert(text)
	s.press("#line-form button.primary")
	if !p.Holds(`document.querySelector('.remark.draft')`) {
		s.Site.T.Fatalf("there is no draft\n%s", s.text())
	}
	first, _, _ := strings.Cut(text, "\n")
	s.note(fmt.Sprintf("comments on line %d", line), "a draft that nobody else sees: %s", first)
}

// SendComments sends the drafts to the agent, and answers with Once when it asks.
func (s *Story) SendComments() {
	s.Site.T.Helper()
	had := len(s.commits())
	s.picture("drafts")
	var sends string
	s.Page.Eval(`document.querySelector('form.send-comments button.primary').innerText.trim()`, &sends)
	s.press("form.send-comments button.primary")
	s.picture("sent")
	s.Page.Go(s.Site.URL + s.path())
	s.until(`document.querySelector('.ask-card button[value="once"]')`)
	s.press(`.ask-card button[value="once"]`)
	s.wait("a commit that answers the comments", func() bool { return len(s.commits()) > had })
	s.wait("the end of the agent's turn", func() bool {
		return strings.Contains(s.Site.Get("/api/workspaces/"+s.id()), `"state":"complete"`) ||
			!strings.Contains(s.Site.Get("/api/runs?caller=run:"+s.Name), `"state":"running"`)
	})
	s.note("presses “"+sends+"”", "one prompt, and the agent's commit %s", s.commits()[0])
}

// threads returns the places and the states of the threads on the page of changes.
func (s *Story) threads() (list []struct{ Where, State string }) {
	s.Page.Go(s.changes())
	s.Page.Eval(`[...document.querySelectorAll('section.thread')].filter(t => t.querySelector('.thread-head')).map(t => ({
		where: t.querySelector('.thread-head a').innerText.trim() + ' ' + (t.querySelector(':scope > p.small')?.innerText.trim() ?? ''), state: t.querySelector('.thread-head .badge').innerText.trim()}))`, &list)
	return list
}

// Follow tests that the threads are where their lines are now. want has a part of each place, such as "now list.txt, line 9".
func (s *Story) Follow(want ...string) {
	s.Site.T.Helper()
	var got []string
	threads := s.threads()
	for _, place := range want {
		found := false
		for _, t := range threads {
			found = found || strings.Contains(t.Where, place)
		}
		if !found {
			s.Site.T.Fatalf("no thread is at %s: %+v\n%s", place, threads, s.text())
		}
	}
	for _, t := range threads {
		got = append(got, t.Where+" ("+t.State+")")
	}
	s.picture("threads")
	s.note("looks where the threads are", "%s", strings.Join(got, ", "))
}

// TakeSuggestion commits the suggestion of a comment, without an agent. line is the line in the file afterwards.
func (s *Story) TakeSuggestion(file, line string) {
	s.Site.T.Helper()
	had := len(s.commits())
	s.Page.Go(s.changes())
	s.press(`form[action$="/review/take"] button`)
	s.wait("a commit of the suggestion", func() bool { return len(s.commits()) == had+1 })
	if text := s.Site.Git("show", s.branch()+":"+file); !strings.Contains("\n"+text+"\n", "\n"+line+"\n") {
		s.Site.T.Fatalf("%s has no line %q after the suggestion was taken:\n%s", file, line, text)
	}
	s.picture("suggestion")
	s.note("takes the suggestion", "%s", s.commits()[0])
}

// Scrub walks through the timeline with keys, and leaves the page at the command with this text, whose commit it returns.
func (s *Story) Scrub(text string) string {
	s.Site.T.Helper()
	p := s.Page
	p.Go(s.Site.URL + s.path() + "/timeline")
	p.Wait(`document.documentElement.dataset.connected === 'yes' && document.querySelector('.scrub.on')`)
	p.Eval(`document.querySelector('#tick').focus()`, nil)
	var most string
	p.Eval(`document.querySelector('#tick').max`, &most)
	total, _ := strconv.Atoi(most)
	p.Press("Home")
	shown := func(place int) {
		p.Wait(fmt.Sprintf(`document.querySelector('.place').dataset.place === '%d'`, place))
	}
	shown(1)
	place := 1
	for ; !p.Holds(`document.querySelector('.tick h2').textContent.includes(` + Quote(text) + `)`); place++ {
		if place == total {
			s.Site.T.Fatalf("no command of the timeline is %q\n%s", text, s.text())
		}
		p.Press("ArrowRight")
		shown(place + 1)
	}
	s.picture("timeline")
	var fork string
	p.Eval(`document.querySelector('.tick a.primary').href`, &fork)
	_, commit, _ := strings.Cut(fork, "commit=")
	commit, _, _ = strings.Cut(commit, "&")
	s.note("walks through the timeline by keys", "command %d of %d, at %.10s", place, total, commit)
	return commit
}

// ForkHere forks the workspace after the command that the timeline shows, whose commit is given. The fork has exactly its files.
func (s *Story) ForkHere(name, commit string) {
	s.Site.T.Helper()
	s.press(".tick a.primary")
	s.fill("#name", name)
	s.press(`form.card button.primary`)
	fork := &Story{Site: s.Site, Page: s.Page, Name: name}
	fork.at(fork.path())
	s.wait("the branch of the fork", func() bool { return s.Site.Git("rev-parse", "-q", "--verify", fork.branch()) != "" })
	want, got := s.Site.Git("ls-tree", "-r", commit), s.Site.Git("ls-tree", "-r", fork.branch())
	if want == "" || want != got {
		s.Site.T.Fatalf("the fork has\n%s\nand the command left\n%s", got, want)
	}
	s.picture("fork")
	s.note("forks it there", "%s has the %d files that the command left, and no later one", name, strings.Count(got, "\n")+1)
}

// Merge merges the workspace into the base, and tests that the base has a line of a file.
func (s *Story) Merge(file, line string) {
	s.Site.T.Helper()
	s.Site.Do(s.Site.Ramus, "merge", s.id(), "--here")
	if text := s.Site.Git("show", "main:"+file); !strings.Contains("\n"+text+"\n", "\n"+line+"\n") {
		s.Site.T.Fatalf("main has no line %q of %s after the merge:\n%s", line, file, text)
	}
	s.Page.Go(s.Site.URL + "/repos/sample/branches")
	s.picture("branches")
	s.note("merges", "main is at %s", s.Site.Git("log", "-1", "--format=%h %an: %s", "main"))
}

// Shared opens a link to the conversation without signing in, revokes it, and finds it closed.
func (s *Story) Shared(stranger *Page) {
	s.Site.T.Helper()
	link, _, _ := strings.Cut(s.Site.Do(s.Site.Ramus, "share", s.id()), "\n")
	stranger.Look(windowWidth, windowHeight, "light")
	stranger.Go(link)
	var text string
	if stranger.Eval(`document.body.innerText`, &text); !strings.Contains(text, "shared by") || stranger.Holds(`document.querySelector('form, button')`) {
		s.Site.T.Fatalf("a stranger sees at %s\n%s", link, text)
	}
	id := strings.Split(strings.SplitN(link, "/shared/", 2)[1], "/")[0]
	s.Site.Do(s.Site.Ramus, "share", "--revoke", id)
	stranger.Go(link)
	if stranger.Eval(`document.body.innerText`, &text); !strings.Contains(text, "has ended") {
		s.Site.T.Fatalf("a revoked link still opens\n%s", text)
	}
	s.note("shares the conversation, and revokes that", "a browser without a sign-in could read it, and cannot any more")
}
