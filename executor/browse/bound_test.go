package browse

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/tasks/browser"
)

// TestBound checks that a check fits into the journal, even if a page and a spec have long texts. A line that does
// not fit would make the whole run unreadable.
func TestBound(t *testing.T) {
	long := strings.Repeat("<\x01", 8<<10) // JSON writes six bytes for each
	c := browser.Check{Name: "todo", Reason: long, Log: long, Compare: &browser.Comparison{Reason: long}}
	for i := range 10 {
		v := browser.View{Viewport: browser.Viewport{Name: fmt.Sprintf("v%d", i)}, Verdict: browser.Fail, Reason: long,
			URL: long, FinalURL: long, Title: long}
		for range 300 {
			v.Console.Errors, v.Console.PageErrors = append(v.Console.Errors, long), append(v.Console.PageErrors, long)
			v.Network = append(v.Network, browser.NetworkError{Method: long, URL: long, Failure: long, Resource: long})
			v.Steps = append(v.Steps, browser.StepResult{Do: long, Target: long, Value: long, In: long, Error: long,
				Screenshot: "001-todo/v0/step-01.png"})
		}
		c.Views = append(c.Views, v)
		c.Compare.Views = append(c.Compare.Views, browser.Diff{Viewport: v.Viewport.Name, Aria: long})
		for n := range 200 {
			c.Files = append(c.Files, browser.File{Name: fmt.Sprintf("001-todo/%s/step-%02d-%s.png", v.Viewport.Name, n,
				strings.Repeat("a", 64)), SHA256: strings.Repeat("0", 64), Type: "image/png"})
		}
	}
	name := filepath.Join(t.TempDir(), "journal")
	j, _, err := record.OpenJournal(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	bounded := boundedCheck(c)
	text, err := json.Marshal(bounded)
	if err != nil || len(text) > 1<<20 || len(bounded.Views) != 10 || len(bounded.Files) != 2000 || len(bounded.Views[0].Network) == 0 {
		t.Errorf("%d bytes, %d views, %d files, %v", len(text), len(bounded.Views), len(bounded.Files), err)
	}
	if err := j.Append(&record.Event{Type: record.EventBrowser, Data: text}, false); err != nil {
		t.Error(err)
	}
	// A line that is still too long is refused, and the lines before it stay.
	if err := j.Append(&record.Event{Type: record.EventNote, Message: strings.Repeat("a", 5<<20)}, false); err == nil {
		t.Error("a line that cannot be read again was written")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again, events, err := record.OpenJournal(name, nil)
	if err != nil || len(events) != 1 {
		t.Fatalf("%d events, %v", len(events), err)
	}
	_ = again.Close()
}
