package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/fallback"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/lookup"
	"github.com/ramus-dev/ramus/gateway/retry"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gateway/slack"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Limits of the input of an agent.
const (
	maxFiles     = 5
	maxFileBytes = 25 << 20 // of all files together
	maxPrompt    = 64 << 10
)

// pending is a run that the worker of its session must bring to its end.
type pending struct {
	run    record.Run
	again  bool            // an earlier attempt may have posted something, so messages are searched for first
	failed int             // the number of failed attempts
	seen   <-chan struct{} // closed when the first reaction on the mention is set or given up; nil if there is none
}

// worker works on one session. Its goroutine decides on the mentions of the thread one after another. Each run that it
// begins is followed by a separate goroutine, and the worker waits for all of them.
type worker struct {
	chat   *Chat
	of     Session
	caller record.Caller
	wake   chan struct{}  // holds a token if queue has changed or a run has ended
	runs   sync.WaitGroup // runs that are followed

	// Chat.mu guards the fields below.
	queue []pending
	busy  int             // number of goroutines that runAlongside started
	has   map[string]bool // runs that are queued, decided on or followed
}

// work decides on queued mentions until the queue is empty and no run is followed.
func (s *worker) work() {
	defer s.runs.Wait()
	for {
		t, state := s.dequeue()
		switch state {
		case sessionIdle:
			return
		case sessionWaits:
			select {
			case <-s.wake:
			case <-s.chat.ctx.Done():
				return
			}
			continue
		}
		select {
		case s.chat.slots <- struct{}{}:
		case <-s.chat.ctx.Done():
			return
		}
		next, err := s.decide(s.chat.ctx, t)
		<-s.chat.slots
		switch {
		case s.chat.ctx.Err() != nil:
			return
		case err != nil:
			// A lasting error is reported in the thread if that is possible.
			if run, failed := s.endMistake(t.run, err); failed == nil {
				s.followUp(t, following{run: run})
			} else {
				s.retryLater(t, "cannot decide on a mention", err)
			}
		default:
			s.followUp(t, next)
		}
	}
}

// following is the work that a decision leaves. If run is set, the run is followed. If work is set, work takes longer
// and returns the run to follow. If both are nil, there is nothing to do.
type following struct {
	run  *record.Run
	work func(context.Context) (*record.Run, error)
	seen <-chan struct{} // closed when the reaction on the mention is set or given up
}

// followUp does the work that a decision leaves, while the worker decides on other mentions.
func (s *worker) followUp(t pending, next following) {
	if next.run != nil && next.run.Name() != t.run.Name() {
		s.chat.mu.Lock()
		delete(s.has, t.run.Name())
		known := s.has[next.run.Name()]
		s.has[next.run.Name()] = true
		s.chat.mu.Unlock()
		if known {
			return
		}
	}
	if next.run == nil && next.work == nil {
		s.chat.mu.Lock()
		delete(s.has, t.run.Name())
		s.chat.mu.Unlock()
		return
	}
	s.runAlongside(func() {
		run := next.run
		if next.work != nil {
			var err error
			if run, err = next.work(s.chat.ctx); err != nil {
				s.retryLater(t, "cannot hand a mention over", err)
				return
			}
		}
		t := pending{run: *run, again: t.again, failed: t.failed, seen: next.seen}
		if err := s.reportRun(s.chat.ctx, t); err != nil {
			s.retryLater(t, "cannot report a run", err)
			return
		}
		s.chat.mu.Lock()
		delete(s.has, run.Name())
		s.chat.mu.Unlock()
	})
}

// runAlongside runs f in a goroutine that the worker waits for.
func (s *worker) runAlongside(f func()) {
	s.chat.mu.Lock()
	s.busy++
	s.chat.mu.Unlock()
	s.runs.Go(func() {
		f()
		s.chat.mu.Lock()
		s.busy--
		s.chat.mu.Unlock()
		s.signal()
	})
}

func (s *worker) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// sessionPause limits the pause before a failed operation is repeated.
const sessionPause = 5 * time.Minute

// endMistake ends the run of a mention if err is lasting. It returns any other error unchanged.
func (s *worker) endMistake(run record.Run, err error) (*record.Run, error) {
	if !route.IsLasting(err) {
		return nil, err
	}
	return s.endRun(s.chat.ctx, run,
		executor.Ending{Reason: record.ReasonBadInput, Error: route.AsProblem(err, route.Local).Error()})
}

// retryLater queues a run again after a pause. The process may run for months, and the cause of an error, such as a
// full disk or a changed token, may be gone in minutes. A lasting error is not retried until the next start.
func (s *worker) retryLater(t pending, what string, err error) {
	if s.chat.ctx.Err() != nil {
		return
	}
	if route.IsLasting(err) {
		s.chat.Log.Error(what+"; it is tried again at the next start", "run", t.run.Name(), "err", err)
		s.chat.mu.Lock()
		delete(s.has, t.run.Name())
		s.chat.mu.Unlock()
		return
	}
	pause := min(s.chat.RetryEvery<<min(t.failed, 20), sessionPause)
	s.chat.Log.Error(what+"; it is tried again", "run", t.run.Name(), "pause", pause, "err", err)
	s.runAlongside(func() {
		if retry.Sleep(s.chat.ctx, pause) != nil {
			return
		}
		s.chat.mu.Lock()
		s.queue = append(s.queue, pending{run: t.run, again: true, failed: t.failed + 1})
		s.chat.mu.Unlock()
	})
}

type sessionState int

const (
	sessionBusy sessionState = iota
	sessionWaits
	sessionIdle
)

// dequeue takes a run from the queue. If it returns sessionIdle, it has removed the worker, so nobody can queue
// another run to it.
func (s *worker) dequeue() (pending, sessionState) {
	s.chat.mu.Lock()
	defer s.chat.mu.Unlock()
	if len(s.queue) > 0 {
		t := s.queue[0]
		s.queue = s.queue[1:]
		return t, sessionBusy
	}
	if s.busy > 0 {
		return pending{}, sessionWaits
	}
	delete(s.chat.sessions, s.of.Key)
	return pending{}, sessionIdle
}

// readEvent returns the mention that asked for a run.
func readEvent(run record.Run) (slack.Mention, error) {
	var m slack.Mention
	if run.Origin == nil {
		return m, fmt.Errorf("%s has no origin", run.Name())
	}
	if err := json.Unmarshal(run.Origin.Event, &m); err != nil {
		return m, fmt.Errorf("cannot read the event of %s: %w", run.Name(), err)
	}
	return m, nil
}

func (c *Chat) readDecision(ctx context.Context, run string) (catalog.Decision, bool) {
	return catalog.ReadDecision(ctx, c.Executor, run)
}

// decide decides on a queued mention and returns the work that is left. It reads the thread, asks the gate and acts on
// the words of the mention.
func (s *worker) decide(ctx context.Context, t pending) (next following, err error) {
	run := t.run
	if now, ok := s.chat.Executor.Find(run.Caller, run.ID); ok {
		run = now
	}
	if run.Told != nil {
		return next, nil
	}
	if run.Kind != record.KindRequest || run.Ended() {
		return following{run: &run}, nil
	}
	m, err := readEvent(run)
	if err != nil {
		return next, err
	}
	thread, err := s.readThread(ctx, m)
	if err != nil {
		var refused *slack.RefusedError
		if ctx.Err() == nil && errors.As(err, &refused) && !refused.OfApp() {
			// The thread can never be read, so no answer can be posted either.
			next.run, err = s.endRun(ctx, run, executor.Ending{Reason: record.ReasonBadInput, Error: err.Error()})
		}
		return next, err
	}
	if m.Bot == "" { // the mention came before Slack had returned the identity of ramus
		me, err := s.chat.Slack.Me(ctx)
		if err != nil {
			return next, err
		}
		m.Bot = me.User
	}
	if ok, err := s.chat.isOwnTeam(ctx, m.Team); err != nil {
		return next, err
	} else if !ok { // the mention came before Slack had returned the workspace of the token
		s.chat.Log.Warn("an event of a workspace that is not configured is ignored", "run", run.Name(), "team", m.Team)
		next.run, err = s.endRun(ctx, run, executor.Ending{Output: map[string]any{"silent": true, outputLeft: true}})
		return next, err
	}
	words, mistake := ParseWords(m.Said())
	liked := s.chat.preferences(ctx, m.Team, m.User)
	at := s.chat.findPlace(ctx, s.of, m.Channel, words, liked)
	d, err := s.notePolicy(ctx, run, m, thread, at)
	if err != nil {
		return next, err
	}
	if d.Runner != gate.RunnerContainer && s.chat.Fallback == nil {
		// ramus must not be noticed, so it sets no reaction either.
		s.chat.Log.Warn("a thread is not let through the gate, and no fallback runner is configured", "run", run.Name(),
			"reason", d.Reason)
		next.run, err = s.endRun(ctx, run, executor.Ending{Output: map[string]any{"runner": string(gate.RunnerFallback),
			"silent": true, outputLeft: true}})
		return next, err
	}
	seen := make(chan struct{})
	next.seen = seen
	s.runAlongside(func() { // deciding need not wait for Slack's rate limit of reactions
		defer close(seen)
		s.react(s.chat.ctx, m, "eyes")
	})
	if d.Runner != gate.RunnerContainer {
		next.work = s.waitForFallback(run, m, thread, d.Policy, seen)
		return next, nil
	}
	if d.Prompt != m.Said() {
		words, mistake = ParseWords(d.Prompt)
		at = s.chat.findPlace(ctx, s.of, m.Channel, words, liked)
	}
	if mistake != nil {
		next.run, err = s.endRun(ctx, run, executor.Ending{Reason: record.ReasonBadInput, Error: mistake.Error()})
		return next, err
	}
	if words.Verb == verbFallback {
		return s.handOver(ctx, run, m, thread, words, at, d, seen)
	}
	next.run, err = s.actOn(ctx, run, m, thread, words, at, d)
	return next, err
}

// notePolicy returns the decision about a mention. The first one is journalled, and is that of every later call.
func (s *worker) notePolicy(ctx context.Context, run record.Run, m slack.Mention, thread slack.Thread,
	at place) (catalog.Decision, error) {
	d, known := s.chat.readDecision(ctx, run.Name())
	if known {
		return d, nil
	}
	d, err := s.resolvePolicy(ctx, run, m, thread, at)
	if err != nil {
		return d, err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return d, err
	}
	s.chat.Log.Info("policy", "run", run.Name(), "session", s.of.Key, "runner", d.Runner, "reason", d.Reason)
	return d, s.chat.Executor.Note(ctx, run.Name(), record.Event{Type: record.EventPolicy,
		Message: string(d.Runner), Reason: string(d.Reason), Data: data})
}

// resolvePolicy returns the decision about a mention. A button uses the decision about the run in whose message it is.
func (s *worker) resolvePolicy(ctx context.Context, run record.Run, m slack.Mention, thread slack.Thread, at place) (catalog.Decision, error) {
	var p pressed
	if err := json.Unmarshal(run.Origin.Event, &p); err != nil {
		return catalog.Decision{}, fmt.Errorf("cannot read the event of %s: %w", run.Name(), err)
	}
	if p.HandOver != "" {
		return s.chat.decide(gate.Policy{Runner: gate.RunnerFallback, Reason: gate.ReasonAgent, Prompt: p.HandOver}), nil
	}
	if p.On != "" {
		d, known := s.chat.readDecision(ctx, p.On)
		if !known {
			return d, fmt.Errorf("cannot read the policy of %s, whose button was pressed", p.On)
		}
		d.Prompt = p.Text
		return d, nil
	}
	// The repository that the thread has worked on takes precedence over one that the text names.
	d := s.chat.decide(s.chat.gate().Resolve(gate.Asked{ThreadStarter: threadStarter(thread), Requester: m.User,
		Text:    m.Said(),
		Channel: m.Channel, Repo: cmp.Or(at.home, at.repo), Session: s.of.Key}))
	d.Starter = threadStarter(thread)
	return d, nil
}

// decide returns the decision of a policy, with the tools that it leaves to the run of a mention.
func (c *Chat) decide(p gate.Policy) catalog.Decision {
	return catalog.Decide(p, catalog.Offer{Browser: c.Executor.Browser != nil, Comments: true, Fallback: c.Fallback != nil,
		Thread: true, Channels: c.PostChannels})
}

// readThread reads the conversation. A thread that a slash command began has no message of a person. Its first message
// is a message of ramus.
func (s *worker) readThread(ctx context.Context, m slack.Mention) (slack.Thread, error) {
	return s.chat.Slack.Thread(ctx, m.Team, m.Channel, m.ThreadTS)
}

// slashPart is the part of the message with which a slash command began a thread. The key of its mark is the user.
const slashPart = "slash"

// threadStarter returns the user who began a thread. Returns "" if that was ramus itself or another app.
func threadStarter(t slack.Thread) string {
	if t.Parent.Own {
		if mark := t.Parent.Mark; mark != nil && mark.Part == slashPart {
			return mark.Key
		}
		return ""
	}
	if t.Parent.Bot {
		return "" // any app can choose its own name, so the name identifies nobody
	}
	return t.Parent.User
}

// outputLeft is the output key of a run that ended without any work for its mention.
const outputLeft = "left"

// sendToFallback hands a thread over to the fallback runner.
func (s *worker) sendToFallback(ctx context.Context, run record.Run, m slack.Mention, thread slack.Thread, p gate.Policy) (*record.Run, error) {
	output := map[string]any{"runner": string(gate.RunnerFallback)}
	tools, err := json.Marshal([]catalog.Tool{catalog.FallbackSession})
	if err != nil {
		return nil, err
	}
	answer, err := s.chat.Fallback.Send(ctx, redact.Clean(s.chat.Executor.Secrets,
		fallback.Packet{Session: s.of.Key, Key: m.Key(), Mention: m, Text: p.Prompt, Thread: threadBefore(thread, m.TS),
			Tools: tools}))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return s.endRun(ctx, run, executor.Ending{Reason: record.ReasonUnavailable, Error: err.Error(), Output: output})
	}
	output["text"], output["silent"] = answer.Text, answer.Accepted || answer.Text == ""
	return s.endRun(ctx, run, executor.Ending{Output: output})
}

// threadBefore returns a thread as it was when the message ts was posted. Later messages are left out, so a late
// hand-over sends the same thread.
func threadBefore(t slack.Thread, ts string) slack.Thread {
	var replies []slack.Post
	for _, p := range t.Replies {
		if p.TS <= ts {
			replies = append(replies, p)
		}
	}
	t.Replies = replies
	return t
}

// endRun ends a mention without running anything. The answer is reported like the result of a run.
func (s *worker) endRun(ctx context.Context, run record.Run, e executor.Ending) (*record.Run, error) {
	run, err := s.chat.Executor.End(ctx, run.Name(), e)
	if err != nil {
		return nil, err
	}
	return &run, nil
}

// endWithText ends a mention with a text.
func (s *worker) endWithText(ctx context.Context, run record.Run, text, code string) (*record.Run, error) {
	return s.endRun(ctx, run, executor.Ending{Output: map[string]any{"text": text, "code": code}})
}

// beginRun begins the work of the mention's run. If the claim is in another repository than the work, the work gets a
// run of its own, and the claim points to that run.
func (s *worker) beginRun(ctx context.Context, run record.Run, at place, asked record.Request) (*record.Run, error) {
	if at.repo != run.Repo {
		work, err := s.moveClaim(ctx, run, at, asked.Asker)
		if err != nil {
			return s.endMistake(run, err)
		}
		run = work
	}
	asked.Base = at.base
	begun, err := s.chat.Executor.Begin(ctx, run.Name(), asked)
	if err != nil {
		if p := route.AsProblem(err, route.Local); p.Status < 500 {
			return s.endRun(ctx, run, executor.Ending{Reason: record.ReasonBadInput, Error: p.Error()})
		}
		return nil, err
	}
	return &begun, nil
}

// moveClaim claims the mention again in the repository of its work, copies the policy and ends the first claim. It can
// be repeated after an interruption at any point.
func (s *worker) moveClaim(ctx context.Context, run record.Run, at place, by gitd.Person) (record.Run, error) {
	work, _, err := s.chat.Executor.Claim(ctx,
		record.Request{Key: lookup.DerivedRunID(run.ID, "-work"), Caller: run.Caller, Repo: at.repo, Base: at.base,
			Asker: by, Origin: run.Origin})
	if err != nil {
		return work, err
	}
	if _, known := s.chat.readDecision(ctx, work.Name()); !known {
		d, _ := s.chat.readDecision(ctx, run.Name())
		data, err := json.Marshal(d)
		if err != nil {
			return work, err
		}
		err = s.chat.Executor.Note(ctx, work.Name(),
			record.Event{Type: record.EventPolicy, Message: string(d.Runner), Reason: string(d.Reason), Data: data})
		if err != nil && !errors.Is(err, record.ErrConflict) {
			return work, err
		}
	}
	if _, err := s.chat.Executor.End(ctx, run.Name(),
		executor.Ending{Output: map[string]any{"run": work.Name(), "silent": true}}); err != nil {
		return work, err
	}
	return work, s.chat.Executor.Tell(ctx, run.Name(), nil)
}

// actOn does the work that the words of a mention ask for.
func (s *worker) actOn(ctx context.Context, run record.Run, m slack.Mention, thread slack.Thread, words Words, at place, d catalog.Decision) (*record.Run, error) {
	who, err := s.chat.person(ctx, m.User, userName(thread, m.User))
	if err != nil {
		return nil, err
	}
	if deed, does := deedOf(words.Verb); does {
		doing := gate.Doing{Deed: deed, Person: m.User, Starter: s.chat.starterOf(d, m.User, m.Channel), Repo: at.repo,
			Own: at.repo == at.unnamed}
		switch words.Verb {
		case "merge", "pr", "stop", "retry": // these act on the branch of the thread, even if another repository is named
			doing.Repo, doing.Own = cmp.Or(at.home, at.unnamed), true
		}
		if why := s.chat.refusal(doing); why != "" && doing.Repo != "" {
			return s.endWithText(ctx, run, why, "")
		}
	}
	switch words.Verb {
	case "help":
		return s.endWithText(ctx, run, HelpText(s.chat.Executor.AgentNames(), gate.RunnerContainer), "")
	case "connect", "disconnect":
		return s.endWithText(ctx, run, "Type `/ramus "+words.Verb+"`: only you see the answer.", "")
	case "status", "log", "diff", "why", "stop", "merge", "pr":
		text, code, err := s.answerFrom(ctx, words, run, who, identity(m.Team, m.User))
		if err != nil {
			if p := route.AsProblem(err, route.Local); p.Status < 500 {
				return s.endRun(ctx, run, executor.Ending{Reason: record.ReasonBadInput, Error: p.Error()})
			}
			return nil, err
		}
		return s.endWithText(ctx, run, text, code)
	}
	if lookup.IsCallerBranch(words.Base) {
		return s.endRun(ctx, run, executor.Ending{Reason: record.ReasonBadInput,
			Error: fmt.Sprintf("%s is a branch that callers work on, and no base.", words.Base)})
	}
	if at.repo == "" {
		usable := s.usableRepos(ctx, d, m)
		if len(usable) == 0 && len(s.chat.listRepos(ctx)) > 0 {
			return s.endWithText(ctx, run,
				"You may not use any of the repositories here (`gate.people` in the server's configuration says who may).", "")
		}
		return s.endRun(ctx, run, executor.Ending{Output: map[string]any{"ask": usable}})
	}
	if at.home != "" && at.repo != at.home {
		return s.endRun(ctx, run, executor.Ending{Reason: record.ReasonBadInput,
			Error: fmt.Sprintf("This thread works on %s; begin a new thread for %s.", at.home, at.repo)})
	}
	permit := s.permitRun(d, m, at.repo == at.unnamed)
	asked := record.Request{Asker: who, Permit: permit}
	switch words.Verb {
	case "run":
		asked.File, asked.Input = workflowFile(words.Workflow), words.Input
	case "exec":
		asked.Command = &record.Command{Shell: words.Command}
	case "test", "lint", "build":
		asked.Task = taskCall(words)
	case "retry":
		last, ok := s.lastFailed()
		if !ok {
			return s.endWithText(ctx, run, "Nothing in this thread has failed, so there is nothing to run again.", "")
		}
		again, err := s.chat.Executor.Again(ctx, last.Name(), who)
		if err != nil {
			return s.endRun(ctx, run,
				executor.Ending{Reason: record.ReasonBadInput, Error: route.AsProblem(err, route.Local).Error()})
		}
		asked = again
		asked.Asker, asked.Permit = who, permit
	default:
		return s.sendPrompt(ctx, run, m, thread, words, at, asked)
	}
	return s.beginRun(ctx, run, at, asked)
}

// sendPrompt gives plain words to the agent that is at work, or starts a new run of an agent.
func (s *worker) sendPrompt(ctx context.Context, run record.Run, m slack.Mention, thread slack.Thread, words Words, at place, asked record.Request) (*record.Run, error) {
	agents := s.chat.Executor.AgentNames()
	if at.agent == "" && len(agents) == 1 {
		at.agent = agents[0]
	}
	switch {
	case len(agents) == 0:
		return s.endRun(ctx, run, executor.Ending{Reason: record.ReasonBadInput,
			Error: "No agent is configured here, so nobody reads plain words. `help` lists the commands that need none."})
	case at.agent == "":
		return s.endRun(ctx, run, executor.Ending{Reason: record.ReasonBadInput,
			Error: fmt.Sprintf("Say which agent is meant: agent:%s.", agents[0])})
	}
	text := words.Text
	if handed, err := s.sayToPull(ctx, run, m, thread, text, asked.Asker); handed != nil || err != nil {
		return handed, err
	}
	files, skipped := s.downloadFiles(ctx, m, thread)
	for _, live := range s.listAgents(run) {
		err := s.chat.Executor.Prompts.Say(ctx, live.Name(),
			record.Prompt{Key: run.ID, Text: text, By: asked.Asker, Files: files, From: slackSource})
		if err == nil {
			return s.endRun(ctx, run, executor.Ending{Output: map[string]any{"run": live.Name(),
				"text": fmt.Sprintf("Handed on: the agent reads it at its next turn (%s).", live.Name())}})
		}
		if !errors.Is(err, record.ErrConflict) {
			return s.endMistake(run, err)
		}
	}
	asked.Agent = &record.AgentCall{Name: at.agent, Prompt: agentPrompt(thread, m, text, skipped), Files: files}
	return s.beginRun(ctx, run, at, asked)
}

// downloadFiles downloads the files that are attached to the mention and to the first message of the thread. It stops
// at maxFiles and maxFileBytes. skipped names the files that were not downloaded.
func (s *worker) downloadFiles(ctx context.Context, m slack.Mention, thread slack.Thread) (files []record.Attachment, skipped []string) {
	left := int64(maxFileBytes)
	taken := map[string]bool{}
	for _, p := range append([]slack.Post{thread.Parent}, thread.Replies...) {
		if p.TS != m.TS && p.TS != thread.TS || p.Own {
			continue
		}
		for _, f := range p.Files {
			if taken[f.ID] {
				continue
			}
			taken[f.ID] = true
			if len(files) == maxFiles || f.Size > left {
				skipped = append(skipped, f.Name)
				continue
			}
			body, err := s.chat.Slack.Download(ctx, f, left)
			if err != nil {
				s.chat.Log.Warn("cannot download a file that was shared", "session", s.of.Key, "file", f.ID, "err", err)
				skipped = append(skipped, f.Name)
				continue
			}
			left -= int64(len(body))
			files = append(files, record.Attachment{Name: f.Name, Type: http.DetectContentType(body),
				Content: body}) // the type comes from the content, not the author
		}
	}
	return files, skipped
}

// userName returns the name of a user in a thread. Returns the id of the user if the thread has no name.
func userName(t slack.Thread, user string) string {
	for _, p := range append(t.Replies, t.Parent) {
		if p.User == user && p.Name != "" {
			return p.Name
		}
	}
	return user
}

// listAgents returns the runs of agents in the thread that may have received, or can still receive, the words of a
// mention, the latest first. A run that has ended meanwhile may have received the words in an earlier process.
func (s *worker) listAgents(asked record.Run) []record.Run {
	var list []record.Run
	for _, r := range slices.Backward(s.chat.Executor.OfCaller(s.caller)) {
		if r.Kind == record.KindAgent && (!r.Ended() || r.EndedAt.After(asked.CreatedAt)) {
			list = append(list, r)
		}
	}
	return list
}

// lastFailed returns the latest ended run of the thread. Returns false if there is none or it did not fail.
func (s *worker) lastFailed() (record.Run, bool) {
	runs := s.chat.Executor.OfCaller(s.caller)
	for i := len(runs) - 1; i >= 0; i-- {
		if r := runs[i]; !r.Aside() && r.Ended() {
			return r, r.State == record.StateFailed
		}
	}
	return record.Run{}, false
}

// soon limits the time of cosmetic work. A reaction that cannot be set delays nothing.
const soon = 20 * time.Second

func (s *worker) react(ctx context.Context, m slack.Mention, name string) {
	if m.Slash {
		return // a slash command has no message to react to
	}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if err := s.chat.Slack.React(ctx, m.Channel, m.TS, name); err != nil && s.chat.ctx.Err() == nil {
		s.chat.Log.Warn("cannot react to a mention", "session", s.of.Key, "err", err)
	}
}

func (s *worker) unreact(ctx context.Context, m slack.Mention, name string) {
	if m.Slash {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if err := s.chat.Slack.Unreact(ctx, m.Channel, m.TS, name); err != nil && s.chat.ctx.Err() == nil {
		s.chat.Log.Warn("cannot take a reaction back", "session", s.of.Key, "err", err)
	}
}
