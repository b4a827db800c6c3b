package main

import (
	"slices"
	"time"

	"github.com/ramus-dev/ramus/executor"
)

// checkTasks are the library tasks for the names of an agent's checks.
var checkTasks = map[string]string{"test": "lib_run_tests", "lint": "lib_run_lint", "build": "lib_run_build"}

// newAgents returns the coding agents of a configuration. The executor checks them.
func newAgents(c map[string]AgentConfig) map[string]executor.Agent {
	agents := make(map[string]executor.Agent, len(c))
	for name, a := range c {
		agent := executor.Agent{Name: name, Image: a.Image, Command: a.Command, Resume: a.Resume, Argument: a.Prompt == "argument",
			State: a.State, Timeout: time.Duration(a.Timeout), Output: int64(a.Output),
			Permission: a.Permission, Allow: a.Allow, Mode: a.Mode, Auth: a.Auth, Browser: a.Browser}
		if a.Kind == "acp" {
			agent.Protocol = executor.ProtocolACP
		}
		for k, v := range a.Env {
			agent.Env = append(agent.Env, k+"="+v)
		}
		slices.Sort(agent.Env)
		for _, check := range a.Checks {
			if task, ok := checkTasks[check]; ok {
				check = task
			}
			agent.Checks = append(agent.Checks, check)
		}
		agents[name] = agent
	}
	return agents
}
