package executor

import (
	"fmt"
	"slices"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/prune"
	"github.com/ramus-dev/ramus/executor/quota"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/worktree"
)

// Options are the options that [Executor.Apply] changes while work goes on. An Options of an open Executor is never changed.
type Options struct {
	// Limits are those of containers.
	Limits containers.Limits
	// Env is set for every command, "K=V".
	Env []string
	// Egress lists host names ("registry.example.org", "*.example.org", with :PORT if it is not 80 or 443) that
	// containers may reach by the door's proxy. If it is empty they reach none.
	Egress []string
	// PrivateEgress lists the entries of Egress whose names may lead to addresses that are not public: of this machine, of
	// private and shared networks. Any other name is refused if it leads to one. An entry that is an address itself, or
	// localhost, needs none here.
	PrivateEgress []string
	// Timeout bounds a command that sets no timeout. The default is 30 min. RunTimeout bounds a whole run. The
	// default is 24 h.
	Timeout, RunTimeout time.Duration
	// Agents are the coding agents that requests may name.
	Agents map[string]agent.Agent
	// Keep is the retention policy of Prune. The zero value keeps only data that is still needed.
	Keep prune.Retention
	// Quotas bound the work of one person and of one repository. The zero value bounds nothing.
	Quotas quota.Rules
}

// Containers are the options of the containers of callers that [Executor.Apply] does not change.
type Containers struct {
	// Image is the task image.
	Image string
	// RepoEnv returns further environment of commands for a repository. If it is nil, there is none.
	RepoEnv func(repo string) []string
	// Devcontainer is the program of @devcontainers/cli, which builds images that bases describe. The default is "devcontainer".
	Devcontainer string
	// Layers bounds the disk space of all base layers, in bytes. The default is 20 GiB. Base layers are used if the
	// fleet has a Keeper.
	Layers int64
}

// Check returns the options with their defaults, or the reason why they cannot be used.
func (s Options) Check() (Options, error) {
	if s.Timeout <= 0 {
		s.Timeout = 30 * time.Minute
	}
	if s.RunTimeout <= 0 {
		s.RunTimeout = 24 * time.Hour
	}
	agents, err := agent.Complete(s.Agents)
	s.Agents = agents
	return s, err
}

// options returns the present options.
func (x *Executor) options() *Options {
	if s := x.applied.Load(); s != nil {
		return s
	}
	return &x.Options
}

// Apply changes the options. Commands at work are not disturbed. Runs that begin later have the new options, and so
// have containers that start later. The allowlist of hosts counts at once, also in containers that run.
func (x *Executor) Apply(s Options) error {
	s, err := s.Check()
	if err != nil {
		return err
	}
	x.applied.Store(&s)
	x.trees.SetContainer(worktree.Container{Image: x.Containers.Image, Limits: s.Limits, Env: x.containerEnv()})
	return nil
}

// egress returns the hosts that containers may reach, and those of them that may be private.
func (x *Executor) egress() (allow, private []string) {
	s := x.options()
	return slices.Clip(s.Egress), slices.Clip(s.PrivateEgress)
}

// admit checks a new run against the quotas. The run counts from now on. The caller calls release when the run is
// live, or was not begun.
func (x *Executor) admit(r record.Run) (release func(), err error) {
	release, err = x.book.Admit(x.options().Quotas, r, x.Now(), x.Current)
	if err != nil {
		return nil, fmt.Errorf("cannot begin a run: %w", err)
	}
	return release, nil
}

// Uses returns how much of the quotas people and repositories use.
func (x *Executor) Uses() []quota.Use {
	return quota.Uses(x.options().Quotas, x.Current(), x.Now())
}

// Applied returns the present options.
func (x *Executor) Applied() Options { return *x.options() }
