package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ramus-dev/ramus/executor/anchor"
	"github.com/ramus-dev/ramus/executor/review"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gateway/comment"
)

func reviewCommand() command {
	r := reviewing{send: comment.Sending{}}
	return command{
		name: "review", args: "CALLER [PATH:LINE[-TO]]",
		short: "comment on lines of a caller's work, and see what came of it",
		long: `
Without PATH the open threads are listed, with their lines as they are now. A thread is
never shown at other lines: they are the same, or elsewhere, or the commit that changed
them is named.

With PATH and -m a comment is sent to the agent that the caller spoke to last, or to the
only one. --batch sends several as one prompt: JSON like {"comments": [{"path": "a.go",
"line": 3, "text": "…"}], "note": "…", "key": "…"}, from a file or "-". A block that
begins with three backticks and the word suggestion has lines that take the place of
these; --take makes a commit of it, without an agent.

Everything is kept at refs/ramus/review/CALLER of the repository.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&r.text, "m", "", "`text` of the comment or answer")
			fs.BoolVar(&r.old, "old", false, "the lines are those of the base, before the work")
			fs.StringVar(&r.batch, "batch", "", "send the comments of a JSON `file`")
			fs.StringVar(&r.send.Agent, "agent", "", "`name` of the agent that gets the comments")
			fs.StringVar(&r.send.Session, "session", "", "`label` of the session with the agent")
			fs.StringVar(&r.send.Key, "key", "", "a second batch with the same `key` does nothing")
			fs.BoolVar(&r.send.Quiet, "quiet", false, "tell no agent")
			fs.StringVar(&r.answer, "answer", "", "answer in a `thread`, without telling an agent")
			fs.StringVar(&r.resolve, "resolve", "", "close a `thread`")
			fs.BoolVar(&r.unworthy, "not-worth-saying", false, "with --resolve: have automatic reviews not say it again")
			fs.StringVar(&r.open, "reopen", "", "open a `thread` again")
			fs.StringVar(&r.take, "take", "", "make the last suggestion of a `thread` a commit")
			fs.StringVar(&r.in, "in", "", "an additional `repository` of the caller")
			fs.BoolVar(&r.all, "all", false, "list resolved threads, too")
			fs.BoolVar(&e.json, "json", false, "as JSON")
		},
		run: func(ctx context.Context, e *env, args []string) error { return r.run(ctx, e, args) },
	}
}

// reviewing has the flags of the command.
type reviewing struct {
	text, batch, answer, resolve, open, take, in string
	old, all, unworthy                           bool
	send                                         comment.Sending
}

func (r *reviewing) run(ctx context.Context, e *env, args []string) error {
	c, err := e.clientFor(ctx, args, 1, 2, "CALLER [PATH:LINE[-TO]]")
	if err != nil {
		return err
	}
	caller, by := args[0], asker(ctx, e)
	switch {
	case len(args) == 2 || r.batch != "":
		return r.sendComments(ctx, e, c, args)
	case r.answer != "":
		t, err := c.AnswerComment(ctx, caller, r.in, r.answer, r.text, by)
		return e.changedThread(t, err)
	case r.resolve != "":
		t, err := c.ResolveComment(ctx, caller, r.in, r.resolve, false, r.unworthy, by)
		return e.changedThread(t, err)
	case r.open != "":
		t, err := c.ResolveComment(ctx, caller, r.in, r.open, true, false, by)
		return e.changedThread(t, err)
	}
	v, err := c.Review(ctx, caller, r.in)
	if err != nil {
		return err
	}
	if r.take != "" {
		return r.takeSuggestion(ctx, e, c, caller, v)
	}
	if !r.all {
		open := []comment.Thread{}
		for _, t := range v.Threads {
			if t.State != review.Resolved {
				open = append(open, t)
			}
		}
		v.Threads = open
	}
	if e.json {
		return e.writeJSON(v)
	}
	for _, t := range v.Threads {
		e.thread(t)
	}
	fmt.Fprintf(e.out, "%s open\n", count(v.Open, "thread"))
	return nil
}

// sendComments sends the comments of the command line, or those of a file.
func (r *reviewing) sendComments(ctx context.Context, e *env, c *client.Client, args []string) (err error) {
	s := r.send
	if r.batch != "" {
		in := e.in
		if r.batch != "-" {
			f, err := os.Open(r.batch)
			if err != nil {
				return err
			}
			defer f.Close()
			in = f
		}
		text, err := io.ReadAll(io.LimitReader(in, 8<<20))
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil {
			return fmt.Errorf("cannot read the comments: %w", err)
		}
	}
	if len(args) == 2 {
		n := comment.New{Text: r.text}
		if n.Path, n.Line, n.To, err = parseLines(args[1]); err != nil {
			return err
		}
		if n.Line == 0 {
			return usage("%q has no line: want PATH:LINE or PATH:FROM-TO", args[1])
		}
		if r.old {
			n.Side = anchor.Old
		}
		s.Comments = append(s.Comments, n)
	}
	s.By = asker(ctx, e)
	sent, err := c.SendComments(ctx, args[0], r.in, s)
	if err != nil {
		return err
	}
	if e.json {
		return e.writeJSON(sent)
	}
	fmt.Fprintf(e.out, "%s", count(len(sent.Batch.Remarks), "comment"))
	if sent.Batch.Run != "" {
		fmt.Fprintf(e.out, " sent to %s, run %s", e.oneLine(sent.Batch.Agent, 64), e.oneLine(sent.Batch.Run, 200))
	} else {
		fmt.Fprint(e.out, " kept, no agent told")
	}
	fmt.Fprintf(e.out, ": %s\n", e.oneLine(strings.Join(sent.Threads, " "), 2000))
	return nil
}

// takeSuggestion makes the last suggestion of a thread a commit.
func (r *reviewing) takeSuggestion(ctx context.Context, e *env, c *client.Client, caller string, v comment.View) error {
	for _, t := range v.Threads {
		if t.ID != r.take {
			continue
		}
		for i := len(t.Remarks) - 1; i >= 0; i-- {
			if n := len(review.Suggestions(t.Remarks[i].Text)); n > 0 {
				commit, err := c.TakeSuggestion(ctx, caller, r.in, t.ID, t.Remarks[i].ID, n-1, asker(ctx, e))
				if err != nil {
					return err
				}
				if e.json {
					return e.writeJSON(map[string]any{"commit": commit})
				}
				fmt.Fprintf(e.out, "taken, commit %s\n", short(string(commit)))
				return nil
			}
		}
		return fmt.Errorf("thread %s has no suggestion", r.take)
	}
	return fmt.Errorf("there is no thread %q", r.take)
}

func (e *env) changedThread(t review.Thread, err error) error {
	if err != nil {
		return err
	}
	if e.json {
		return e.writeJSON(t)
	}
	state := "open"
	if t.Resolved != nil {
		state = "resolved"
	}
	fmt.Fprintf(e.out, "%s  %s, %s\n", t.ID, state, count(len(t.Remarks), "comment"))
	return nil
}

// thread shows a thread for people.
func (e *env) thread(t comment.Thread) {
	fmt.Fprintf(e.out, "%s  %s  %s\n", t.ID, e.oneLine(placeOf(t), 300), e.colour(yellow, string(t.State)+noteOf(t)))
	for i, l := range t.Excerpt {
		if n := t.First + i; n >= t.Anchor.From && n <= t.Anchor.To {
			fmt.Fprintf(e.out, "  %5d  %s\n", n, e.oneLine(l, 200))
		}
	}
	for _, m := range t.Remarks {
		for i, l := range strings.Split(m.Text, "\n") {
			who := ""
			if i == 0 {
				who = e.oneLine(m.By.Name, 60) + ": "
			}
			fmt.Fprintf(e.out, "    %s%s\n", e.colour(dim, who), e.oneLine(l, 400))
		}
	}
}

// placeOf returns the place of the lines of a thread in words.
func placeOf(t comment.Thread) string {
	was := fmt.Sprintf("%s:%d", t.Anchor.Path, t.Anchor.From)
	if t.Anchor.Side == anchor.Old {
		was += " before the work"
	}
	switch p := t.Place; p.State {
	case anchor.Moved:
		return fmt.Sprintf("%s, now %s:%d", was, p.Path, p.From)
	case anchor.Changed:
		return was + ", changed" + inCommit(p)
	case anchor.Gone:
		return was + ", gone" + inCommit(p)
	}
	return was
}

func inCommit(p anchor.Place) string {
	if p.In == "" {
		return ""
	}
	return " in " + short(p.In)
}

// noteOf returns a note for people about a thread, apart from its state.
func noteOf(t comment.Thread) string {
	switch {
	case t.Untouched:
		return ", untouched by the agent's turn"
	case t.Waits:
		return ", waits for the agent"
	}
	return ""
}
