package chat

import (
	"cmp"
	"context"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/catalog"
	"github.com/ramus-dev/ramus/gateway/gate"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// verbFallback is the command that hands a thread which the gate admits over to the fallback runner.
const verbFallback = "fallback"

// handOver hands a thread over to the fallback runner at the request of a person. Without words of the person the
// request is the first message of the thread.
func (s *worker) handOver(ctx context.Context, run record.Run, m slack.Mention, thread slack.Thread, words Words, at place, d catalog.Decision, seen <-chan struct{}) (next following, err error) {
	next.seen = seen
	first := ""
	if thread.Parent.TS != m.TS {
		first = thread.Parent.Text
	}
	prompt := cmp.Or(words.Text, first)
	why := s.chat.refusal(gate.Doing{Deed: gate.DeedRun, Person: m.User,
		Starter: s.chat.starterOf(d, m.User, m.Channel), Repo: cmp.Or(at.home, at.unnamed), Own: true})
	switch {
	case s.chat.Fallback == nil:
		why = "No fallback runner is configured here (`fallback` in the server's configuration)."
	case why == "" && prompt == "":
		why = "Say what the fallback runner is to do: `fallback: WORDS`."
	}
	if why != "" {
		next.run, err = s.endWithText(ctx, run, why, "")
		return next, err
	}
	next.work = s.waitForFallback(run, m, thread,
		gate.Policy{Runner: gate.RunnerFallback, Reason: gate.ReasonPerson, Prompt: prompt}, seen)
	return next, nil
}

// waitForFallback returns the work of a hand-over. A fallback runner that is slow or down must not delay other mentions
// of the thread.
func (s *worker) waitForFallback(run record.Run, m slack.Mention, thread slack.Thread, p gate.Policy, seen <-chan struct{}) func(context.Context) (*record.Run, error) {
	return func(ctx context.Context) (*record.Run, error) {
		select {
		case s.chat.hands <- struct{}{}:
			defer func() { <-s.chat.hands }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		ended, err := s.sendToFallback(ctx, run, m, thread, p)
		<-seen
		return ended, err
	}
}
