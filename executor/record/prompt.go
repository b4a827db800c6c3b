package record

import "encoding/json"

// FirstPrompt is the key of the prompt that a run was asked with.
const FirstPrompt = "0"

// Prompt returns the prompt that an [EventPrompt] holds. ok is false for other events.
func (e Event) Prompt() (p Prompt, ok bool) {
	return p, e.Type == EventPrompt && json.Unmarshal(e.Data, &p) == nil
}

// Prompts returns all prompts to the run's agent in order. events are the run's journal. The run must have an agent.
func (r Run) Prompts(events []Event) []Prompt {
	list := []Prompt{{Key: FirstPrompt, Text: r.Agent.Prompt, By: r.Asker, Files: r.Agent.Files}}
	for _, e := range events {
		if p, ok := e.Prompt(); ok {
			list = append(list, p)
		}
	}
	return list
}
