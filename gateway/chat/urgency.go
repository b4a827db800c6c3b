package chat

import (
	"context"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gateway/render"
	"github.com/ramus-dev/ramus/gateway/slack"
)

// partAsks is the part of the messages that mention people because a run waits for them. The number of the question
// follows.
const partAsks = "asks"

// maxAsked bounds how many people one question mentions.
const maxAsked = 5

// addressed returns the result with a mention of the person who asked, if the person has to look at it.
func (r *reporter) addressed(ctx context.Context, msg slack.Message) slack.Message {
	if r.run.Kind == record.KindRequest || r.run.Reason == record.ReasonCancelled {
		return msg // the person is there
	}
	switch p := r.worker.chat.preferences(ctx, r.m.Team, r.m.User); {
	case p.Notify == NotifyNever, r.run.State != record.StateFailed && p.Notify != NotifyAlways:
		return msg
	}
	return render.Notice(msg, r.m.User)
}

// askPeople posts a message for the present question of the run, which mentions those who have to answer. The edited
// progress message has the question too, but an edit notifies nobody.
func (r *reporter) askPeople(ctx context.Context) error {
	gate := r.run.Gate
	if gate == nil || r.gates <= r.asked {
		return nil
	}
	r.asked = r.gates
	var users []string
	for _, user := range r.asks(gate.Allowed) {
		if r.worker.chat.preferences(ctx, r.m.Team, user).Notify != NotifyNever {
			users = append(users, user)
		}
	}
	if len(users) == 0 {
		return nil
	}
	msg := r.address(render.Notice(render.Asks(gate.Message), users...), fmt.Sprintf("%s-%d", partAsks, r.gates))
	_, err := r.worker.chat.Slack.Post(ctx, msg, true)
	if refusedHere(err) {
		r.worker.chat.Log.Warn("cannot tell people of a question", "run", r.run.Name(), "err", err)
		return nil
	}
	return err
}

// asks returns the users that a question mentions. These are the ones that it names, or otherwise the person who asked
// for the run.
func (r *reporter) asks(allowed []string) []string {
	var users []string
	for _, name := range allowed {
		id, isSlack := strings.CutPrefix(name, "slack:")
		if (isSlack || strings.HasPrefix(id, "U")) && slack.IsID(id) && len(users) < maxAsked {
			users = append(users, id)
		}
	}
	if len(users) == 0 && len(allowed) == 0 {
		return []string{r.m.User}
	}
	return users
}
