package record

import (
	"encoding/json"
	"slices"
)

// FirstPrompt is the key of the prompt that a run was asked with.
const FirstPrompt = "0"

// Prompt returns the prompt that an [EventPrompt] holds. ok is false for other events.
func (e Event) Prompt() (p Prompt, ok bool) {
	return p, e.Type == EventPrompt && json.Unmarshal(e.Data, &p) == nil
}

// PromptsHeard returns how many of a run's prompts the agent has got with the turn that e begins. Returns 0 if e begins none.
func (e Event) PromptsHeard() int {
	var s struct {
		Prompts int `json:"prompts"`
	}
	if e.Type != EventStepStarted || e.Kind != string(KindAgent) || json.Unmarshal(e.Data, &s) != nil {
		return 0
	}
	return s.Prompts
}

// Queue has the prompts of a run's agent, in the order in which the agent gets them. The first Heard of them it has got.
type Queue struct {
	Prompts []Prompt
	Heard   int
}

// Queue returns the prompts as the run's journal has them. events are the journal or its beginning. The run must have an agent.
func (r Run) Queue(events []Event) Queue {
	q := Queue{Prompts: []Prompt{{Key: FirstPrompt, Text: r.Agent.Prompt, By: r.Asker, Files: r.Agent.Files}}}
	for _, e := range events {
		q.Apply(e)
	}
	return q
}

// Prompts returns all prompts to the run's agent, without those that were taken back. See [Run.Queue].
func (r Run) Prompts(events []Event) []Prompt { return r.Queue(events).Prompts }

// Waiting returns the prompts that the agent has not got.
func (q Queue) Waiting() []Prompt { return q.Prompts[q.Heard:] }

// open returns the place of the first prompt that can change. The first prompt of a run cannot, because the run is about it.
func (q Queue) open() int { return max(q.Heard, 1) }

// Index returns the place of a prompt among Prompts, and -1 if there is none with the key.
func (q Queue) Index(key string) int {
	return slices.IndexFunc(q.Prompts, func(p Prompt) bool { return p.Key == key })
}

// Apply takes the next event of the journal.
func (q *Queue) Apply(e Event) {
	switch e.Type {
	case EventPrompt:
		p, ok := e.Prompt()
		switch {
		case !ok || q.Index(p.Key) >= 0:
		case p.Now:
			at := q.open()
			for at < len(q.Prompts) && q.Prompts[at].Now {
				at++
			}
			q.Prompts = slices.Insert(q.Prompts, at, p)
		default:
			q.Prompts = append(q.Prompts, p)
		}
	case EventStepStarted:
		q.Heard = min(max(q.Heard, e.PromptsHeard()), len(q.Prompts))
	case EventQueue:
		var c QueueChange
		if json.Unmarshal(e.Data, &c) == nil {
			q.change(e.Kind, c)
		}
	}
}

// change changes prompts that wait. It ignores all others.
func (q *Queue) change(kind string, c QueueChange) {
	if kind == QueueOrdered {
		q.order(c.Order)
		return
	}
	at := q.Index(c.Key)
	if at < q.open() {
		return
	}
	p := q.Prompts[at]
	switch kind {
	case QueueUnsaid:
		q.Prompts = slices.Delete(q.Prompts, at, at+1)
	case QueueEdited:
		p.Text, p.By = c.Text, c.By
		q.Prompts[at] = p
	case QueueHeard:
		q.Prompts = slices.Insert(slices.Delete(q.Prompts, at, at+1), q.open(), p)
		q.Heard = q.open() + 1
	}
}

// order puts the prompts with these keys in their order, at the places that they have together.
func (q *Queue) order(keys []string) {
	var sorted []Prompt
	taken := make(map[string]bool)
	for _, key := range keys {
		if at := q.Index(key); at >= q.open() && !taken[key] {
			sorted = append(sorted, q.Prompts[at])
			taken[key] = true
		}
	}
	for i := q.open(); i < len(q.Prompts) && len(sorted) > 0; i++ {
		if taken[q.Prompts[i].Key] {
			q.Prompts[i], sorted = sorted[0], sorted[1:]
		}
	}
}
