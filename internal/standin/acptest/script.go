package acptest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	sdk "github.com/coder/acp-go-sdk"
)

// Script is a brain that performs the lines of a prompt:
//
//	say WORDS            write FILE TEXT      append FILE TEXT    read FILE
//	run COMMAND          plan A | B           recall              stop REASON
//	hang                 deaf                 exit CODE           print TEXT
//	flood NUMBER         think WORDS          wait MILLISECONDS   fail WORDS
//	slowly MILLISECONDS WORDS
//
// "slowly" does not say a word "until:FILE", and goes on after it when there is such a file.
// "servers" prints the MCP servers of the session, and "recall" every line of its prompts so far. Other lines have no effect. The
// agent's text has the results of tools.
type Script struct{}

// Next implements Brain.
func (Script) Next(ctx context.Context, s View) (Step, error) {
	history := s.History
	last := len(history) - 1
	for last >= 0 && history[last].Role != "user" {
		last--
	}
	if last < 0 {
		return Step{}, nil
	}
	lines := strings.Split(history[last].Text, "\n")
	done := 0
	var result *Entry
	for i := last + 1; i < len(history); i++ {
		switch history[i].Role {
		case "agent":
			done++
			result = nil
		case "tool":
			result = &history[i]
		}
	}
	var said strings.Builder
	if result != nil {
		said.WriteString(strings.TrimRight(result.Text, "\n") + "\n")
	}
	if done >= len(lines) {
		return Step{Text: said.String() + "done\n"}, nil
	}
	step, err := script(ctx, lines[done], s)
	step.Text = said.String() + step.Text
	if len(step.Calls) == 0 && step.Stop == "" {
		step.Calls = []Call{{Tool: "nothing"}} // the next line follows
	}
	return step, err
}

func script(ctx context.Context, line string, s View) (Step, error) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	name, text, _ := strings.Cut(rest, " ")
	call := func(tool string, args map[string]string) (Step, error) {
		return Step{Calls: []Call{{Tool: tool, Args: args}}}, nil
	}
	switch verb {
	case "say":
		return Step{Text: rest + "\n"}, nil
	case "slowly":
		n, _ := strconv.Atoi(name)
		return Step{Text: text + "\n", Pause: time.Duration(n) * time.Millisecond}, nil
	case "write":
		return call("edit", map[string]string{"path": name, "text": text + "\n"})
	case "append":
		return call("bash", map[string]string{"command": "printf '%s\\n' '" + strings.ReplaceAll(text, "'", `'\''`) +
			"' >>'" + name + "'"})
	case "read":
		return call("read", map[string]string{"path": rest})
	case "run":
		return call("bash", map[string]string{"command": rest})
	case "plan":
		return Step{Plan: strings.Split(rest, " | ")}, nil
	case "recall":
		var all []string
		for _, e := range s.History {
			if e.Role == "user" {
				all = append(all, e.Text)
			}
		}
		return Step{Text: "recalled: " + strings.Join(all, " / ") + "\n"}, nil
	case "servers":
		var all strings.Builder
		for _, server := range s.Servers {
			switch {
			case server.Http != nil:
				fmt.Fprintf(&all, "http %s\n", server.Http.Url)
			case server.Stdio != nil:
				fmt.Fprintf(&all, "stdio %s %s\n", server.Stdio.Command, strings.Join(server.Stdio.Args, " "))
			}
		}
		return Step{Text: all.String()}, nil
	case "stop":
		return Step{Stop: rest}, nil
	case "hang":
		return Step{Text: "hanging\n", Hang: true}, nil
	case "deaf":
		return Step{Text: "deaf\n", Deaf: true}, nil
	case "print":
		return Step{Print: rest + "\n"}, nil
	case "think":
		return Step{Raw: []sdk.SessionUpdate{sdk.UpdateAgentThoughtText(rest)}}, nil
	case "wait":
		n, _ := strconv.Atoi(rest)
		select {
		case <-time.After(time.Duration(n) * time.Millisecond):
		case <-ctx.Done():
		}
		return Step{}, nil
	case "fail":
		return Step{}, fmt.Errorf("%s", rest)
	case "exit":
		code, _ := strconv.Atoi(rest)
		return Step{Exit: &code}, nil
	case "flood":
		n, _ := strconv.Atoi(rest)
		step := Step{}
		for i := range n {
			step.Raw = append(step.Raw,
				sdk.StartToolCall(sdk.ToolCallId("flood-"+strconv.Itoa(i)), "flood "+strconv.Itoa(i)))
		}
		return step, nil
	}
	return Step{}, nil
}
