package step

import (
	"fmt"
	"slices"

	"github.com/ramus-dev/ramus/executor/record"
)

// ProcessPrefix begins the ids of the processes and terminals of the run's agent.
func (l *Run) ProcessPrefix() string { return l.CommandID("acp", 0) + "." }

// Outside reports whether a step did anything outside its container since its last beginning. An agent must not do that twice.
func (l *Run) Outside(step string) bool {
	for _, e := range slices.Backward(l.Journalled()) {
		switch {
		case e.Step != step:
		case e.Type == record.EventStepStarted:
			return false
		case e.Type == record.EventTool && e.Kind != string(record.KindTask), e.Type == record.EventEgress &&
			e.Reason == "allowed":
			return true
		}
	}
	return false
}

// placeholders returns the environment that has a placeholder for each of the run's secrets.
func (l *Run) placeholders() (env []string) {
	for _, name := range l.Initial.Secrets {
		env = append(env, name+"=secret:"+name)
	}
	return env
}

// EnvLost reports whether the values of the command's environment were lost with an earlier process. A command that
// has begun has them.
func (l *Run) EnvLost() bool {
	return l.Initial.Kind == record.KindExec && len(l.Initial.Exec.Env) > 0 && len(l.Env) == 0
}

// WithoutEnv returns the error of a run whose command cannot get its environment any more.
func (l *Run) WithoutEnv() error {
	return &Failure{record.ReasonEnvLost,
		fmt.Sprintf("the server stopped before the command had its environment (%s); it was not run",
			l.Initial.Exec.EnvNames())}
}
