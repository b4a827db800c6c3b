package gateway

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/ramus-dev/ramus/gateway/route"
)

// metrics serves /metrics. Requests are counted as they end. All other numbers are read at each scrape.
type metrics struct {
	latency *prometheus.HistogramVec
	handler http.Handler
}

func newMetrics(s *Server) *metrics {
	r := prometheus.NewRegistry()
	m := &metrics{
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "ramus_http_request_duration_seconds",
			Help: "Time to answer, streams to their end, by route.",
			// Streams last for hours; one bucket for them is enough.
			Buckets: []float64{.001, .005, .025, .1, .5, 2.5, 10, 60, 600},
		}, []string{"method", "route", "status"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ramus_build_info", Help: "Always 1.",
		ConstLabels: prometheus.Labels{"version": s.Version, "engine": s.Engine},
	})
	build.Set(1)
	r.MustRegister(m.latency, build, newStatsCollector(s), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	return m
}

func (m *metrics) request(route route.Route, status int, took time.Duration) {
	m.latency.WithLabelValues(route.Method, route.Pattern, strconv.Itoa(status)).Observe(took.Seconds())
}

// statsCollector reads the numbers of the executor and of the Git server at each scrape.
type statsCollector struct {
	server                                           *Server
	commands, commits, runs, queue, hosts, capacity  *prometheus.Desc
	bound, snaps, hashed, portable, layers, salvaged *prometheus.Desc
	branches, deps, cleared, clearing, upkeep        *prometheus.Desc
	ended, seconds, calls, tokens, cost, spans       *prometheus.Desc
	checks, warm                                     *prometheus.Desc
	epoch, standbys, lag, pending                    *prometheus.Desc
	owner, passed                                    *prometheus.Desc
}

func newStatsCollector(s *Server) *statsCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("ramus_"+name, help, labels, nil)
	}
	return &statsCollector{
		server:   s,
		commands: desc("commands_total", "Commands that ended since the start."),
		commits:  desc("commits_total", "Commits made after commands since the start."),
		runs:     desc("runs", "Runs seen since the start, by the state they are in now.", "state"),
		queue:    desc("queue", "Callers that wait for a container."),
		hosts:    desc("hosts", "Containers, by state.", "state"),
		bound:    desc("bound_total", "Containers that got their work tree from outside."),
		snaps:    desc("snapshots_total", "Commands whose changes were committed from outside."),
		hashed:   desc("hashed_files_total", "Files that were read for these commits."),
		portable: desc("portable_total", "Work trees and commits that were left to git in containers, by reason.", "reason"),
		layers:   desc("layers_total", "Base layers made, of work trees and of dependencies."),
		branches: desc("branch_layers_total", "Layers made of branches that change much."),
		deps: desc("dependencies_total",
			"Dependencies that new containers got from the cache, an ecosystem each, by how.", "how"),
		checks: desc("checks_total", "Checks that ended since the start, by how: run, or reused from an earlier one.",
			"how"),
		warm: desc("warm_ups_total", "Containers that were woken while somebody typed a prompt, by what became of them: begun, refused, "+
			"taken by a run, or given back.", "what"),
		epoch:    desc("epoch", "The epoch of the server, 1 more with each stand-by that took its place."),
		standbys: desc("standbys", "Stand-bys that follow the server."),
		lag:      desc("standby_lag_seconds", "The time by which the best of these stand-bys is behind."),
		pending:  desc("standby_pending_changes", "Changes of refs that this stand-by has not confirmed."),
		owner:    desc("replica_owner", "1 while this replica holds its lease, 0 while it refuses changes.", "replica"),
		passed:   desc("replica_requests_total", "Requests between replicas since the start: passed on, failed, refused.", "result"),
		salvaged: desc("salvaged_total", "Lost containers of which something was kept."),
		cleared:  desc("cleared_total", "Folders of containers that are gone that were deleted."),
		clearing: desc("clearing", "Folders of containers that are gone that wait to be deleted."),
		upkeep: desc("upkeep_total",
			"Repositories that were maintained in the background since the start, by result.", "result"),
		capacity: desc("capacity", "How many containers may exist at once."),
		ended: desc("runs_ended_total", "Runs that ended since the start, by kind, state and reason.", "kind",
			"state", "reason"),
		seconds: desc("run_seconds_total", "Time from the creation of these runs to their end.", "kind", "state", "reason"),
		calls:   desc("model_calls_total", "Calls of models by runs that ended since the start, by provider.", "provider"),
		tokens:  desc("model_tokens_total", "Tokens of these calls, by provider and direction.", "provider", "direction"),
		cost: desc("model_cost_total", "Cost of these calls, in the currency unit of the prices, by provider.",
			"provider"),
		spans: desc("trace_spans_total", "Spans of traces, by result.", "result"),
	}
}

// Describe sends the descriptions of all metrics.
func (c *statsCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.commands, c.commits, c.runs, c.queue, c.hosts, c.capacity, c.bound, c.snaps,
		c.hashed, c.portable, c.layers,
		c.branches, c.deps, c.salvaged, c.cleared, c.clearing, c.upkeep, c.ended, c.seconds, c.calls, c.tokens,
		c.cost, c.spans, c.checks, c.warm, c.epoch, c.standbys, c.lag, c.pending, c.owner, c.passed} {
		ch <- d
	}
}

// Collect sends the current values of all metrics.
func (c *statsCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.server.Executor.Stats()
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	ch <- prometheus.MustNewConstMetric(c.commands, counter, float64(st.Commands))
	ch <- prometheus.MustNewConstMetric(c.commits, counter, float64(st.Commits))
	ch <- prometheus.MustNewConstMetric(c.queue, gauge, float64(st.Queue))
	ch <- prometheus.MustNewConstMetric(c.capacity, gauge, float64(st.Capacity))
	ch <- prometheus.MustNewConstMetric(c.bound, counter, float64(st.Bound))
	ch <- prometheus.MustNewConstMetric(c.snaps, counter, float64(st.Snapshots))
	ch <- prometheus.MustNewConstMetric(c.hashed, counter, float64(st.Hashed))
	ch <- prometheus.MustNewConstMetric(c.layers, counter, float64(st.Layers))
	ch <- prometheus.MustNewConstMetric(c.branches, counter, float64(st.BranchLayers))
	ch <- prometheus.MustNewConstMetric(c.salvaged, counter, float64(st.Salvaged))
	ch <- prometheus.MustNewConstMetric(c.deps, counter, float64(st.Mounted), "mounted")
	ch <- prometheus.MustNewConstMetric(c.deps, counter, float64(st.Unpacked), "unpacked")
	ch <- prometheus.MustNewConstMetric(c.cleared, counter, float64(st.Cleared))
	ch <- prometheus.MustNewConstMetric(c.clearing, gauge, float64(st.Clearing))
	ch <- prometheus.MustNewConstMetric(c.checks, counter, float64(st.ChecksRun), "run")
	ch <- prometheus.MustNewConstMetric(c.checks, counter, float64(st.ChecksReused), "reused")
	for what, n := range map[string]int64{"begun": st.WarmUps.Begun, "refused": st.WarmUps.Refused, "taken": st.WarmUps.Taken,
		"given_back": st.WarmUps.GivenBack} {
		ch <- prometheus.MustNewConstMetric(c.warm, counter, float64(n), what)
	}
	upkeep := c.server.Git.Upkeep()
	ch <- prometheus.MustNewConstMetric(c.upkeep, counter, float64(upkeep.Runs-upkeep.Failures), "done")
	ch <- prometheus.MustNewConstMetric(c.upkeep, counter, float64(upkeep.Failures), "failed")
	c.collectOutcomes(ch)
	c.collectStandbys(ch)
	c.collectReplicas(ch)
	for reason, n := range st.Portable {
		ch <- prometheus.MustNewConstMetric(c.portable, counter, float64(n), reason)
	}
	for state, n := range st.Runs {
		ch <- prometheus.MustNewConstMetric(c.runs, gauge, float64(n), string(state))
	}
	for state, n := range st.Hosts {
		ch <- prometheus.MustNewConstMetric(c.hosts, gauge, float64(n), state)
	}
}

// collectStandbys sends the metrics of stand-bys, if some may follow. Without a stand-by that is connected there is no lag.
func (c *statsCollector) collectStandbys(ch chan<- prometheus.Metric) {
	if c.server.Leader == nil || !c.server.Leader.Allow {
		return
	}
	st, gauge := c.server.Leader.Status(), prometheus.GaugeValue
	best, connected := st.Best()
	ch <- prometheus.MustNewConstMetric(c.epoch, gauge, float64(st.Epoch))
	ch <- prometheus.MustNewConstMetric(c.standbys, gauge, float64(connected))
	if connected > 0 {
		ch <- prometheus.MustNewConstMetric(c.lag, gauge, best.Lag)
		ch <- prometheus.MustNewConstMetric(c.pending, gauge, float64(best.Pending))
	}
}

// collectReplicas sends the metrics of a replica, if this server is one of several.
func (c *statsCollector) collectReplicas(ch chan<- prometheus.Metric) {
	r := c.server.Replicas
	if r == nil {
		return
	}
	owner := 0.0
	if r.Group.CheckLease() == nil {
		owner = 1
	}
	ch <- prometheus.MustNewConstMetric(c.owner, prometheus.GaugeValue, owner, r.Group.Name)
	st, counter := r.Stats(), prometheus.CounterValue
	ch <- prometheus.MustNewConstMetric(c.passed, counter, float64(st.Passed), "passed")
	ch <- prometheus.MustNewConstMetric(c.passed, counter, float64(st.Failed), "failed")
	ch <- prometheus.MustNewConstMetric(c.passed, counter, float64(st.Refused), "refused")
}

// collectOutcomes sends the metrics of runs that have ended. The values of labels come from closed lists.
func (c *statsCollector) collectOutcomes(ch chan<- prometheus.Metric) {
	o, counter := c.server.Executor.Outcomes(), prometheus.CounterValue
	for k, n := range o.Runs {
		labels := []string{string(k.Kind), string(k.State), string(k.Reason)}
		ch <- prometheus.MustNewConstMetric(c.ended, counter, float64(n), labels...)
		ch <- prometheus.MustNewConstMetric(c.seconds, counter, o.Seconds[k], labels...)
	}
	for provider, u := range o.Models {
		ch <- prometheus.MustNewConstMetric(c.calls, counter, float64(u.Calls), provider)
		ch <- prometheus.MustNewConstMetric(c.tokens, counter, float64(u.InputTokens), provider, "input")
		ch <- prometheus.MustNewConstMetric(c.tokens, counter, float64(u.OutputTokens), provider, "output")
		ch <- prometheus.MustNewConstMetric(c.cost, counter, float64(u.CostMicros)/1e6, provider)
	}
	if c.server.Traces != nil {
		sent, dropped := c.server.Traces.Counts()
		ch <- prometheus.MustNewConstMetric(c.spans, counter, float64(sent), "sent")
		ch <- prometheus.MustNewConstMetric(c.spans, counter, float64(dropped), "dropped")
	}
}
