package gateway

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
)

// A tool that the policy does not give is none that the agent could ask for.
func TestBrowserToolsByPolicy(t *testing.T) {
	never := func(string) bool { return false }
	for _, x := range []struct {
		name   string
		denied func(string) bool
		want   bool
	}{
		{"a run in a container", deniedBy(Policy{Runner: RunnerContainer}, never), true},
		{"a policy of another runner", deniedBy(Policy{Runner: RunnerFallback}, never), false},
		{"no policy that is known", deniedBy(Policy{}, never), false},
		{"no browser", deniedBy(Policy{Runner: RunnerContainer}, func(name string) bool { return slices.Contains(browserTools, name) }), false},
	} {
		for _, task := range executor.Library() {
			want := x.want || !slices.Contains(browserTools, task.Name)
			if got := !x.denied(task.Name); got != want {
				t.Errorf("%s: %s is offered: %t, want %t", x.name, task.Name, got, want)
			}
		}
	}
}

// What an agent is to see comes as a picture, after the text.
func TestToolPictures(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n picture")
	out, err := (toolset{}).answer(toolResult{value: map[string]string{"verdict": "FAIL"}, failed: true, pictures: []toolPicture{{"001-todo/mobile/screenshot.png", png}, {name: "is too large"}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"isError":true`, `"text":"001-todo/mobile/screenshot.png"`, `"type":"image"`, `"mimeType":"image/png"`, `"data":"` + base64.StdEncoding.EncodeToString(png), `"text":"is too large"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}
