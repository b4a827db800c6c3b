package web

import (
	"html/template"
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
)

// The files of the terminal. Only the page that shows one loads them.
const (
	termScript = "term.js"
	termSheet  = "term.css"
)

// noTerminal is the note of the shell in a build without the terminal.
const noTerminal = "This program was built without the terminal, so commands are run one after another. " +
	"`make build` with Node.js adds it."

// shellPane shows the terminals of a workspace. Without scripts, and in a build without the terminal, it runs commands by
// a form, one after another.
type shellPane struct {
	shell    *shell
	executor *executor.Executor
}

func (shellPane) Name() string  { return paneShell }
func (shellPane) Title() string { return "Shell" }
func (shellPane) Icon() string  { return "terminal" }

// shellRows are the rows of the shell.
type shellRows struct {
	// Script is the path of the terminal. Empty means that there is none.
	Script   string
	Commands []commandRow
}

func (p shellPane) Show(c *route.Call, page *Page, s workspace.Workspace) (template.HTML, error) {
	runs := slices.DeleteFunc(slices.Clone(p.executor.OfCaller(s.Caller)), func(r record.Run) bool {
		return r.Exec == nil || r.Exec.Shell == workspace.BootCommand
	})
	rows := shellRows{Script: page.Asset(termScript)}
	for _, r := range runs[max(0, len(runs)-maxCommands):] {
		row, err := p.commandRow(c.R.Context(), r)
		if err != nil {
			return "", err
		}
		rows.Commands = append(rows.Commands, row)
	}
	note := ""
	switch {
	case rows.Script != "":
		page.Sheets = append(page.Sheets, termSheet)
	case slices.Contains(p.shell.assets.missing, termScript) && !p.shell.noScript:
		note = noTerminal
	}
	return showPane(c, page, s, "pane_shell", p.executor.AgentNames(), rows, note)
}

// termKey is a key that phones lack.
type termKey struct {
	Text string
	// Name says it aloud, if the text does not.
	Name string
	// Key is the text that is sent, or the name of a sequence. Hold is a modifier that holds for the next key.
	Key, Hold string
	// Line is set for the key that shows the field for long input.
	Line bool
}

// termKeys returns the keys that phones lack, in their order.
func termKeys() []termKey {
	return []termKey{
		{Text: "Esc", Name: "Escape", Key: "esc"}, {Text: "Tab", Key: "tab"},
		{Text: "Ctrl", Name: "Control", Hold: "ctrl"}, {Text: "Alt", Hold: "alt"}, {Text: "⇧", Name: "Shift", Hold: "shift"},
		{Text: "←", Name: "Left", Key: "left"}, {Text: "↑", Name: "Up", Key: "up"}, {Text: "↓", Name: "Down", Key: "down"},
		{Text: "→", Name: "Right", Key: "right"}, {Text: "^C", Name: "Control C", Key: "break"},
		{Text: "⇧Tab", Name: "Shift Tab", Key: "backtab"},
		{Text: "|", Name: "Pipe", Key: "|"}, {Text: "/", Name: "Slash", Key: "/"}, {Text: "-", Name: "Minus", Key: "-"},
		{Text: "~", Name: "Tilde", Key: "~"}, {Text: "PgUp", Name: "Page up", Key: "pgup"},
		{Text: "PgDn", Name: "Page down", Key: "pgdn"}, {Text: "Line", Name: "A line for long input", Line: true},
	}
}
