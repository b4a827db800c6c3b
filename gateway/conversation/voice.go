package conversation

import (
	"context"
	"encoding/json"

	"github.com/ramus-dev/ramus/executor/acp"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
)

// Place is a place in a run. A reader that is there has all events up to Seq, and the words of the turn that began with Words.Seq up to
// the byte Words.To.
type Place struct {
	Run   string      `json:"run"`
	Seq   int64       `json:"seq"`
	Words record.Span `json:"words"`
}

// update is one session/update of the Agent Client Protocol.
type update struct {
	place Place
	raw   map[string]any
}

// voice makes updates of the Agent Client Protocol of the events of a run. Its zero value begins at the run's first event.
type voice struct {
	x     Journals
	at    Place
	step  string // the turn that works or worked last
	queue record.Queue
	heard int
}

// newVoice returns a voice at a place, whose events up to there it reads without a word.
func newVoice(ctx context.Context, x Journals, r record.Run, from Place) (*voice, error) {
	v := &voice{x: x, at: Place{Run: r.Name()}}
	if r.Agent != nil {
		v.queue = r.Queue(nil)
	}
	if from.Seq == 0 {
		return v, nil
	}
	for e, err := range x.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		if e.Seq > from.Seq {
			break
		}
		v.queue.Apply(e)
		v.began(e)
		v.at.Seq = e.Seq
	}
	if from.Words.Seq == v.at.Words.Seq {
		v.at.Words.To = max(from.Words.To, 0)
	}
	v.heard = v.queue.Heard
	return v, nil
}

// began takes the beginning of a turn.
func (v *voice) began(e record.Event) {
	if e.Type == record.EventStepStarted && e.Kind == string(record.KindAgent) {
		v.step, v.at.Words = e.Step, record.Span{Seq: e.Seq}
	}
}

// hear returns the updates of an event. It reads the words that nobody has heard.
func (v *voice) hear(ctx context.Context, e record.Event) (list []update, err error) {
	if e.Type == record.EventOutput {
		if e.Kind != "stdout" || e.Span == nil || e.Span.Seq != v.at.Words.Seq || e.Span.To <= v.at.Words.To {
			return nil, nil
		}
		if list, err = v.upto(ctx, e.Span.From); err != nil {
			return nil, err
		}
		words := e.Message
		if skip := v.at.Words.To - e.Span.From; skip > 0 && int64(len(words)) == e.Span.To-e.Span.From {
			words = words[skip:]
		}
		if int64(len(words)) != e.Span.To-v.at.Words.To { // it came by way of JSON
			more, err := v.upto(ctx, e.Span.To)
			return append(list, more...), err
		}
		return append(list, v.sayWords(words)), nil
	}
	if e.Seq <= v.at.Seq {
		return nil, nil
	}
	if e.Words > v.at.Words.To && v.at.Words.Seq > 0 {
		if list, err = v.upto(ctx, e.Words); err != nil {
			return nil, err
		}
	}
	v.at.Seq = e.Seq
	v.queue.Apply(e)
	v.began(e)
	for ; v.heard < v.queue.Heard; v.heard++ {
		p := v.queue.Prompts[v.heard]
		list = append(list, v.update(map[string]any{"sessionUpdate": acp.UpdateUser, "content": block(p.Text)},
			map[string]any{"key": p.Key, "by": p.By, "from": p.From}))
	}
	if raw := updateOf(e); raw != nil {
		list = append(list, v.update(raw, nil))
	}
	return list, nil
}

// upto reads the words up to a byte.
func (v *voice) upto(ctx context.Context, to int64) (list []update, err error) {
	for v.at.Words.To < to {
		part := min(to, v.at.Words.To+64<<10)
		words, err := v.x.Words(ctx, v.at.Run, v.step, v.at.Words.Seq, v.at.Words.To, part)
		if err != nil {
			return nil, err
		}
		if len(words) == 0 {
			v.at.Words.To = to // the rest was not kept
			return list, nil
		}
		list = append(list, v.sayWords(string(words)))
	}
	return list, nil
}

// sayWords returns the update of words that follow those that were heard.
func (v *voice) sayWords(words string) update {
	v.at.Words.From = v.at.Words.To
	v.at.Words.To += int64(len(words))
	return v.update(map[string]any{"sessionUpdate": acp.UpdateMessage, "content": block(words)}, nil)
}

// update returns an update with its place, and with more that is not of the protocol.
func (v *voice) update(raw map[string]any, more map[string]any) update {
	meta := map[string]any{"run": v.at.Run, "seq": v.at.Seq, "words": v.at.Words}
	for k, value := range more {
		meta[k] = value
	}
	raw["_meta"] = map[string]any{"ramus": meta}
	return update{v.at, raw}
}

func block(text string) map[string]any { return map[string]any{"type": "text", "text": text} }

// updateOf returns the update that an event of an agent holds, or nil.
func updateOf(e record.Event) map[string]any {
	if e.Type != record.EventAgent {
		return nil
	}
	switch e.Kind {
	case agent.KindSession, agent.KindStop, agent.KindLimit, agent.KindPermission, agent.KindPrompt:
		return nil
	case agent.KindThought:
		return map[string]any{"sessionUpdate": acp.UpdateThought, "content": block(e.Message)}
	}
	raw := map[string]any{}
	if json.Unmarshal(e.Data, &raw) != nil || raw == nil {
		return nil // it was too large to be kept
	}
	raw["sessionUpdate"] = e.Kind
	return raw
}
