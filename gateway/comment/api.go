package comment

import (
	"net/http"

	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/changes"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// API serves comments to programs. Its fields are its options.
type API struct{ Comments *Comments }

// Routes returns the routes of comments.
func (api *API) Routes() []route.Route {
	const at = "/api/workspaces/{caller}/review"
	return []route.Route{
		{Method: "GET", Pattern: at, Access: route.AccessRead,
			Summary: "The threads of a workspace with their places in its present work, and the drafts of the person", Query: where{},
			Response: View{}, Handle: api.read},
		{Method: "POST", Pattern: at + "/drafts", Access: route.AccessWrite,
			Summary: "Keep a comment that only its author sees, until it is sent", Query: where{}, Request: New{}, Response: Draft{}, Handle: api.draft},
		{Method: "POST", Pattern: at + "/drafts/{draft}", Access: route.AccessWrite,
			Summary: "Change the text of a draft", Query: where{}, Request: newText{}, Response: Draft{}, Handle: api.redraft},
		{Method: "DELETE", Pattern: at + "/drafts/{draft}", Access: route.AccessWrite, Summary: "Remove a draft", Query: where{},
			Response: View{}, Handle: api.dropDraft},
		{Method: "POST", Pattern: at + "/batches", Access: route.AccessWrite,
			Summary: "Send comments together, as one prompt to an agent; with a key, once however often they are sent", Query: where{},
			Request: Sending{}, Response: Sent{}, Handle: api.send},
		{Method: "POST", Pattern: at + "/threads/{thread}/answers", Access: route.AccessWrite,
			Summary: "Answer in a thread without telling an agent", Query: where{}, Request: newAnswer{}, Response: review.Thread{}, Handle: api.answer},
		{Method: "POST", Pattern: at + "/threads/{thread}/resolve", Access: route.AccessWrite,
			Summary: "Resolve a thread, or open it again", Query: where{}, Request: resolution{}, Response: review.Thread{}, Handle: api.resolve},
		{Method: "POST", Pattern: at + "/threads/{thread}/take", Access: route.AccessWrite,
			Summary: "Make a suggestion a commit, without an agent", Query: where{}, Request: taking{}, Response: taken{}, Handle: api.takeSuggestion},
	}
}

type where struct {
	In   string `json:"in,omitempty" jsonschema:"an additional repository of the workspace; its own if empty"`
	From string `json:"from,omitempty" jsonschema:"branch, tag, ref or commit; where the work began if empty"`
	To   string `json:"to,omitempty" jsonschema:"branch, tag, ref or commit; the end of the branch if empty"`
}

type newText struct {
	Text string `json:"text"`
}

type newAnswer struct {
	Text string      `json:"text"`
	By   gitd.Person `json:"by,omitzero" jsonschema:"the person, for calls by an administrator in another name"`
}

type resolution struct {
	Open     bool        `json:"open,omitempty" jsonschema:"open the thread again"`
	Unworthy bool        `json:"unworthy,omitempty" jsonschema:"the finding is not worth saying in this repository again"`
	By       gitd.Person `json:"by,omitzero" jsonschema:"the person, for calls by an administrator in another name"`
}

type taking struct {
	Comment    string      `json:"comment" jsonschema:"the id of the comment"`
	Suggestion int         `json:"suggestion,omitempty" jsonschema:"which one of the comment, from 0"`
	By         gitd.Person `json:"by,omitzero" jsonschema:"the person, for calls by an administrator in another name"`
}

type taken struct {
	Commit gitd.Hash `json:"commit"`
}

// work returns the work that a call is about. change is set if the call changes its comments.
func (api *API) work(c *route.Call, change bool) (Work, error) {
	var q where
	if err := c.ReadQuery(&q); err != nil {
		return Work{}, err
	}
	st, err := api.Comments.Find.PathCaller(c)
	if err != nil {
		return Work{}, err
	}
	if change {
		if err := c.Who.CheckChangeCaller(st); err != nil {
			return Work{}, err
		}
	}
	return api.Comments.Of(c.R.Context(), c.Who, st, changes.Window{In: q.In, From: q.From, To: q.To})
}

// change reads the body of a call that changes comments, and returns the work that the call is about.
func (api *API) change(c *route.Call, body any) (Work, error) {
	if err := c.ReadJSON(body); err != nil {
		return Work{}, err
	}
	return api.work(c, true)
}

func (api *API) read(c *route.Call) error {
	w, err := api.work(c, false)
	if err != nil {
		return err
	}
	return api.reply(c, w)
}

func (api *API) reply(c *route.Call, w Work) error {
	v, err := api.Comments.Read(c.R.Context(), c.Who, w)
	if err != nil {
		return err
	}
	return c.Reply(v)
}

func (api *API) draft(c *route.Call) error {
	var n New
	w, err := api.change(c, &n)
	if err != nil {
		return err
	}
	d, err := api.Comments.PutDraft(c.R.Context(), c.Who, w, n, "")
	if err != nil {
		return err
	}
	return c.ReplyStatus(http.StatusCreated, d)
}

func (api *API) redraft(c *route.Call) error {
	var n newText
	w, err := api.change(c, &n)
	if err != nil {
		return err
	}
	d, err := api.Comments.PutDraft(c.R.Context(), c.Who, w, New{Text: n.Text}, c.R.PathValue("draft"))
	if err != nil {
		return err
	}
	return c.Reply(d)
}

func (api *API) dropDraft(c *route.Call) error {
	w, err := api.work(c, true)
	if err != nil {
		return err
	}
	if err := api.Comments.DropDraft(c.Who, w, c.R.PathValue("draft")); err != nil {
		return err
	}
	return api.reply(c, w)
}

func (api *API) send(c *route.Call) error {
	var s Sending
	w, err := api.change(c, &s)
	if err != nil {
		return err
	}
	sent, err := api.Comments.Send(c.R.Context(), c.Who, w, s)
	if err != nil {
		return err
	}
	return c.Reply(sent)
}

func (api *API) answer(c *route.Call) error {
	var n newAnswer
	w, err := api.change(c, &n)
	if err != nil {
		return err
	}
	t, err := api.Comments.Answer(c.R.Context(), w, c.R.PathValue("thread"),
		review.Remark{Kind: review.ByPerson, By: c.Who.Person(n.By), Text: n.Text})
	if err != nil {
		return err
	}
	return c.Reply(t)
}

func (api *API) resolve(c *route.Call) error {
	var n resolution
	w, err := api.change(c, &n)
	if err != nil {
		return err
	}
	t, err := api.Comments.Resolve(c.R.Context(), w, c.R.PathValue("thread"), c.Who.Person(n.By), !n.Open, n.Unworthy)
	if err != nil {
		return err
	}
	return c.Reply(t)
}

func (api *API) takeSuggestion(c *route.Call) error {
	var n taking
	w, err := api.change(c, &n)
	if err != nil {
		return err
	}
	made, err := api.Comments.Take(c.R.Context(), w, c.R.PathValue("thread"), n.Comment, n.Suggestion, c.Who.Person(n.By))
	if err != nil {
		return err
	}
	return c.Reply(taken{made})
}
