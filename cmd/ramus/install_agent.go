package main

import (
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor/agent"
)

// checkTasks are the library tasks for the names of an agent's checks.
var checkTasks = map[string]string{"test": "lib_run_tests", "lint": "lib_run_lint", "build": "lib_run_build"}

// newAgents returns the coding agents of a configuration. The executor checks them.
func newAgents(c map[string]AgentConfig) map[string]agent.Agent {
	agents := make(map[string]agent.Agent, len(c))
	for name, a := range c {
		made := agent.Agent{Name: name, Image: a.Image, Command: a.Command, Resume: a.Resume,
			Argument: a.Prompt == "argument",
			State:    a.State, Timeout: time.Duration(a.Timeout), Output: int64(a.Output),
			Permission: a.Permission, Allow: a.Allow, Mode: a.Mode, Auth: a.Auth, Browser: a.Browser}
		if a.Kind == "acp" {
			made.Protocol = agent.ProtocolACP
		}
		for k, v := range a.Env {
			made.Env = append(made.Env, k+"="+v)
		}
		slices.Sort(made.Env)
		for _, check := range a.Checks {
			if task, ok := checkTasks[check]; ok {
				check = task
			}
			made.Checks = append(made.Checks, check)
		}
		agents[name] = made
	}
	return agents
}
