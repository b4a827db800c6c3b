package workspace

import (
	"context"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
)

// bootTypes are the events of a boot log.
var bootTypes = []string{record.EventRunCreated, record.EventQueued, record.EventContainer, record.EventSetup,
	record.EventSettings,
	record.EventNote, record.EventRecovered}

// eventTypes are the events of a workspace. Output and the updates of agents are left out.
var eventTypes = append([]string{record.EventRunState, record.EventStepStarted, record.EventStepFinished,
	record.EventGate, record.EventDecision,
	record.EventMerge, record.EventSecret, record.EventBrowser, record.EventCheck}, bootTypes...)

// Limits of the lists of events.
const (
	maxEvents = 1000
	maxRuns   = 50
)

// BootLog returns the events of the last start of a workspace's container, the oldest first.
func (w *Workspaces) BootLog(ctx context.Context, s Workspace) ([]record.Event, error) {
	runs := w.Executor.OfCaller(s.Caller)
	for _, r := range slices.Backward(runs) {
		list, err := w.events(ctx, r, bootTypes)
		if err != nil {
			return nil, err
		}
		starts := slices.ContainsFunc(list, func(e record.Event) bool {
			return e.Type == record.EventContainer || e.Type == record.EventSetup || e.Type == record.EventQueued ||
				e.Reason == record.NoteRecovery
		})
		if starts || r.Command == BootCommand || r.Name() == runs[0].Name() {
			return list, nil
		}
	}
	return []record.Event{}, nil
}

// Events returns the events of a workspace's runs, the newest first.
func (w *Workspaces) Events(ctx context.Context, s Workspace) ([]record.Event, error) {
	all := []record.Event{}
	runs := w.Executor.OfCaller(s.Caller)
	for _, r := range slices.Backward(runs[max(0, len(runs)-maxRuns):]) {
		list, err := w.events(ctx, r, eventTypes)
		if err != nil {
			return nil, err
		}
		slices.Reverse(list)
		all = append(all, list...)
		if len(all) >= maxEvents {
			return all[:maxEvents], nil
		}
	}
	return all, nil
}

// events returns the events of a run that have one of the types.
func (w *Workspaces) events(ctx context.Context, r record.Run, types []string) ([]record.Event, error) {
	list := []record.Event{}
	for e, err := range w.Executor.Events(ctx, r.Name(), 0, false) {
		if err != nil {
			return nil, err
		}
		if slices.Contains(types, e.Type) {
			e.Run = r.Name()
			list = append(list, e)
		}
	}
	return list, nil
}
