package acptest

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sdk "github.com/coder/acp-go-sdk"
)

// maxSteps is the maximal number of steps in one turn.
const maxSteps = 200

// Prompt implements sdk.Agent. It runs one turn. A turn that an earlier process of the session did not end goes on if its
// prompt comes again, also after other words, and no call of a tool was at work. Otherwise the turn begins again.
func (a *Agent) Prompt(ctx context.Context, r sdk.PromptRequest) (sdk.PromptResponse, error) {
	a.mu.Lock()
	s, err := a.find(string(r.SessionId))
	if err != nil {
		a.mu.Unlock()
		return sdk.PromptResponse{}, err
	}
	// The SDK ends its own context when the turn is cancelled, and reports it in the response. This context ends by
	// Cancel, after the remaining updates are sent.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s.cancel = cancel
	if text := promptText(r.Prompt); !s.InTurn || s.calls() || !strings.HasSuffix(text, s.asked()) {
		s.History = append(s.History, Entry{Role: "user", Text: text})
	}
	s.InTurn = true
	a.mu.Unlock()
	stop, err := a.turn(ctx, s)
	a.mu.Lock()
	defer a.mu.Unlock()
	s.cancel, s.InTurn = nil, false
	if serr := a.save(s); err == nil {
		err = serr
	}
	if ctx.Err() != nil {
		stop, err = "cancelled", nil
	}
	return sdk.PromptResponse{StopReason: sdk.StopReason(stop)}, err
}

// calls reports whether the last event is a call of a tool.
func (s *session) calls() bool {
	last := s.History[len(s.History)-1] // a session in a turn has its prompt
	return slices.ContainsFunc(last.Calls, func(c Call) bool { return c.Tool != "nothing" })
}

// asked returns the last prompt.
func (s *session) asked() string {
	for _, e := range slices.Backward(s.History) {
		if e.Role == "user" {
			return e.Text
		}
	}
	return ""
}

func promptText(blocks []sdk.ContentBlock) string {
	var texts []string
	for _, b := range blocks {
		switch {
		case b.Text != nil:
			texts = append(texts, b.Text.Text)
		case b.ResourceLink != nil:
			texts = append(texts, "file: "+strings.TrimPrefix(b.ResourceLink.Uri, "file://"))
		case b.Image != nil:
			data, err := base64.StdEncoding.DecodeString(b.Image.Data)
			texts = append(texts, fmt.Sprintf("image: %s of %d bytes, %v", b.Image.MimeType, len(data), err))
		}
	}
	return strings.Join(texts, "\n")
}

func (a *Agent) turn(ctx context.Context, s *session) (stop string, err error) {
	for range maxSteps {
		a.mu.Lock()
		for _, text := range s.steered {
			s.History = append(s.History, Entry{Role: "user", Text: text})
		}
		s.steered = nil
		view := View{slices.Clone(s.History), s.Servers}
		a.mu.Unlock()
		step, err := a.Brain.Next(ctx, view)
		if err != nil {
			return "", err
		}
		if err := a.show(ctx, s, step); err != nil {
			return "", err
		}
		for i := range step.Calls {
			if step.Calls[i].ID == "" {
				step.Calls[i].ID = fmt.Sprintf("call-%d-%d", len(view.History), i)
			}
		}
		a.note(s, Entry{Role: "agent", Text: step.Text, Calls: step.Calls})
		for _, c := range step.Calls {
			if c.Tool == "nothing" {
				continue
			}
			text, err := a.use(ctx, s, c)
			if ctx.Err() != nil {
				return "cancelled", nil
			}
			if err != nil {
				text = err.Error()
			}
			a.note(s, Entry{Role: "tool", CallID: c.ID, Text: text, Failed: err != nil})
		}
		switch {
		case step.Stop != "":
			return step.Stop, nil
		case len(step.Calls) == 0:
			return "end_turn", nil
		}
	}
	return "max_turn_requests", nil
}

func (a *Agent) note(s *session, e Entry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.History = append(s.History, e)
	_ = a.save(s) // the end of the turn reports the same error
}

// await waits until a file exists.
func await(ctx context.Context, file string) {
	for ctx.Err() == nil {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// show performs the parts of a step that are not tool calls.
func (a *Agent) show(ctx context.Context, s *session, step Step) error {
	if step.Text != "" {
		// A model's text comes in pieces as well.
		for _, piece := range strings.SplitAfter(step.Text, " ") {
			if file, ok := strings.CutPrefix(strings.TrimSpace(piece), "until:"); ok && step.Pause > 0 {
				await(ctx, file)
				continue
			}
			if err := a.tell(ctx, s, sdk.UpdateAgentMessageText(piece)); err != nil {
				return err
			}
			if step.Pause <= 0 {
				continue
			}
			select {
			case <-time.After(step.Pause):
			case <-ctx.Done():
				return nil
			}
		}
	}
	if len(step.Plan) > 0 {
		entries := make([]sdk.PlanEntry, len(step.Plan))
		for i, p := range step.Plan {
			entries[i] = sdk.PlanEntry{Content: p, Priority: sdk.PlanEntryPriorityMedium, Status: sdk.PlanEntryStatusPending}
		}
		if err := a.tell(ctx, s, sdk.UpdatePlan(entries...)); err != nil {
			return err
		}
	}
	for _, u := range step.Raw {
		if err := a.tell(ctx, s, u); err != nil {
			return err
		}
	}
	if step.Print != "" {
		if _, err := io.WriteString(a.out, step.Print); err != nil {
			return err
		}
	}
	if step.Exit != nil {
		os.Exit(*step.Exit)
	}
	if step.Hang || step.Deaf {
		<-ctx.Done()
	}
	if step.Deaf {
		select {}
	}
	return nil
}

// kinds are the protocol's names for the tools' kinds.
var kinds = map[string]sdk.ToolKind{"read": sdk.ToolKindRead, "edit": sdk.ToolKindEdit, "bash": sdk.ToolKindExecute}

// use runs a tool if that is permitted, and reports it.
func (a *Agent) use(ctx context.Context, s *session, c Call) (string, error) {
	kind := kinds[c.Tool]
	if kind == "" {
		return "", fmt.Errorf("there is no tool %q", c.Tool)
	}
	title := strings.TrimSpace(c.Tool + " " + c.Args["path"] + c.Args["command"])
	start := []sdk.ToolCallStartOpt{sdk.WithStartKind(kind), sdk.WithStartStatus(sdk.ToolCallStatusPending),
		sdk.WithStartRawInput(c.Args)}
	if p := c.Args["path"]; p != "" {
		start = append(start, sdk.WithStartLocations([]sdk.ToolCallLocation{{Path: s.at(p)}}))
	}
	if err := a.tell(ctx, s, sdk.StartToolCall(sdk.ToolCallId(c.ID), title, start...)); err != nil {
		return "", err
	}
	end := func(status sdk.ToolCallStatus, content sdk.ToolCallContent) {
		_ = a.tell(context.WithoutCancel(ctx), s, sdk.UpdateToolCall(sdk.ToolCallId(c.ID), sdk.WithUpdateStatus(status),
			sdk.WithUpdateContent([]sdk.ToolCallContent{content}))) // the next message reports the same error
	}
	said := func(text string) sdk.ToolCallContent { return sdk.ToolContent(sdk.TextBlock(text)) }
	if slices.Contains(a.Ask, string(kind)) && !s.always[string(kind)] {
		answer, err := a.conn.RequestPermission(ctx, sdk.RequestPermissionRequest{SessionId: sdk.SessionId(s.ID),
			ToolCall: sdk.ToolCallUpdate{ToolCallId: sdk.ToolCallId(c.ID), Title: &title, Kind: &kind, RawInput: c.Args},
			Options: []sdk.PermissionOption{
				{OptionId: "always", Name: "Always", Kind: sdk.PermissionOptionKindAllowAlways},
				{OptionId: "once", Name: "Once", Kind: sdk.PermissionOptionKindAllowOnce},
				{OptionId: "no", Name: "No", Kind: sdk.PermissionOptionKindRejectOnce},
			}})
		if err != nil {
			return "", err
		}
		got := answer.Outcome.Selected
		switch {
		case got != nil && got.OptionId == "always":
			if s.always == nil {
				s.always = make(map[string]bool)
			}
			s.always[string(kind)] = true
		case got == nil || got.OptionId != "once":
			end(sdk.ToolCallStatusFailed, said("not allowed"))
			return "", fmt.Errorf("not allowed: %s", title)
		}
	}
	if err := a.tell(ctx, s, sdk.UpdateToolCall(sdk.ToolCallId(c.ID), sdk.WithUpdateStatus(sdk.ToolCallStatusInProgress))); err != nil {
		return "", err
	}
	var before string
	if c.Tool == "edit" {
		before, _ = a.read(ctx, s, s.at(c.Args["path"])) // a new file was empty before
	}
	text, err := a.do(ctx, s, c)
	if err != nil {
		end(sdk.ToolCallStatusFailed, said(err.Error()))
		return text, err
	}
	if c.Tool != "edit" {
		end(sdk.ToolCallStatusCompleted, said(text))
		return text, nil
	}
	after, err := a.read(ctx, s, s.at(c.Args["path"]))
	if err != nil {
		end(sdk.ToolCallStatusCompleted, said(text)) // the file is written
		return text, nil
	}
	end(sdk.ToolCallStatusCompleted, sdk.ToolDiffContent(c.Args["path"], after, before))
	return text, nil
}

// at returns a path below the session's folder.
func (s *session) at(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(s.Dir, p)
}

func (a *Agent) do(ctx context.Context, s *session, c Call) (string, error) {
	switch c.Tool {
	case "read":
		return a.read(ctx, s, s.at(c.Args["path"]))
	case "edit":
		text := c.Args["text"]
		if old, ok := c.Args["old"]; ok {
			before, err := a.read(ctx, s, s.at(c.Args["path"]))
			if err != nil {
				return "", err
			}
			if strings.Count(before, old) != 1 {
				return "", fmt.Errorf("the text to replace is there %d times", strings.Count(before, old))
			}
			text = strings.Replace(before, old, c.Args["new"], 1)
		}
		return "written", a.write(ctx, s, s.at(c.Args["path"]), text)
	}
	return a.bash(ctx, s, c.Args["command"])
}

func (a *Agent) read(ctx context.Context, s *session, name string) (string, error) {
	if !a.client.Fs.ReadTextFile {
		text, err := os.ReadFile(name)
		return string(text), err
	}
	r, err := a.conn.ReadTextFile(ctx, sdk.ReadTextFileRequest{SessionId: sdk.SessionId(s.ID), Path: name})
	return r.Content, err
}

func (a *Agent) write(ctx context.Context, s *session, name, text string) error {
	if !a.client.Fs.WriteTextFile {
		return os.WriteFile(name, []byte(text), 0o644)
	}
	_, err := a.conn.WriteTextFile(ctx, sdk.WriteTextFileRequest{SessionId: sdk.SessionId(s.ID), Path: name, Content: text})
	return err
}

func (a *Agent) bash(ctx context.Context, s *session, command string) (string, error) {
	if !a.client.Terminal {
		cmd := exec.CommandContext(ctx, "sh", "-c", command)
		cmd.Dir = s.Dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	id := sdk.SessionId(s.ID)
	t, err := a.conn.CreateTerminal(ctx,
		sdk.CreateTerminalRequest{SessionId: id, Command: "sh", Args: []string{"-c", command}, Cwd: &s.Dir})
	if err != nil {
		return "", err
	}
	defer func() {
		_, _ = a.conn.ReleaseTerminal(context.WithoutCancel(ctx),
			sdk.ReleaseTerminalRequest{SessionId: id, TerminalId: t.TerminalId}) // it ends with the turn
	}()
	exit, err := a.conn.WaitForTerminalExit(ctx, sdk.WaitForTerminalExitRequest{SessionId: id, TerminalId: t.TerminalId})
	if err != nil {
		return "", err
	}
	out, err := a.conn.TerminalOutput(ctx, sdk.TerminalOutputRequest{SessionId: id, TerminalId: t.TerminalId})
	if err != nil {
		return "", err
	}
	if exit.ExitCode == nil || *exit.ExitCode != 0 {
		code := -1
		if exit.ExitCode != nil {
			code = *exit.ExitCode
		}
		return out.Output, fmt.Errorf("%s(exit code %d)", out.Output, code)
	}
	return out.Output, nil
}
