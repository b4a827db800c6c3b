package executor

import (
	"fmt"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/tasks/workflow"
)

// Secrets are removed where text is about to be kept, not where it is read: from requests before they are claimed, from a run's
// record whenever it changes, from events in [record.Journal.Append], from output before its first byte is written, from results
// before the workflow sees them. Readers see the kept text.

// cleanRequest takes secrets out of a request, which is kept in the run's ref. Names of refs and files cannot be changed without
// another meaning, so a secret in them is refused.
func (x *Executor) cleanRequest(r record.Request) (record.Request, error) {
	if x.Secrets.Empty() {
		return r, nil
	}
	for what, name := range map[string]string{"key": r.Key, "caller": r.Caller.String(), "repository": r.Repo, "base": r.Base, "file": r.File} {
		if x.Secrets.String(name) != name {
			return r, fmt.Errorf("%w request: its %s holds the value of a secret", record.ErrInvalid, what)
		}
	}
	clean := redact.Clean(x.Secrets, r)
	if r.Agent != nil && len(r.Agent.Files) > 0 {
		agent := *clean.Agent
		agent.Files = x.cleanFiles(r.Agent.Files)
		clean.Agent = &agent
	}
	return clean, nil
}

func (x *Executor) cleanFiles(files []record.Attachment) []record.Attachment {
	var clean []record.Attachment
	for _, f := range files {
		clean = append(clean, record.Attachment{Name: x.Secrets.Name(f.Name), Type: x.Secrets.String(f.Type), Content: x.Secrets.Bytes(f.Content)})
	}
	return clean
}

// cleanRun takes secrets out of a run's record. Its names were looked at when it was asked for.
func (x *Executor) cleanRun(r record.Run) record.Run {
	clean := redact.Clean(x.Secrets, r)
	clean.ID, clean.Repo, clean.Base, clean.Branch = r.ID, r.Repo, r.Base, r.Branch
	return clean
}

// removed journals which secrets were taken out of a thing, once each.
func (l *liveRun) removed(step, kind string, names []string, where string) error {
	for _, name := range names {
		message := name + " in " + where
		known := false
		for _, e := range l.journalled() {
			known = known || e.Type == record.EventSecret && e.Kind == kind && e.Message == message
		}
		if known {
			continue
		}
		if err := l.emit(record.Event{Type: record.EventSecret, Step: step, Kind: kind, Message: message}, false); err != nil {
			return err
		}
	}
	return nil
}

func (x *Executor) cleanPerson(p gitd.Person) gitd.Person {
	return gitd.Person{Name: x.Secrets.String(p.Name), Email: x.Secrets.String(p.Email)}
}

// cleanResult takes secrets out of a step's result before a workflow sees it. It must be equal to the journal's when the run is
// taken up again.
func (x *Executor) cleanResult(r workflow.StepResult) workflow.StepResult {
	return redact.Clean(x.Secrets, r)
}
