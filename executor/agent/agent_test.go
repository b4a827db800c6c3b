package agent

import (
	"strings"
	"testing"
)

// TestComplete refuses agents that could not run, and fills in the defaults of others.
func TestComplete(t *testing.T) {
	command := []string{"agent"}
	for name, x := range map[string]struct {
		agent Agent
		want  string
	}{
		"good": {Agent{Command: command, State: []string{"~/.agent/sessions/", "one/file"},
			Checks: []string{"lib_run_tests"}, Env: []string{"A=b"}}, ""},
		"empty": {Agent{}, "no command"},
		"Upper": {Agent{Command: command}, "lower-case"},
		"named": {Agent{Name: "other", Command: command}, `calls itself "other"`},
		"up":    {Agent{Command: command, State: []string{"../x"}}, "below the home folder"},
		"all":   {Agent{Command: command, State: []string{"~"}}, ""},
		"root":  {Agent{Command: command, State: []string{"/etc"}}, "below the home folder"},
		"home":  {Agent{Command: command, State: []string{"~/"}}, "below the home folder"},
		"git":   {Agent{Command: command, State: []string{".gitconfig"}}, "below the home folder"},
		"check": {Agent{Command: command, Checks: []string{"lib_nothing"}}, "there is no task"},
		"env":   {Agent{Command: command, Env: []string{"=x"}}, "NAME=VALUE"},
	} {
		agents, err := Complete(map[string]Agent{name: x.agent})
		switch {
		case x.want == "" && err != nil, x.want != "" && (err == nil || !strings.Contains(err.Error(), x.want)):
			t.Errorf("%s: %v, want %q", name, err, x.want)
		case name == "good" && (agents[name].Name != "good" || agents[name].State[0] != ".agent/sessions"):
			t.Errorf("%+v", agents[name])
		}
	}
}
