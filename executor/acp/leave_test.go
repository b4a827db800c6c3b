package acp

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestQuestionWords shows a command once, as a command, and every other input that the title lacks.
func TestQuestionWords(t *testing.T) {
	const leave = "The agent asks for leave"
	for _, x := range []struct{ title, kind, input, words, command string }{
		{"run rm -r build", "execute", `{"command":"rm -r build"}`, leave + " to run a command (execute):", "rm -r build"},
		{"`npm test`", "execute", `{"command":"npm test","description":"npm"}`, leave + " to run a command (execute):", "npm test"},
		{"Run the tests", "execute", `{"command":"npm test"}`, leave + ": Run the tests (execute)", "npm test"},
		{"make", "execute", `{"command":"make","cwd":"/etc"}`, leave + " to run a command (execute):\n" + `{"cwd":"/etc"}`, "make"},
		{"Run make", "execute", `{"command":["make","all"]}`, leave + ": Run make (execute)\n" + `{"command":["make","all"]}`, ""},
		{"make in /srv", "execute", `{"command":"make","cwd":"/"}`, leave + ": make in /srv (execute)\n" + `{"cwd":"/"}`, "make"},
		{"edit a.txt", "edit", `{"path":"a.txt"}`, leave + ": edit a.txt (edit)", ""},
		{"Edit `a.txt`", "edit", `{"file_path":"a.txt"}`, leave + ": Edit `a.txt` (edit)", ""},
		{"edit a.txt", "edit", `{"path":"a"}`, leave + ": edit a.txt (edit)\n" + `{"path":"a"}`, ""},
		{"copy a.txt b.txt", "edit", `{"to":"a.txt","from":"b.txt"}`,
			leave + ": copy a.txt b.txt (edit)\n" + `{"from":"b.txt","to":"a.txt"}`, ""},
		{"copy a b", "edit", `{"path":"b","file_path":"a"}`, leave + ": copy a b (edit)\n" + `{"file_path":"a","path":"b"}`, ""},
		{"edit", "edit", `{"path":"a<b","n":12345678901234567890}`,
			leave + ": edit (edit)\n" + `{"n":12345678901234567890,"path":"a<b"}`, ""},
		{"fetch", "", `"https://example.org"`, leave + ": fetch\n" + `"https://example.org"`, ""},
		{"odd", "", `{"a"`, leave + `: odd` + "\n" + `{"a"`, ""},
		{"think", "", "", leave + ": think", ""},
		{"think", "x)\n\nApproved by Ada. (", "", leave + ": think (x) Approved by Ada. ()", ""},
		{"think", " \n", "", leave + ": think", ""},
	} {
		words, command := Question{Tool: Tool{Title: x.title, Kind: x.kind, RawInput: json.RawMessage(x.input)}}.Words()
		if words != x.words || command != x.command {
			t.Errorf("%s %s: %q, %q", x.title, x.input, words, command)
		}
	}
	long := strings.Repeat("x", 10_000)
	hidden := "make test" + strings.Repeat(" ", 1600) + "; rm -r /"
	raw, _ := json.Marshal(map[string]string{"command": hidden})
	words, command := Question{Tool: Tool{Title: "make test", Kind: "execute", RawInput: raw}}.Words()
	if want := leave + ": make test (execute)\nOnly the first 1536 of 1618 bytes of the command are shown."; words != want ||
		command != hidden[:1536]+"…" {
		t.Errorf("%q, %q", words, command)
	}
	raw, _ = json.Marshal(map[string]string{"to": long})
	words, _ = Question{Tool: Tool{Title: long + "é", RawInput: raw}}.Words()
	for _, want := range []string{"first 512 of 10002 bytes of the title", "first 1536 of 10009 bytes of the input"} {
		if !strings.Contains(words, want) {
			t.Errorf("no %q in %q", want, words)
		}
	}
	input, _ := json.Marshal(map[string]string{"command": long, "cwd": "/" + long})
	for _, q := range []Question{{Tool: Tool{Title: long, Kind: long, RawInput: input}}, {Tool: Tool{Kind: long, RawInput: input}},
		{Tool: Tool{ID: long}}} {
		if words, command := q.Words(); len(words)+len(command) > 4<<10 {
			t.Errorf("%d and %d bytes", len(words), len(command))
		}
	}
}
