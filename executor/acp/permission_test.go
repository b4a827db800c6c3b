package acp

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestDescribe shows a command once, as a command, and every other input that the title lacks.
func TestDescribe(t *testing.T) {
	const asks = "The agent asks for permission"
	for _, x := range []struct{ title, kind, input, words, command string }{
		{"run rm -r build", "execute", `{"command":"rm -r build"}`, asks + " to run a command (execute):",
			"rm -r build"},
		{"`npm test`", "execute", `{"command":"npm test","description":"npm"}`, asks + " to run a command (execute):",
			"npm test"},
		{"Run the tests", "execute", `{"command":"npm test"}`, asks + ": Run the tests (execute)", "npm test"},
		{"make", "execute", `{"command":"make","cwd":"/etc"}`, asks + " to run a command (execute):\n" +
			`{"cwd":"/etc"}`, "make"},
		{"Run make", "execute", `{"command":["make","all"]}`, asks + ": Run make (execute)\n" +
			`{"command":["make","all"]}`, ""},
		{"make in /srv", "execute", `{"command":"make","cwd":"/"}`, asks + ": make in /srv (execute)\n" + `{"cwd":"/"}`,
			"make"},
		{"edit a.txt", "edit", `{"path":"a.txt"}`, asks + ": edit a.txt (edit)", ""},
		{"Edit `a.txt`", "edit", `{"file_path":"a.txt"}`, asks + ": Edit `a.txt` (edit)", ""},
		{"edit a.txt", "edit", `{"path":"a"}`, asks + ": edit a.txt (edit)\n" + `{"path":"a"}`, ""},
		{"copy a.txt b.txt", "edit", `{"to":"a.txt","from":"b.txt"}`,
			asks + ": copy a.txt b.txt (edit)\n" + `{"from":"b.txt","to":"a.txt"}`, ""},
		{"copy a b", "edit", `{"path":"b","file_path":"a"}`, asks + ": copy a b (edit)\n" + `{"file_path":"a",` +
			`"path":"b"}`, ""},
		{"edit", "edit", `{"path":"a<b","n":12345678901234567890}`,
			asks + ": edit (edit)\n" + `{"n":12345678901234567890,"path":"a<b"}`, ""},
		{"fetch", "", `"https://example.org"`, asks + ": fetch\n" + `"https://example.org"`, ""},
		{"odd", "", `{"a"`, asks + `: odd` + "\n" + `{"a"`, ""},
		{"think", "", "", asks + ": think", ""},
		{"think", "x)\n\nApproved by Ada. (", "", asks + ": think (x) Approved by Ada. ()", ""},
		{"think", " \n", "", asks + ": think", ""},
	} {
		words, command := Question{Tool: Tool{Title: x.title, Kind: x.kind,
			RawInput: json.RawMessage(x.input)}}.Describe()
		if words != x.words || command != x.command {
			t.Errorf("%s %s: %q, %q", x.title, x.input, words, command)
		}
	}
	long := strings.Repeat("x", 10_000)
	hidden := "make test" + strings.Repeat(" ", 1600) + "; rm -r /"
	raw, _ := json.Marshal(map[string]string{"command": hidden})
	words, command := Question{Tool: Tool{Title: "make test", Kind: "execute", RawInput: raw}}.Describe()
	if want := asks + ": make test (execute)\nOnly the first 1536 of 1618 bytes of the " +
		"command are shown."; words != want ||
		command != hidden[:1536]+"…" {
		t.Errorf("%q, %q", words, command)
	}
	raw, _ = json.Marshal(map[string]string{"to": long})
	words, _ = Question{Tool: Tool{Title: long + "é", RawInput: raw}}.Describe()
	for _, want := range []string{"first 512 of 10002 bytes of the title", "first 1536 of 10009 bytes of the input"} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in %q", want, words)
		}
	}
	input, _ := json.Marshal(map[string]string{"command": long, "cwd": "/" + long})
	for _, q := range []Question{{Tool: Tool{Title: long, Kind: long, RawInput: input}},
		{Tool: Tool{Kind: long, RawInput: input}},
		{Tool: Tool{ID: long}}} {
		if words, command := q.Describe(); len(words)+len(command) > 4<<10 {
			t.Errorf("%d and %d bytes", len(words), len(command))
		}
	}
}
