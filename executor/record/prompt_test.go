package record

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

func promptEvent(p Prompt) Event { return Event{Type: EventPrompt, Data: Marshal(p)} }

func queueEvent(kind string, c QueueChange) Event {
	return Event{Type: EventQueue, Kind: kind, Data: Marshal(c)}
}

func turnEvent(heard int) Event {
	return Event{Type: EventStepStarted, Kind: string(KindAgent), Data: Marshal(map[string]int{"prompts": heard})}
}

func keys(list []Prompt) (names []string) {
	for _, p := range list {
		names = append(names, p.Key)
	}
	return names
}

func TestQueue(t *testing.T) {
	run := Run{Agent: &AgentCall{Prompt: "first"}}
	for name, c := range map[string]struct {
		events []Event
		want   []string
		heard  int
	}{
		"none": {nil, []string{"0"}, 0},
		"waiting": {[]Event{turnEvent(1), promptEvent(Prompt{Key: "a"}), promptEvent(Prompt{Key: "b"})},
			[]string{"0", "a", "b"}, 1},
		"unsaid": {[]Event{turnEvent(1), promptEvent(Prompt{Key: "a"}), queueEvent(QueueUnsaid, QueueChange{Key: "a"}),
			turnEvent(1)}, []string{"0"}, 1},
		"heard stays": {[]Event{promptEvent(Prompt{Key: "a"}), turnEvent(2), queueEvent(QueueUnsaid, QueueChange{Key: "a"}),
			queueEvent(QueueUnsaid, QueueChange{Key: "0"}),
			queueEvent(QueueOrdered, QueueChange{Order: []string{"a", "0"}})}, []string{"0", "a"}, 2},
		"now": {[]Event{turnEvent(1), promptEvent(Prompt{Key: "a"}), promptEvent(Prompt{Key: "n", Now: true}),
			promptEvent(Prompt{Key: "m", Now: true})},
			[]string{"0", "n", "m", "a"}, 1},
		"now at first": {[]Event{promptEvent(Prompt{Key: "n", Now: true})}, []string{"0", "n"}, 0},
		"steered": {[]Event{turnEvent(1), promptEvent(Prompt{Key: "a"}), promptEvent(Prompt{Key: "n", Now: true}),
			queueEvent(QueueHeard, QueueChange{Key: "n"})}, []string{"0", "n", "a"}, 2},
		"ordered": {[]Event{turnEvent(1), promptEvent(Prompt{Key: "a"}), promptEvent(Prompt{Key: "b"}),
			promptEvent(Prompt{Key: "c"}),
			queueEvent(QueueOrdered, QueueChange{Order: []string{"c", "a", "c", "x"}})}, []string{"0", "c", "b", "a"}, 1},
		"twice": {[]Event{promptEvent(Prompt{Key: "a"}), promptEvent(Prompt{Key: "a"}), promptEvent(Prompt{Key: "0"})},
			[]string{"0", "a"}, 0},
	} {
		if q := run.Queue(c.events); !slices.Equal(keys(q.Prompts), c.want) || q.Heard != c.heard {
			t.Errorf("%s: %v, %d heard", name, keys(q.Prompts), q.Heard)
		}
	}
}

// TestQueueKeeps applies random changes. Prompts that were heard never change, and none is lost or doubled.
func TestQueueKeeps(t *testing.T) {
	run := Run{Agent: &AgentCall{Prompt: "first"}}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := run.Queue(nil)
		there := map[string]bool{FirstPrompt: true}
		for n := range 60 {
			before, heard := slices.Clone(q.Prompts), q.Heard
			key := strconv.Itoa(r.IntN(n + 1))
			switch r.IntN(6) {
			case 0, 1:
				there["k"+strconv.Itoa(n)] = true
				q.Apply(promptEvent(Prompt{Key: "k" + strconv.Itoa(n), Now: r.IntN(4) == 0}))
			case 2:
				key = "k" + key
				if q.Index(key) >= q.Heard {
					delete(there, key)
				}
				q.Apply(queueEvent(QueueUnsaid, QueueChange{Key: key}))
			case 3:
				q.Apply(queueEvent(QueueOrdered, QueueChange{Order: []string{"k" + key, FirstPrompt,
					"k" + strconv.Itoa(r.IntN(n+1)), "k" + strconv.Itoa(r.IntN(n+1))}}))
			case 4:
				q.Apply(queueEvent(QueueHeard, QueueChange{Key: "k" + key}))
			case 5:
				q.Apply(turnEvent(r.IntN(len(q.Prompts) + 2)))
			}
			if q.Heard < heard || q.Heard > len(q.Prompts) ||
				!slices.Equal(keys(before[:heard]), keys(q.Prompts[:heard])) || q.Prompts[0].Key != FirstPrompt {
				t.Fatalf("seed %d: %v after %v, %d heard", seed, keys(q.Prompts), keys(before), q.Heard)
			}
		}
		have := keys(q.Prompts)
		slices.Sort(have)
		if len(slices.Compact(slices.Clone(have))) != len(have) || len(have) != len(there) {
			t.Fatalf("seed %d: %v, want %v", seed, have, there)
		}
	}
}

func FuzzQueue(f *testing.F) {
	f.Add("unsaid", []byte(`{"key":"a"}`), []byte(`{"key":"a"}`))
	f.Add("ordered", []byte(`{"order":["a","0"]}`), []byte(`{"key":"0"}`))
	f.Fuzz(func(t *testing.T, kind string, data, prompt []byte) {
		run := Run{Agent: &AgentCall{Prompt: "first"}}
		q := run.Queue([]Event{promptEvent(Prompt{Key: "a"}), {Type: EventPrompt, Data: prompt}, turnEvent(1),
			{Type: EventQueue, Kind: kind, Data: data},
			{Type: EventStepStarted, Kind: string(KindAgent), Data: data}})
		if q.Heard > len(q.Prompts) || q.Prompts[0].Key != FirstPrompt {
			t.Fatalf("%+v", q)
		}
	})
}
