package record

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/browser"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// TestManifestEvents checks the part of the evidence that each event adds.
func TestManifestEvents(t *testing.T) {
	yes, no, one := true, false, 1
	start := time.Unix(1_700_000_000, 0)
	r := Run{State: StateComplete, CreatedAt: start, StartedAt: start, EndedAt: start.Add(1500 * time.Millisecond),
		Asker: gitd.Person{Name: "Ann"}, Agent: &AgentCall{Name: "coder", Prompt: "Do it"}}
	m := NewManifest(r, "", []Event{
		{Type: EventStepFinished, Step: "a", OK: &yes, Stdout: &Stream{Bytes: 9, Truncated: true},
			Stderr: &Stream{Bytes: 8}},
		{Type: EventStepFinished, Step: "b", OK: &no, Exit: &one},
		{Type: EventStepFinished, Step: "c"},
		{Type: EventSecret, Kind: SecretInCommit, Message: "KEY in a"},
		{Type: EventSecret, Kind: SecretInArtifact, Message: "KEY in b"},
		{Type: EventSecret, Kind: "output", Message: "KEY in the output"},
		{Type: EventEgress, Message: "a.org", Reason: "allowed"},
		{Type: EventSetup, Kind: "install", Command: "npm ci"},
		{Type: EventSetup, Kind: "install", Command: "npm ci", OK: &yes},
		{Type: EventSetup, Kind: "setup", Command: "make", OK: &no, Exit: &one},
		{Type: EventSettings, Message: "f:1:2: no"},
		{Type: EventNote, Reason: NoteLeftOut, Step: "d", Message: "x is too large"},
		{Type: EventNote, Reason: NoteRecovery, Message: "no image\nRUN false"},
		{Type: EventNote, Message: "by the way"},
		{Type: EventPolicy, Message: "docker", Reason: "needs root"},
		{Type: EventPrompt, Message: "And this", Data: Marshal(Prompt{Key: "1", By: gitd.Person{Name: "Bob"}})},
		{Type: EventStepStarted, Step: "a"},
		{Type: EventStepStarted, Step: "e"},
		{Type: EventStepStarted, Step: "e"},
		{Type: EventStepFinished, Step: "a", OK: &yes},
	}, nil)

	var commands []string
	for _, c := range slices.Concat(m.Commands, m.Setup) {
		word := c.Step + " failed"
		if c.OK {
			word = c.Step + " passed"
		}
		commands = append(commands, word)
	}
	if got, want := strings.Join(commands, ", "), "a passed, b failed, c failed, a passed, install passed, setup failed"; got != want {
		t.Errorf("commands: %s, want %s", got, want)
	}
	want := []string{"of the 9 bytes that a printed only a part is kept",
		"the value of a secret was taken out: KEY in a", "the value of a secret was taken out: KEY in b",
		"the configuration of the repository: f:1:2: no", "d: x is too large", "no image", "e began but has no result"}
	if !slices.Equal(m.Unverified, want) {
		t.Errorf("unverified: %q, want %q", m.Unverified, want)
	}
	if !slices.Equal(m.Egress, []ManifestEgress{{"a.org", "allowed"}}) || m.Policy == nil ||
		*m.Policy != (ManifestPolicy{Runner: "docker", Reason: "needs root"}) {
		t.Errorf("%+v, %+v", m.Egress, m.Policy)
	}
	if len(m.Prompts) != 2 || m.Prompts[0].By != "Ann" || m.Prompts[0].Text != "Do it" || m.Prompts[1].By != "Bob" ||
		m.Prompts[1].Text != "And this" || m.Agent != "coder" {
		t.Errorf("%+v", m.Prompts)
	}
	if m.DurationMS != 1500 {
		t.Errorf("it took %d ms", m.DurationMS)
	}
	subs := map[string]Manifest{"a": {Browser: []BrowserCheck{{Step: "look"}}}, "b": {Browser: []BrowserCheck{{Step: "see"}}}}
	m = NewManifest(r, "", []Event{{Type: EventStepFinished, Kind: string(workflow.KindWorkflow), Step: "a", OK: &yes},
		{Type: EventStepFinished, Step: "b", OK: &yes}}, subs)
	if len(m.Browser) != 1 || m.Browser[0].Step != "a/look" {
		t.Errorf("checks of sub-workflows: %+v", m.Browser)
	}
	for _, r := range []Run{{StartedAt: start}, {EndedAt: start}} {
		if d := NewManifest(r, "", nil, nil).DurationMS; d != 0 {
			t.Errorf("without a start or an end it took %d ms", d)
		}
	}
}

// TestBrowserFolders checks that the files of checks of other runs keep apart, and that the original check does not change.
func TestBrowserFolders(t *testing.T) {
	check := func() BrowserCheck {
		return BrowserCheck{Name: "home", Step: "look", Dir: "home", Files: []browser.File{{Name: "home/a.png"}},
			Views:   []BrowserView{{Screenshot: "home/a.png", Steps: []BrowserStep{{Screenshot: "home/1.png"}, {}}}},
			Compare: &BrowserComparison{Views: []BrowserDiff{{Before: "home/b.png"}}}}
	}
	flat := func(c BrowserCheck) string {
		v := c.Views[0]
		return strings.Join([]string{c.Step, c.Dir, c.Files[0].Name, v.Screenshot, v.Trace, v.Steps[0].Screenshot,
			v.Steps[1].Screenshot, c.Compare.Views[0].Before, c.Compare.Views[0].After}, " ")
	}
	original := check()
	sub := checksOfSub("judge[3]", []BrowserCheck{original})
	const in = "sub-judge_3_/"
	if got, want := flat(sub[0]), "judge[3]/look "+in+"home "+in+"home/a.png "+in+"home/a.png  "+in+"home/1.png  "+in+
		"home/b.png "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if flat(original) != flat(check()) {
		t.Errorf("the original became %q", flat(original))
	}
	e := TakeOver(Event{Type: EventBrowser, Data: Marshal(original)})
	if got := BrowserChecks([]Event{{Type: EventNote, Data: Marshal(original)}, e, {Type: EventBrowser,
		Data: []byte("[")}}); len(got) != 1 || got[0].Dir != "earlier/home" || got[0].Step != "look" {
		t.Errorf("%+v", got)
	}
	if e := TakeOver(Event{Type: EventNote, Message: "x"}); e.Data != nil || e.Message != "x" {
		t.Errorf("%+v", e)
	}
}
