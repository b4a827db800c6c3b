package web

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/internal/text"
)

// talkForms carries out the forms of conversations.
type talkForms struct {
	shell      *shell
	executor   *executor.Executor
	find       *lookup.Lookup
	workspaces *workspace.Workspaces
	talk       *conversation.Talk
	memory     *conversation.Memory
	page       *workspacePages
}

func (h *talkForms) register(t *table) {
	t.upload("/workspaces/{workspace}/say", "Say something to the agent of a workspace, by its page", talkBody, h.sayPrompt)
	t.form("/workspaces/{workspace}/talk/{action}", "Answer a question, change the prompts that wait, or stop the agent, by the page of a workspace",
		h.talkAction)
	t.form("/workspaces/{workspace}/sessions/{session}/name", "Name a session with an agent, by the page of a workspace", h.nameSession)
}

// sayPrompt says something in a session. The agent at work hears it, or a new run begins.
func (h *talkForms) sayPrompt(c *route.Call) error {
	s, err := readWorkspaceForm(c, h.workspaces)
	if err != nil {
		return err
	}
	p := record.Prompt{Key: formText(c, "key", 100), Text: formText(c, "prompt", 1<<20),
		Now: c.R.PostFormValue("now") != "", By: by(c), From: "web"}
	if p.Files, err = formFiles(c); err != nil {
		return err
	}
	if p.Text == "" && len(p.Files) > 0 {
		p.Text = "See the files."
	}
	if p.Text == "" {
		return route.NewProblem(route.KindInvalid, "the message is empty")
	}
	agent, label := formText(c, "agent", 100), formText(c, "session", 200)
	if fresh := formText(c, "new-session", 200); fresh != "" {
		label = fresh
	}
	if _, err := h.talk.Say(c.R.Context(), c.Who, conversation.Saying{Caller: s.Caller, Repo: s.Repository,
		Agent: agent, Session: label, Prompt: p}); err != nil {
		return err
	}
	return see(c, workspacePath(s.ID)+"?pane="+paneChat)
}

// formFiles returns the files of a form, as they are kept.
func formFiles(c *route.Call) (list []record.Attachment, err error) {
	if c.R.MultipartForm == nil {
		return nil, nil
	}
	total := 0
	for _, h := range c.R.MultipartForm.File["files"] {
		if h.Size == 0 && h.Filename == "" {
			continue
		}
		if len(list) == conversation.MaxFiles {
			return nil, route.NewProblem(route.KindTooLarge, "a message has at most %d files", conversation.MaxFiles)
		}
		f, err := h.Open()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(io.LimitReader(f, conversation.MaxUpload+1))
		f.Close()
		if err != nil {
			return nil, err
		}
		if total += len(content); total > conversation.MaxUpload {
			return nil, route.NewProblem(route.KindTooLarge, "the files have more than %d MiB together",
				conversation.MaxUpload>>20)
		}
		kept, err := conversation.Attach(content)
		if err != nil {
			return nil, route.NewProblem(route.KindInvalid, "cannot take the file %.100q: %v", h.Filename, err)
		}
		list = append(list, record.Attachment{Name: h.Filename, Type: conversation.Picture(kept), Content: kept})
	}
	return list, nil
}

// talkAction carries out one of the smaller forms of a conversation.
func (h *talkForms) talkAction(c *route.Call) error {
	ctx := c.R.Context()
	s, err := readWorkspaceForm(c, h.workspaces)
	if err != nil {
		return err
	}
	run, key := formText(c, "run", 300), formText(c, "key", 300)
	r, err := h.find.Run(ctx, c.Who, run)
	if err == nil && r.Caller != s.Caller {
		err = route.NotFound("run", run)
	}
	if err != nil {
		return err
	}
	switch action := c.R.PathValue("action"); action {
	case "answer":
		d := record.Decision{Step: formText(c, "step", 300), By: c.Who.Subject, Name: by(c).Name, Option: c.R.PostFormValue("option"),
			Comment: formText(c, "comment", 4000)}
		if d.Option == "" {
			d.Approved = c.R.PostFormValue("answer") == "approve"
		}
		_, err = h.executor.Decide(ctx, r.Name(), d)
	case "unsay":
		_, err = h.executor.Prompts.Unsay(ctx, r.Name(), key, by(c))
	case "resay":
		err = h.executor.Prompts.Resay(ctx, r.Name(), key, formText(c, "text", 1<<20), by(c))
	case "first":
		err = h.putFirst(c, r, key)
	case "again":
		err = h.sayAgain(c, s, r)
	case "stop-turn":
		var back []record.Prompt
		if back, err = h.executor.Prompts.StopTurn(ctx, r.Name(), by(c)); err == nil && len(back) > 0 {
			return giveBack(c, s, back)
		}
	case "stop":
		err = h.executor.Stop(ctx, r.Name(), by(c))
	default:
		return route.NotFound("action", action)
	}
	return orSee(c, err, s)
}

// nameSession names a session, and shows it.
func (h *talkForms) nameSession(c *route.Call) error {
	s, err := readWorkspaceForm(c, h.workspaces)
	if err != nil {
		return err
	}
	to := url.Values{"pane": {paneChat}}
	if back := formText(c, "back", 300); back != "" {
		to.Set("session", back)
	}
	session, name := c.R.PathValue("session"), formText(c, "name", 4000)
	if _, err := h.talk.Rename(c.R.Context(), s.Caller, session, name, by(c)); err != nil {
		return h.refuseName(c, s, to, nameProblem{session: session, name: name}, err)
	}
	return see(c, workspacePath(s.ID)+"?"+to.Encode())
}

// refuseName answers with the page of the workspace, with the mistake next to the field of the name.
func (h *talkForms) refuseName(c *route.Call, s workspace.Workspace, to url.Values, wrong nameProblem, err error) error {
	p := route.AsProblem(err, c.Who)
	if p.Kind != route.KindInvalid && p.Kind != route.KindExists && p.Kind != route.KindTooLarge {
		return err
	}
	wrong.wrong, _ = fieldProblem(err, c.Who)
	call := *c
	call.R = c.R.Clone(c.R.Context())
	call.R.Method = http.MethodGet
	call.R.URL = &url.URL{Path: c.Prefix() + workspacePath(s.ID), RawQuery: to.Encode()}
	page, err := h.page.workspacePageWith(&call, func(p *Page) { p.misnamed = &wrong })
	if err != nil {
		return err
	}
	if page.Status = p.Status; p.Kind == route.KindInvalid {
		page.Status = http.StatusUnprocessableEntity // as other forms answer
	}
	return h.shell.write(&call, page)
}

// sayAgain sends a prompt of a run again, in the same session. The key follows from the entry, so that a form that is sent twice asks once.
func (h *talkForms) sayAgain(c *route.Call, s workspace.Workspace, r record.Run) error {
	ctx, id := c.R.Context(), formText(c, "entry", 300)
	t, err := h.memory.Open(ctx, h.executor, s.Caller, conversation.Window{Around: id, Turns: 1})
	if err != nil {
		return err
	}
	for _, turn := range t.Turns {
		for _, e := range turn.Entries {
			if turn.Run != r.Name() || r.Agent == nil || e.ID != id || e.Kind != conversation.KindPrompt {
				continue
			}
			_, err := h.talk.Say(ctx, c.Who, conversation.Saying{Caller: s.Caller, Repo: s.Repository, Agent: r.Agent.Name,
				Session: r.Agent.Session,
				Prompt:  record.Prompt{Key: "again " + r.ID + " " + e.Key, Text: e.Text, By: by(c), From: "web"}})
			return err
		}
	}
	return route.NotFound("message", id)
}

// putFirst puts a prompt before the others that wait.
func (h *talkForms) putFirst(c *route.Call, r record.Run, key string) error {
	q, err := h.executor.Queue(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	keys := []string{key}
	for _, p := range q.Waiting() {
		if p.Key != key && p.Key != record.FirstPrompt {
			keys = append(keys, p.Key)
		}
	}
	return h.executor.Prompts.Reorder(c.R.Context(), r.Name(), keys, by(c))
}

// giveBack shows the workspace with the prompts that came back in the composer. A page of its own would lose them, so they are in the
// address, as far as they fit.
func giveBack(c *route.Call, s workspace.Workspace, back []record.Prompt) error {
	var texts []string
	for _, p := range back {
		texts = append(texts, p.Text)
	}
	q := url.Values{"pane": {paneChat}, "back": {text.Clip(strings.Join(texts, "\n\n"), 4<<10)}}
	return see(c, workspacePath(s.ID)+"?"+q.Encode())
}

// orSee returns err, or shows the workspace.
func orSee(c *route.Call, err error, s workspace.Workspace) error {
	if err != nil {
		return err
	}
	return see(c, workspacePath(s.ID)+"?pane="+paneChat)
}
