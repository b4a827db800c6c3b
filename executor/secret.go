package executor

import (
	"fmt"

	"github.com/ramus-dev/ramus/executor/attachment"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// Secrets are removed before text is kept, not when it is read. They are removed from requests before they are
// claimed, from a run's record whenever it changes, from events in [record.Journal.Append], from output before its
// first byte is written, from results before the workflow sees them. Readers see the kept text.

// cleanRequest takes secrets out of a request, which is kept in the run's ref. Names of refs and files cannot be changed without
// another meaning, so a secret in them is refused.
func cleanRequest(secrets *redact.Secrets, r record.Request) (record.Request, error) {
	if secrets.Empty() {
		return r, nil
	}
	for what, name := range map[string]string{"key": r.Key, "caller": r.Caller.String(), "repository": r.Repo,
		"base": r.Base, "file": r.File} {
		if secrets.String(name) != name {
			return r, fmt.Errorf("%w request: its %s holds the value of a secret", record.ErrInvalid, what)
		}
	}
	clean := redact.Clean(secrets, r)
	if r.Agent != nil && len(r.Agent.Files) > 0 {
		agent := *clean.Agent
		agent.Files = attachment.Clean(secrets, r.Agent.Files)
		clean.Agent = &agent
	}
	return clean, nil
}

func cleanPerson(secrets *redact.Secrets, p gitd.Person) gitd.Person {
	return gitd.Person{Name: secrets.String(p.Name), Email: secrets.String(p.Email), ID: secrets.String(p.ID)}
}
