package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/tournament"
	"github.com/ramus-dev/ramus/gateway/engineer"
	"github.com/ramus-dev/ramus/gateway/gather"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/share"
)

// An installation of several replicas has a session at the replica that began it, and the work of a tool at the replica that owns the
// repository. A call of a tool that names work goes to its owner, which answers it as a request without a session. All other messages go to
// the replica of their session.

// elsewhere returns the handler of a request that another replica answers. Returns nil if this one does. foreign reports whether the
// request is then a call of a tool in a session of another replica, which is answered without the session.
func (api *API) elsewhere(c *route.Call, m message) (passed http.Handler, foreign bool) {
	if api.Desk.Alone() {
		return nil, false
	}
	of := replicaOf(c.R.Header.Get(sessionHeader))
	if route.Via(c.R.Context()) == "" {
		if w := m.Params.Arguments.work(c.Who); m.isToolCall() && w != (gather.Work{}) {
			passed = api.Desk.Others.Pass(c.R, w, c.Who.Local)
		} else {
			passed = api.Desk.Others.PassTo(of, c.Who.Local)
		}
	}
	return passed, m.isToolCall() && of != "" && of != api.Desk.Name
}

// newSessionID returns a random id. It names the replica if there are several.
func (api *API) newSessionID(random string) string {
	if api.Desk.Alone() {
		return random
	}
	return api.Desk.Name + "." + random
}

// replicaOf returns the name of the replica that began a session. Returns "" if the id names none.
func replicaOf(session string) string {
	at := strings.LastIndexByte(session, '.')
	return session[:max(at, 0)]
}

// message is the part of a message that decides which replica answers it. The zero value is a message that is none of these.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments namedWork       `json:"arguments"`
		RequestID json.RawMessage `json:"requestId"` // of the call that the message cancels
	} `json:"params"`
}

func (m message) isToolCall() bool { return m.Method == "tools/call" }
func (m message) isCancel() bool   { return m.Method == "notifications/cancelled" }

// readMessage reads a message. The protocol's library refuses a message that is not valid.
func readMessage(body []byte) (m message) {
	if json.Unmarshal(body, &m) != nil {
		return message{}
	}
	if m.Params.Name != toolRevoke {
		m.Params.Arguments.Link = ""
	}
	return m
}

// namedWork has the arguments of all tools that name work. Arguments of other types name nothing, and the tool refuses them.
type namedWork struct {
	Repo       string `json:"repo"`
	Run        string `json:"run"`
	Caller     string `json:"caller"`
	TaskID     string `json:"task_id"`
	Of         string `json:"of"`
	Tournament string `json:"tournament"`
	Link       string `json:"id"`
}

func (n *namedWork) UnmarshalJSON(b []byte) error {
	type plain namedWork
	var read plain
	if json.Unmarshal(b, &read) == nil {
		*n = namedWork(read)
	}
	return nil
}

// work returns the work of a call. If the call names none, it is the repository to which the bearer is limited.
func (n namedWork) work(who route.Who) gather.Work {
	of, _, _ := strings.Cut(n.Of, "@")
	switch {
	case n.Repo != "":
		return gather.Work{Repo: n.Repo}
	case n.Run != "":
		return gather.Work{Run: n.Run}
	case n.Caller != "" || n.TaskID != "":
		return gather.Work{Caller: cmp.Or(n.Caller, n.TaskID)}
	case n.Tournament != "":
		return gather.Work{Tournament: n.Tournament}
	case n.Link != "":
		return gather.Work{Link: n.Link}
	case of != "":
		return gather.Work{Run: of} // a caller, too
	case who.Account == nil && who.Repo != "*":
		return gather.Work{Repo: who.Repo}
	}
	return gather.Work{}
}

// lists ask all replicas for lists of work that no argument limits to one of them.
type lists struct {
	tasks       *gather.Question[struct{}, []record.Task]
	tournaments *gather.Question[string, []tournament.Record]
	links       *gather.Question[string, []share.Link]
}

func (api *API) newLists() lists {
	return lists{
		tasks: gather.New(api.Desk, "tasks", func(ctx context.Context, who route.Who, _ struct{}) ([]record.Task, error) {
			if api.Engineer == nil {
				return nil, nil
			}
			f := engineer.TaskFilter{Active: true, Keep: who.SeesTask}
			if who.Repo != "*" {
				f.Repo = who.Repo
			}
			return api.Engineer.Tasks(ctx, f)
		}),
		tournaments: gather.New(api.Desk, "tournaments", func(ctx context.Context, who route.Who, repo string) ([]tournament.Record, error) {
			if api.Past == nil {
				return nil, nil
			}
			return api.Past.Tournaments(ctx, who, repo)
		}),
		links: gather.New(api.Desk, "shares", func(ctx context.Context, who route.Who, of string) ([]share.Link, error) {
			if api.Shares == nil {
				return nil, nil
			}
			return api.Shares.List(ctx, who, of)
		}),
	}
}

// missing is the part of a list that names the replicas without an answer.
type missing struct {
	Missing []string `json:"missing_replicas,omitempty" jsonschema:"replicas that do not answer; the list lacks what they have"`
}

// askAll returns the items of all replicas, the newest first, and the replicas that do not answer.
func askAll[Q, A any](ctx context.Context, q *gather.Question[Q, []A], who route.Who, in Q, at func(A) time.Time) ([]A, missing, error) {
	ctx, lack := gather.Collect(ctx)
	parts, err := q.Ask(ctx, who, in)
	all := []A{}
	for _, p := range parts {
		all = append(all, p.Answer...)
	}
	if len(parts) > 1 { // each is in this order
		slices.SortStableFunc(all, func(a, b A) int { return at(b).Compare(at(a)) })
	}
	return all, missing{lack.Names()}, err
}
