package conversation

import (
	"net/http"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of the files of a prompt.
const (
	MaxFiles   = 5
	MaxUpload  = 25 << 20 // bytes of all files together
	promptBody = 2<<20 + MaxUpload/3*4 + 4096
)

// API serves conversations to programs. Its exported fields are its options, which may be changed until the first request.
type API struct {
	Talk *Talk
	Find *lookup.Lookup
	// Beat is how often a socket asks its reader for a sign of life. The default is 20 s.
	Beat time.Duration
}

// Routes returns the routes of conversations.
func (api *API) Routes() []route.Route {
	const sessions = "/api/workspaces/{caller}/agent-sessions"
	return []route.Route{
		{Method: "GET", Pattern: sessions, Access: route.AccessRead,
			Summary: "A workspace's sessions with agents, the most recently used first", Response: []Session{},
			Handle: api.list},
		{Method: "POST", Pattern: sessions, Access: route.AccessWrite,
			Summary: "Begin a session with an agent, or go on with the one of the same label; with a key, once however often it is sent",
			Request: newSession{}, Response: Session{}, Body: promptBody, Handle: api.create},
		{Method: "GET", Pattern: sessions + "/{session}", Access: route.AccessRead, Summary: "One session",
			Response: Session{}, Handle: api.one},
		{Method: "POST", Pattern: sessions + "/{session}/prompts", Access: route.AccessWrite,
			Summary: "Say something in a session; now ends the turn that works for it, or reaches it if the agent can be steered",
			Request: newPrompt{}, Response: Said{}, Body: promptBody, Handle: api.sayPrompt},
		{Method: "POST", Pattern: sessions + "/{session}/name", Access: route.AccessWrite,
			Summary: "Name a session for people; its id and its label stay, and an empty name takes the name away",
			Request: newName{}, Response: Session{}, Handle: api.rename},
		{Method: "POST", Pattern: "/api/runs/{run}/stop-turn", Access: route.AccessWrite,
			Summary:  "Stop the turn of a run's agent; its changes are committed, and the prompts that wait come back",
			Response: StoppedTurn{}, Handle: api.stopTurn},
		{Method: "DELETE", Pattern: sessions + "/{session}", Access: route.AccessWrite,
			Summary:  "Stop the run of a session; its changes are committed, and the session can go on later",
			Response: Session{}, Handle: api.stop},
		{Method: "GET", Pattern: "/api/workspaces/{caller}/transcript", Access: route.AccessRead,
			Summary: "A window of a workspace's conversation, by default its end", Query: transcriptQuery{},
			Response: Transcript{}, Handle: api.transcript},
		{Method: "GET", Pattern: "/api/runs/{run}/prompts", Access: route.AccessRead,
			Summary: "The prompts of a run's agent; those from heard on wait", Response: queue{}, Handle: api.queue},
		{Method: "POST", Pattern: "/api/runs/{run}/prompts/order", Access: route.AccessWrite,
			Summary: "Reorder the prompts that wait", Request: newOrder{}, Response: queue{}, Handle: api.reorder},
		{Method: "POST", Pattern: "/api/runs/{run}/prompts/{key}", Access: route.AccessWrite,
			Summary: "Replace the text of a prompt that waits", Request: newWords{}, Response: queue{}, Handle: api.resay},
		{Method: "DELETE", Pattern: "/api/runs/{run}/prompts/{key}", Access: route.AccessWrite,
			Summary: "Take back a prompt that waits", Response: record.Prompt{}, Handle: api.unsay},
		{Method: "GET", Pattern: "/workspaces/{caller}/agent", Access: route.AccessWrite,
			Summary: "Speak the Agent Client Protocol to a session, over a WebSocket", Query: agentQuery{},
			Handle: api.agent},
	}
}

func (api *API) list(c *route.Call) error {
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	all, err := api.Talk.Sessions(c.R.Context(), st.Caller)
	if err != nil {
		return err
	}
	return c.Reply(all)
}

// session returns the session that the path of a call names.
func (api *API) session(c *route.Call) (Session, error) {
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return Session{}, err
	}
	return api.Talk.Session(c.R.Context(), st.Caller, c.R.PathValue("session"))
}

func (api *API) one(c *route.Call) error {
	s, err := api.session(c)
	if err != nil {
		return err
	}
	return c.Reply(s)
}

// file is a file that comes with a prompt.
type file struct {
	Name    string `json:"name"`
	Type    string `json:"type,omitempty"`
	Content []byte `json:"content" jsonschema:"in base64"`
}

type newPrompt struct {
	Text  string      `json:"text"`
	Key   string      `json:"key,omitempty" jsonschema:"a second prompt with the same key does nothing"`
	Now   bool        `json:"now,omitempty" jsonschema:"say it at once, before all that wait"`
	Files []file      `json:"files,omitempty"`
	By    gitd.Person `json:"by,omitzero" jsonschema:"the person, for calls by an administrator in another name"`
}

type newSession struct {
	Agent string `json:"agent,omitempty" jsonschema:"may be left out if there is one"`
	Label string `json:"label,omitempty"`
	newPrompt
}

// prompt returns the prompt of a request.
func (p newPrompt) prompt(c *route.Call) (record.Prompt, error) {
	said := record.Prompt{Key: p.Key, Text: p.Text, Now: p.Now, By: c.Who.Person(p.By), From: "api"}
	if len(p.Files) > MaxFiles {
		return said, route.NewProblem(route.KindTooLarge, "%d files are attached, at most %d can be", len(p.Files), MaxFiles)
	}
	total := 0
	for _, f := range p.Files {
		if total += len(f.Content); total > MaxUpload {
			return said, route.NewProblem(route.KindTooLarge, "the files have more than %d MiB together", MaxUpload>>20)
		}
		content, err := Attach(f.Content)
		if err != nil {
			return said, route.NewProblem(route.KindInvalid, "cannot take the file %.100q: %v", f.Name, err)
		}
		said.Files = append(said.Files, record.Attachment{Name: f.Name, Type: f.Type, Content: content})
	}
	return said, nil
}

func (api *API) create(c *route.Call) error {
	var n newSession
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	if names := api.Talk.Executor.AgentNames(); n.Agent == "" && len(names) == 1 {
		n.Agent = names[0]
	}
	p, err := n.prompt(c)
	if err != nil {
		return err
	}
	if p.Text == "" {
		return route.NewProblem(route.KindInvalid, "a session begins with its first prompt").WithHint(`send it as "text"`)
	}
	_, err = api.Talk.Say(c.R.Context(), c.Who,
		Saying{Caller: st.Caller, Repo: st.Repo, Agent: n.Agent, Session: n.Label, Prompt: p})
	if err != nil {
		return err
	}
	s, err := api.Talk.Session(c.R.Context(), st.Caller, SessionID(n.Agent, n.Label))
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, s)
}

func (api *API) sayPrompt(c *route.Call) error {
	var n newPrompt
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	s, err := api.session(c)
	if err != nil {
		return err
	}
	p, err := n.prompt(c)
	if err != nil {
		return err
	}
	said, err := api.Talk.Say(c.R.Context(), c.Who, Saying{Caller: s.Caller, Agent: s.Agent, Session: s.Label, Prompt: p})
	if err != nil {
		return err
	}
	return c.Reply(said)
}

type newName struct {
	Name string      `json:"name" jsonschema:"one line of at most 120 characters, which no other session of the workspace has as its name or its label"`
	By   gitd.Person `json:"by,omitzero" jsonschema:"the person, for calls by an administrator in another name"`
}

func (api *API) rename(c *route.Call) error {
	var n newName
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	s, err := api.Talk.Rename(c.R.Context(), st.Caller, c.R.PathValue("session"), n.Name, c.Who.Person(n.By))
	if err != nil {
		return err
	}
	return c.Reply(s)
}

// StoppedTurn is the answer to the end of a turn. Back are the prompts that the agent did not get.
type StoppedTurn struct {
	Run  string          `json:"run"`
	Back []record.Prompt `json:"back"`
}

func (api *API) stopTurn(c *route.Call) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	back, err := api.Talk.Prompts.StopTurn(c.R.Context(), r.Name(), c.Who.Person(gitd.Person{}))
	if err != nil {
		return err
	}
	if back == nil {
		back = []record.Prompt{}
	}
	return c.Reply(StoppedTurn{r.Name(), back})
}

func (api *API) stop(c *route.Call) error {
	s, err := api.session(c)
	if err != nil {
		return err
	}
	if s.Run == "" {
		return c.Reply(s)
	}
	if err := api.Talk.Executor.Stop(c.R.Context(), s.Run, c.Who.Person(gitd.Person{})); err != nil {
		return err
	}
	if s, err = api.session(c); err != nil {
		return err
	}
	return c.Reply(s)
}

type transcriptQuery struct {
	Around  string `json:"around,omitempty" jsonschema:"the id of an entry that is in the middle"`
	Before  string `json:"before,omitempty" jsonschema:"the id of a turn; the window ends before it"`
	After   string `json:"after,omitempty" jsonschema:"the id of a turn; the window begins after it"`
	Turns   int    `json:"turns,omitempty" jsonschema:"how many; 40 if 0, 200 at most"`
	Session string `json:"session,omitempty" jsonschema:"only the session with this id"`
}

func (api *API) transcript(c *route.Call) error {
	var q transcriptQuery
	if err := c.ReadQuery(&q); err != nil {
		return err
	}
	st, err := api.Find.PathCaller(c)
	if err != nil {
		return err
	}
	w := Window{Around: q.Around, Before: q.Before, After: q.After, Turns: q.Turns}
	if q.Session != "" {
		s, err := api.Talk.Session(c.R.Context(), st.Caller, q.Session)
		if err != nil {
			return err
		}
		w.Agent, w.Session = s.Agent, s.Label
	}
	t, err := Open(c.R.Context(), api.Talk.Executor, st.Caller, w)
	if err != nil {
		return err
	}
	return c.Reply(t)
}

// queue has the prompts of a run's agent.
type queue struct {
	Prompts []record.Prompt `json:"prompts"`
	Heard   int             `json:"heard"`
}

func (api *API) queue(c *route.Call) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	return api.replyQueue(c, r)
}

func (api *API) replyQueue(c *route.Call, r record.Run) error {
	q, err := api.Talk.Executor.Queue(c.R.Context(), r.Name())
	if err != nil {
		return err
	}
	return c.Reply(queue{q.Prompts, q.Heard})
}

type newOrder struct {
	Keys []string `json:"keys"`
}

func (api *API) reorder(c *route.Call) error {
	var n newOrder
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	if err := api.Talk.Prompts.Reorder(c.R.Context(), r.Name(), n.Keys, c.Who.Person(gitd.Person{})); err != nil {
		return err
	}
	return api.replyQueue(c, r)
}

type newWords struct {
	Text string `json:"text"`
}

func (api *API) resay(c *route.Call) error {
	var n newWords
	if err := c.ReadJSON(&n); err != nil {
		return err
	}
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	if err := api.Talk.Prompts.Resay(c.R.Context(), r.Name(), c.R.PathValue("key"), n.Text, c.Who.Person(gitd.Person{})); err != nil {
		return err
	}
	return api.replyQueue(c, r)
}

func (api *API) unsay(c *route.Call) error {
	r, err := api.Find.PathRun(c)
	if err != nil {
		return err
	}
	p, err := api.Talk.Prompts.Unsay(c.R.Context(), r.Name(), c.R.PathValue("key"), c.Who.Person(gitd.Person{}))
	if err != nil {
		return err
	}
	return c.Reply(p)
}
