package web_test

import (
	"os"
	"testing"

	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/gateway/web/webtest"
)

// site returns a site of the real binary, which RAMUS_BINARY names; without it, one without scripts is built.
func site(t *testing.T, config string) *webtest.Site {
	t.Helper()
	if testing.Short() {
		t.Skip("cannot run here: it starts a browser")
	}
	webtest.Find(t)
	s := &webtest.Site{T: t, Ramus: os.Getenv("RAMUS_BINARY"), Sample: "../../examples/sample", Config: config}
	s.Prepare()
	if err := (&sandbox.Engine{Dir: t.TempDir(), Runner: s.Ramus}).Check(t.Context()); err != nil {
		t.Skipf("cannot run here: sandboxes: %v", err)
	}
	s.Serve()
	return s
}

// story returns the day of a person at a site.
func story(t *testing.T, s *webtest.Site) *webtest.Story {
	return &webtest.Story{Site: s, Page: webtest.Start(t).Open(nil), Name: "calm-heron",
		Note: func(step, evidence string) { t.Logf("%s: %s", step, evidence) }}
}

// TestByKeyboard plays the story of a day with Tab, Enter and arrows alone. The focus is visible on all ways.
func TestByKeyboard(t *testing.T) {
	s := story(t, site(t, ""))
	s.Keys = true
	s.SignIn()
	s.Page.Press("Tab")
	if !s.Page.Holds(`document.activeElement.matches('a.skip')`) {
		t.Error("the first Tab does not reach the link that skips the navigation")
	}
	s.Import()
	s.Begin()
	s.Command("echo one >notes.txt")
	s.Command("echo two >>notes.txt")
	s.Ask()
	s.Answer()
	s.Heard()
	s.Rest()
	s.Clean()
}

// TestWithoutScripts plays the story of a day in a browser that runs no scripts. It sees the agent's question because
// the browser loads the page again by itself.
func TestWithoutScripts(t *testing.T) {
	s := story(t, site(t, "web: {js: \"off\"}\n"))
	s.Plain = true
	s.SignIn()
	s.Import()
	s.Begin()
	s.Command("echo one >notes.txt")
	s.Ask()
	s.Answer()
	s.Heard()
	s.Rest()
	s.Clean()
}
