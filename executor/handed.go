package executor

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/secret"
	"github.com/ramus-dev/ramus/executor/step"
)

// maxHanded bounds the secrets that come with one request.
const maxHanded = 20

// takeSecrets takes the secrets out of a request. From then on their values are removed from everything that is kept,
// the request included.
func (x *Executor) takeSecrets(r *record.Request) ([]record.HandedSecret, error) {
	handed := r.Secrets
	r.Secrets = nil
	if len(handed) == 0 {
		return nil, nil
	}
	if x.SecretStore == nil || len(handed) > maxHanded {
		return nil, fmt.Errorf("%w request: a run gets at most %d secrets, and none if the server keeps none",
			record.ErrInvalid, maxHanded)
	}
	list, values := toStore("check", handed)
	return handed, x.SecretStore.Check(list, values)
}

// toStore returns the secrets of a run as the store keeps them.
func toStore(run string, handed []record.HandedSecret) (list []secret.Secret, values []string) {
	for _, h := range handed {
		list = append(list, secret.Secret{Name: h.Name, Owner: secret.OfRun(run), Hosts: h.Hosts})
		values = append(values, h.Value)
	}
	return list, values
}

// handSecrets seals the secrets of a claimed run until it ends.
func (x *Executor) handSecrets(run record.Run, handed []record.HandedSecret) error {
	if len(handed) == 0 {
		return nil
	}
	list, values := toStore(run.Name(), handed)
	_, err := x.SecretStore.Put(list, values)
	return err
}

// dropSecrets removes the secrets of a run that has ended.
func (x *Executor) dropSecrets(r record.Run) {
	if len(r.Secrets) == 0 || !r.Ended() || x.SecretStore == nil {
		return
	}
	if err := x.SecretStore.RemoveOf(secret.OfRun(r.Name())); err != nil {
		x.Log.Warn("the secrets of a run are not removed; the next start does it", "run", r.Name(), "err", err)
	}
}

// sweepSecrets removes the secrets of runs that have ended, and of runs that are not known.
func (x *Executor) sweepSecrets() error {
	if x.SecretStore == nil {
		return nil
	}
	open := make(map[string]bool)
	for _, r := range x.Index.All() {
		open[r.Name()] = !r.Ended()
	}
	return x.SecretStore.RemoveRuns(func(run string) bool { return open[run] })
}

// checkSecrets returns a failure if the secrets of the run were lost with an earlier process.
func (l *liveRun) checkSecrets() error {
	for _, name := range l.Initial.Secrets {
		if l.x.SecretStore == nil {
			break
		}
		if _, err := l.x.SecretStore.Find(secret.OfRun(l.Initial.Name()), name); errors.Is(err, record.ErrNotFound) {
			return step.Fail(record.ReasonEnvLost,
				fmt.Sprintf("the server stopped before the run had its secrets (%s); nothing was run",
					strings.Join(l.Initial.Secrets, ", ")))
		}
	}
	return nil
}
