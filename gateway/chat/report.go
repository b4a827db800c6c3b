package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// The parts of messages. Each run has at most one message of each part.
const (
	partProgress = "progress" // edited in place while the run works
	partResult   = "result"   // the result of the run
)

// posted is the data of a message event. It is also the data with which the end of a report is recorded.
type posted struct {
	Channel string `json:"channel"`
	TS      string `json:"ts"`
	Part    string `json:"part"`
}

// reportRun follows a run to its end and keeps its progress message up to date. It posts the result and records that
// the result is posted. All of it can be repeated.
func (s *worker) reportRun(ctx context.Context, t pending) error {
	m, err := readEvent(t.run)
	if err != nil {
		return err
	}
	r := &reporter{worker: s, run: t.run, m: m, searchFirst: t.again, seen: t.seen}
	d, _ := s.chat.readDecision(ctx, t.run.Name())
	r.policy = d.Policy
	if t.run.Kind != record.KindRequest {
		if err := r.follow(ctx); err != nil {
			return err
		}
	}
	return r.finish(ctx)
}

// reporter holds the state of the report of one run.
type reporter struct {
	worker      *worker
	run         record.Run
	m           slack.Mention
	policy      gate.Policy
	searchFirst bool // an earlier process may have posted the message
	seen        <-chan struct{}

	ts      string // of the progress message
	step    string
	steps   int
	gates   int    // questions of the run so far
	asked   int    // the last of them that a person was told of
	says    string // the last output of the agent
	output  string // of a single command, or of the last failed step
	changed bool   // since the last edit
	edited  time.Time
	mute    bool // Slack refuses the progress message

	evidence *record.Manifest // of the run; nil until the run has ended and for a request
}

func (r *reporter) mark(part string) slack.Mark {
	return slack.Mark{Run: r.run.Name(), Key: r.run.Origin.Key, Part: part}
}

// address sets the channel, thread and mark of a message.
func (r *reporter) address(msg slack.Message, part string) slack.Message {
	msg.Channel, msg.ThreadTS, msg.Mark = r.m.Channel, r.m.ThreadTS, r.mark(part)
	return msg
}

// refresh is how often a message without news is edited, so that the time in it stays up to date.
const refresh = 15 * time.Second

// follow shows the progress of the run until the run has ended.
func (r *reporter) follow(ctx context.Context) error {
	for {
		if err := r.watch(ctx); err != nil {
			return err
		}
		run, err := r.worker.chat.Executor.Settled(ctx, r.run.Caller, r.run.ID)
		if err != nil {
			return err
		}
		r.run = run
		if run.Ended() {
			return nil
		}
		if run.State != record.StateAwaitingReview {
			return fmt.Errorf("cannot follow %s: %w", run.Name(), record.ErrClosed)
		}
		if err := r.show(ctx); err != nil {
			return err
		}
		if err := r.awaitDecision(ctx); err != nil {
			return err
		}
	}
}

// awaitDecision returns when the run no longer waits for a review. It does not matter how the decision was made.
func (r *reporter) awaitDecision(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	happened := make(chan struct{}, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for e, err := range r.worker.chat.Executor.Watch(ctx, r.run.Caller.String()) {
			if err != nil {
				return
			}
			if e.Run == r.run.Name() && e.Type != record.EventOutput {
				select {
				case happened <- struct{}{}:
				default:
				}
			}
		}
	}()
	defer func() { cancel(); <-watched }()
	// Watch does not report when it has begun. Find sees a decision that was made before.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		run, ok := r.worker.chat.Executor.Find(r.run.Caller, r.run.ID)
		if !ok || run.State != record.StateAwaitingReview {
			return nil
		}
		select {
		case <-happened:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watch handles the events of the run until the executor ends the stream.
func (r *reporter) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	events, ended := make(chan record.Event), make(chan error, 1)
	name := r.run.Name() // show replaces the run
	go func() {
		defer close(events)
		for e, err := range r.worker.chat.Executor.Events(ctx, name, 0, true) {
			if err != nil {
				ended <- err
				return
			}
			if e.Type == record.EventOutput {
				continue
			}
			select {
			case events <- e:
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				return
			}
		}
		ended <- nil
	}()
	defer func() {
		cancel()
		for range events { // until the goroutine has returned
		}
	}()
	r.step, r.steps, r.gates, r.changed = "", 0, 0, true
	caughtUp := time.NewTimer(50 * time.Millisecond) // journalled events arrive at once, so one message shows all of them
	defer caughtUp.Stop()
	due := caughtUp.C
	for {
		select {
		case e, more := <-events:
			if !more {
				return <-ended
			}
			shown := !r.changed
			if r.noteEvent(e); shown && r.changed {
				due = time.After(max(0, r.worker.chat.EditEvery-r.worker.chat.Now().Sub(r.edited)))
			}
		case <-due:
			if err := r.show(ctx); err != nil {
				return err
			}
			due = time.After(max(refresh, r.worker.chat.EditEvery))
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// noteEvent records the effect of an event on the progress message.
func (r *reporter) noteEvent(e record.Event) {
	switch e.Type {
	case record.EventGate:
		r.gates++
	case record.EventStepStarted:
		r.step = cmp.Or(e.Node, e.Task, e.Command, e.Step)
	case record.EventStepFinished:
		r.step, r.steps = "", r.steps+1
		r.keepOutput(e)
	case record.EventMessage:
		var p posted
		if json.Unmarshal(e.Data, &p) == nil && p.Part == partProgress {
			r.ts = p.TS
		}
		return
	case record.EventQueued, record.EventRunState, record.EventDecision, record.EventPrompt, record.EventCheck:
	default:
		return
	}
	r.changed = true
}

// keepOutput keeps the output of a step, so that the result can quote it.
func (r *reporter) keepOutput(e record.Event) {
	var printed string
	for _, s := range []*record.Stream{e.Stdout, e.Stderr} {
		if s != nil {
			printed += s.Tail
		}
	}
	switch {
	case e.Kind == string(record.KindAgent):
		r.says = printed
	case r.run.Kind == record.KindExec, e.OK != nil && !*e.OK:
		r.output = printed
	}
}

// show posts or edits the progress message.
func (r *reporter) show(ctx context.Context) error {
	if run, ok := r.worker.chat.Executor.Find(r.run.Caller, r.run.ID); ok {
		r.run = run
	}
	r.changed = false
	if err := r.askPeople(ctx); err != nil {
		return err
	}
	if r.mute {
		return nil
	}
	since := r.run.StartedAt
	if since.IsZero() {
		since = r.run.CreatedAt
	}
	msg := r.address(render.Progress(render.Standing{Run: r.run, Policy: r.policy, Step: r.step, Steps: r.steps,
		Since: since, Now: r.worker.chat.Now(),
		Base: r.run.BaseRefreshed, Link: r.page()}), partProgress)
	r.edited = r.worker.chat.Now()
	if r.ts != "" {
		err := r.worker.chat.Slack.Update(ctx, msg, r.ts)
		if err != nil && errors.Is(err, slack.ErrRefused) {
			r.worker.chat.Log.Warn("cannot edit a progress message", "run", r.run.Name(), "err", err)
			return nil // somebody deleted the message; only the result is essential
		}
		return err
	}
	ts, err := r.worker.chat.Slack.Post(ctx, msg, r.searchFirst)
	if refusedHere(err) {
		r.worker.chat.Log.Warn("cannot post a progress message", "run", r.run.Name(), "err", err)
		r.mute = true // the run continues, and posting the result is tried too
		return nil
	}
	if err != nil {
		return err
	}
	r.ts = ts
	data, err := json.Marshal(posted{r.m.Channel, ts, partProgress})
	if err != nil {
		return err
	}
	err = r.worker.chat.Executor.Note(ctx, r.run.Name(),
		record.Event{Type: record.EventMessage, Message: partProgress, Data: data})
	if errors.Is(err, record.ErrConflict) {
		return nil // the run has ended meanwhile; the message can be found by its mark
	}
	return err
}

func (c *Chat) evidenceLink(run record.Run) string {
	if c.Links == nil {
		return ""
	}
	return c.Links.Run(run)
}

func (r *reporter) page() string { return r.worker.chat.evidenceLink(r.run) }

// public returns the URL at which people reach the server. It is empty if the URL is not known.
func (r *reporter) public() string {
	if r.worker.chat.Links == nil {
		return ""
	}
	return strings.TrimSuffix(r.worker.chat.Links.URL, "/")
}

// clone returns the clone URL of the run's repository. It is empty if the URL of the server is not known.
func (r *reporter) clone() string {
	if r.public() == "" {
		return ""
	}
	return r.public() + "/" + r.run.Repo + ".git"
}

// finish posts the result of the run and records that the result is posted.
func (r *reporter) finish(ctx context.Context) error {
	run, err := r.worker.chat.Executor.Settled(ctx, r.run.Caller, r.run.ID)
	if err != nil {
		return err
	}
	r.run = run
	if run.Told != nil {
		return nil
	}
	msg, silent, err := r.result(ctx)
	if err != nil {
		return err
	}
	told := posted{Channel: r.m.Channel, Part: partResult}
	if !silent {
		msg = r.addressed(ctx, msg)
		told.TS, err = r.worker.chat.Slack.Post(ctx, r.address(msg, partResult), r.searchFirst)
		if refusedHere(err) && len(msg.Blocks) > 0 {
			// If Slack refuses the message for its blocks, the text alone is still an answer.
			r.worker.chat.Log.Error("Slack refuses a result; its text is posted alone", "run", run.Name(), "err", err)
			msg.Blocks = nil
			told.TS, err = r.worker.chat.Slack.Post(ctx, r.address(msg, partResult), r.searchFirst)
		}
		if err != nil && !refusedHere(err) {
			return err
		}
		if err != nil {
			// The result can never be posted, because the channel is deleted or archived.
			r.worker.chat.Log.Error("cannot post a result", "run", run.Name(), "err", err)
		}
	}
	_, elsewhere := run.Output["run"]
	if left, _ := run.Output[outputLeft].(bool); !left && !(silent && elsewhere) {
		r.tidy(ctx)
	}
	if told.TS != "" {
		if err := r.showPictures(ctx); err != nil {
			return err
		}
	}
	data, err := json.Marshal(told)
	if err != nil {
		return err
	}
	return r.worker.chat.Executor.Tell(ctx, run.Name(), data)
}

// refusedHere reports whether Slack refuses a message because of its content or its target. An error of the app's
// token is not such a refusal, because the token can be replaced.
func refusedHere(err error) bool {
	var refused *slack.RefusedError
	return errors.As(err, &refused) && !refused.OfApp()
}

// result returns the message that shows the result of a run. silent is true if nothing is to be posted. A request that
// was answered without a run has no evidence, so its message is only the answer.
func (r *reporter) result(ctx context.Context) (msg slack.Message, silent bool, err error) {
	if r.run.Kind != record.KindRequest {
		m, err := r.worker.chat.Executor.Manifest(ctx, r.run.Name())
		if err != nil {
			return msg, false, err
		}
		r.evidence = &m
		var file func(string) string
		if r.worker.chat.Links != nil {
			file = func(name string) string { return r.worker.chat.Links.File(r.run, name) }
		}
		return render.Result{Manifest: m, Policy: r.policy, Page: r.page(), Links: file, Clone: r.clone(),
			Output: r.output, Says: r.says,
			Propose: r.worker.chat.proposes(r.run.Repo)}.Message(), false, nil
	}
	out := r.run.Output
	if silent, _ := out["silent"].(bool); silent {
		return msg, true, nil
	}
	switch {
	case r.run.Reason == record.ReasonCancelled:
		return render.Text("🛑 Stopped.", ""), false, nil
	case r.run.State == record.StateFailed:
		return render.Text("⚠️ "+r.run.Error, ""), false, nil
	case out["ask"] != nil:
		return render.Ask(r.run.Name(), texts(out["ask"])), false, nil
	}
	text, _ := out["text"].(string)
	code, _ := out["code"].(string)
	return render.Answer{Text: text, Code: code, Own: r.public()}.Message(), false, nil
}

// texts returns a list of strings that may have been decoded from JSON.
func texts(v any) []string {
	switch v := v.(type) {
	case []string:
		return v
	case []any:
		var list []string
		for _, e := range v {
			if s, ok := e.(string); ok {
				list = append(list, s)
			}
		}
		return list
	}
	return nil
}

// tidy updates the progress message and the reaction on the mention. Each of these is given up after a short time,
// because they only affect how the thread looks.
func (r *reporter) tidy(ctx context.Context) {
	if r.run.Kind != record.KindRequest {
		tctx, cancel := context.WithTimeout(ctx, soon)
		if err := r.last(tctx); err != nil && ctx.Err() == nil {
			r.worker.chat.Log.Warn("cannot bring a progress message up to date", "run", r.run.Name(), "err", err)
		}
		cancel()
	}
	if r.seen != nil {
		<-r.seen
	}
	mark := "white_check_mark"
	if r.run.State == record.StateFailed {
		mark = "x"
	}
	r.worker.react(ctx, r.m, mark)
	r.worker.unreact(ctx, r.m, "eyes")
}

// last edits the progress message for the last time.
func (r *reporter) last(ctx context.Context) error {
	if r.ts == "" {
		ts, found, err := r.worker.chat.Slack.Find(ctx, r.m.Channel, r.m.ThreadTS, r.mark(partProgress))
		if err != nil || !found {
			return err
		}
		r.ts = ts
	}
	r.step = ""
	return r.worker.chat.Slack.Update(ctx,
		r.address(render.Progress(render.Standing{Run: r.run, Policy: r.policy, Steps: r.steps, Since: r.run.StartedAt,
			Now: r.run.EndedAt, Base: r.run.BaseRefreshed, Link: r.page()}), partProgress), r.ts)
}
