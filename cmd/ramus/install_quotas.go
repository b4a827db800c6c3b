package main

import (
	"github.com/ramus-dev/ramus/executor/quota"
)

// QuotasConfig bounds the work of one person and of one repository.
type QuotasConfig struct {
	Person QuotaConfig            `yaml:"person"`
	Repo   QuotaConfig            `yaml:"repo"`
	People map[string]QuotaConfig `yaml:"people"`
	Repos  map[string]QuotaConfig `yaml:"repos"`
}

// QuotaConfig has the bounds of one of them. 0 bounds nothing.
type QuotaConfig struct {
	Callers   int     `yaml:"callers"`
	Runs      int     `yaml:"runs"`
	Queue     int     `yaml:"queue"`
	Agents    int     `yaml:"agents"`
	Terminals int     `yaml:"terminals"`
	Cost      float64 `yaml:"cost"`
}

// newQuotas returns the rules for new runs.
func newQuotas(c QuotasConfig) quota.Rules {
	return quota.Rules{Person: newQuota(c.Person), Repo: newQuota(c.Repo), People: newQuotaMap(c.People),
		Repos: newQuotaMap(c.Repos)}
}

func newQuotaMap(list map[string]QuotaConfig) map[string]quota.Rule {
	rules := make(map[string]quota.Rule, len(list))
	for name, c := range list {
		rules[name] = newQuota(c)
	}
	return rules
}

func newQuota(c QuotaConfig) quota.Rule {
	return quota.Rule{Callers: c.Callers, Runs: c.Runs, Queue: c.Queue, Agents: c.Agents, Terminals: c.Terminals,
		CostMicros: micros(c.Cost)}
}
