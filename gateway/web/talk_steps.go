package web

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/conversation"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/workspace"
	"github.com/ramus-dev/ramus/internal/text"
)

// Bounds of the part of a conversation on one page. Everything else is one press away.
const (
	aroundTurns = 3   // of a page that goes to an entry
	maxRows     = 350 // of all turns; the last turn is there in any case
	maxShown    = 200 // entries of one turn
	shownStep   = 100 // so that the entries of a turn at work are hidden many at a time
	maxBlocks   = 200 // of one message of an agent
	maxLines    = 8   // of a prompt
	maxWords    = 600 // of a prompt, in bytes
	stepsAPage  = 100
	maxParts    = conversation.MaxTurns / conversation.DefaultTurns // of one page that grows upward
)

// partsOf returns how many times as many turns as usual a page shows of a conversation, by its address.
func partsOf(q url.Values) int {
	n, _ := strconv.Atoi(q.Get("more")) // 0 if it is no number
	return min(max(n, 1), maxParts)
}

// window returns the rows of as many turns of a transcript as a page can have. forward keeps the first turns, and otherwise the last ones
// stay. The ends of the transcript are set to the shown turns. full reports that the page has no room for another turn.
func (m *talkMaker) window(t *conversation.Transcript, forward bool) (shown []talkRow, full bool) {
	var all [][]talkRow
	count, first, last := 0, 0, len(t.Turns)
	for n := range t.Turns {
		at := last - 1 - n
		if forward {
			at = n
		}
		rows := m.turn(t.Turns[at])
		if count += len(rows); count > maxRows && n > 0 {
			full = true
			if forward {
				last = at
				t.After, t.Live = t.Turns[at-1].ID, nil
			} else {
				first = at + 1
				t.Before = t.Turns[first].ID
			}
			break
		}
		all = append(all, rows)
	}
	if !forward {
		slices.Reverse(all)
	}
	t.Turns = t.Turns[first:last]
	return slices.Concat(all...), full
}

// hidden reports which entries of a turn are in its capsule, those that are folded and the first ones of a long turn.
func hidden(t *conversation.Turn) []bool {
	list := make([]bool, len(t.Entries))
	shown := 0
	for i, e := range t.Entries {
		if list[i] = e.Folded; !e.Folded {
			shown++
		}
	}
	if shown <= maxShown+shownStep {
		return list
	}
	more := (shown - maxShown) / shownStep * shownStep
	for i, e := range t.Entries {
		if more == 0 {
			break
		}
		if list[i] {
			continue
		}
		more--
		list[i] = e.Kind != conversation.KindPrompt && e.Kind != conversation.KindQuestion
	}
	return list
}

// turn returns the rows of a turn. Those that are hidden are behind its capsule.
func (m *talkMaker) turn(t *conversation.Turn) (rows []talkRow) {
	away, count, at := hidden(t), 0, -1
	for i, e := range t.Entries {
		if away[i] {
			count++
			continue
		}
		if at < 0 && e.Kind != conversation.KindPrompt {
			at = len(rows)
		}
		rows = append(rows, m.entry(t, e)...)
	}
	if count == 0 {
		return rows
	}
	if at < 0 {
		at = len(rows)
	}
	words := t.Capsule.Worked()
	if !t.Over() {
		words = fmt.Sprintf("%d earlier steps", count)
	}
	return slices.Insert(rows, at, talkRow{Key: "c " + t.ID, Kind: "capsule", Text: words, Path: m.path, Src: m.src("turn", t.ID)})
}

// src returns the path of the part that a page leaves out.
func (m *talkMaker) src(name, id string) string {
	return m.path + "/steps?" + name + "=" + url.QueryEscape(id)
}

// cutLong cuts a long text in two.
func cutLong(words string) (head, rest string) {
	lines := strings.SplitAfter(words, "\n")
	if len(lines) > maxLines+4 {
		head = strings.Join(lines[:maxLines], "")
	} else {
		head = words
	}
	if len(head) > 2*maxWords {
		head = text.Head(head, maxWords)
		if at := strings.LastIndexByte(head, ' '); at > 0 {
			head = head[:at+1]
		}
	}
	return strings.TrimRight(head, "\n"), words[len(head):]
}

// stepsData is the data of the page of steps.
type stepsData struct {
	Title, Back, More string
	Rows              []talkRow
}

// talkPages serves the parts of conversations that the pages of workspaces leave out.
type talkPages struct {
	finder     *finder
	executor   *executor.Executor
	workspaces *workspace.Workspaces
	sources    *talkSources
}

func (h *talkPages) register(t *table) {
	t.route(route.Route{Method: "GET", Pattern: "/workspaces/{workspace}/steps", Access: t.access, Media: route.MediaHTML,
		Summary: "The steps of a turn, or the whole of one entry, of the conversation of a workspace", Handle: t.serve(h.stepsPage)})
	t.file("/workspaces/{workspace}/runs/{run}/prompts/{key}/{name}", "A file that came with a prompt", route.MediaBytes, h.promptFile)
}

// stepsPage shows the steps of a turn that its page hides, or the whole of one entry. Pages put it where it belongs.
func (h *talkPages) stepsPage(c *route.Call) (*Page, error) {
	ctx, q := c.R.Context(), c.R.URL.Query()
	s, _, err := h.workspaces.Named(ctx, c.Who, c.R.PathValue("workspace"))
	if err != nil {
		return nil, err
	}
	id, whole := q.Get("turn"), q.Has("entry")
	if whole {
		id = q.Get("entry")
	}
	t, err := h.sources.memory.Open(ctx, h.executor, s.Caller, conversation.Window{Around: id, Turns: 1})
	if err != nil {
		return nil, err
	}
	m := talkMaker{ctx: ctx, sources: h.sources, path: h.sources.address + workspacePath(s.ID), whole: whole,
		may: c.Who.CheckChange(s.Repository, s.Branch) == nil, subject: c.Who.Subject, runs: map[string]record.Run{}}
	for _, r := range h.executor.OfCaller(s.Caller) {
		m.runs[r.Name()] = r
	}
	d := &stepsData{Title: "Steps", Back: workspacePath(s.ID) + "?entry=" + url.QueryEscape(id)}
	if len(t.Turns) > 0 {
		m.steps(d, t.Turns[0], id, q.Get("from"))
	}
	return &Page{Title: d.Title + " of " + s.Name, Nav: "workspaces", Template: "talk_steps", Data: d}, nil
}

// steps sets the rows of a page of steps.
func (m *talkMaker) steps(d *stepsData, t *conversation.Turn, id, from string) {
	if m.whole {
		d.Title = "A step"
		for _, e := range t.Entries {
			if e.ID == id {
				d.Rows = append(d.Rows, m.entry(t, e)...)
			}
		}
		return
	}
	first, _ := strconv.Atoi(from) // 0 if it is no number
	first = max(first, 0)
	away, n := hidden(t), 0
	for i, e := range t.Entries {
		if !away[i] {
			continue
		}
		if n >= first+stepsAPage {
			d.More = m.src("turn", t.ID) + "&from=" + strconv.Itoa(n)
			break
		}
		if n >= first {
			d.Rows = append(d.Rows, m.entry(t, e)...)
		}
		n++
	}
}

// promptFile serves a file of a prompt. A picture is shown, all others are saved.
func (h *talkPages) promptFile(c *route.Call) error {
	_, r, err := h.finder.namedRun(c)
	if err != nil {
		return err
	}
	name := c.R.PathValue("name")
	f, err := h.executor.PromptFile(c.R.Context(), r.Name(), c.R.PathValue("key"), name)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, 64<<20))
	if err != nil {
		return err
	}
	media := conversation.Picture(content)
	if media == "" {
		c.MarkAttachment(name)
	} else {
		header := c.W.Header()
		header.Set("Content-Type", media)
		header.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": name}))
		header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
	}
	c.W.Header().Set("X-Content-Type-Options", "nosniff")
	c.W.Header().Set("Cache-Control", "private, max-age=86400, immutable")
	c.W.Header().Set("Content-Length", fmt.Sprint(len(content)))
	c.W.WriteHeader(http.StatusOK)
	_, err = c.W.Write(content)
	return err
}
