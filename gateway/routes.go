package gateway

import (
	"encoding/json"
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gateway/route"
	"github.com/ramus-dev/ramus/gitd"
)

// workflowBody bounds requests that carry a workflow; the parser has a tighter
// limit of its own, whose message says more.
const workflowBody = 16 << 20

// promptBody bounds what is said to an agent; the executor has a tighter limit
// of its own, but JSON may write a byte as six.
const promptBody = 2 << 20

// routes is every way in, on one screen.
func (s *Server) routes() []route.Route {
	return slices.Concat(s.apiRoutes(), s.taskRoutes(), s.mcpRoutes(), s.slackHooks(), s.githubHooks(), s.githubRoutes(), s.signInRoutes(), s.traceRoutes(), []route.Route{
		// /NAME.git/… and /NAME/…, and the answer to what is no route.
		{Pattern: "/", Access: route.AccessGit, Summary: "Repositories, for git clients", Body: -1, Handle: s.fallback},
	})
}

func (s *Server) apiRoutes() []route.Route {
	type none = struct{}
	return []route.Route{
		// About the server.
		{Method: "GET", Pattern: "/health", Access: route.AccessPublic, Summary: "Version, engine, limits and what is going on",
			Response: Health{}, Handle: s.health},
		{Method: "GET", Pattern: "/metrics", Access: route.AccessMetrics, Summary: "Numbers for Prometheus",
			Media: route.MediaText, Handle: s.scrape},
		{Method: "GET", Pattern: "/.well-known/jwks.json", Access: route.AccessPublic, Summary: "The key that signs grants (RFC 7517)",
			Response: json.RawMessage{}, Handle: s.jwks},
		{Method: "GET", Pattern: "/.well-known/allowed_signers", Access: route.AccessPublic, Summary: "Who signs commits here: a file for git's gpg.ssh.allowedSignersFile",
			Media: route.MediaText, Handle: s.allowedSigners},
		{Method: "GET", Pattern: "/api/openapi.json", Access: route.AccessPublic, Summary: "This document",
			Response: json.RawMessage{}, Handle: s.openapi},
		{Method: "GET", Pattern: "/api/schema/workflow", Access: route.AccessPublic, Summary: "The JSON Schema of workflow files",
			Response: json.RawMessage{}, Handle: s.workflowSchema},
		{Method: "GET", Pattern: "/api/whoami", Access: route.AccessRead, Summary: "Whom the token stands for",
			Response: route.Who{}, Handle: s.whoami},
		{Method: "GET", Pattern: "/api/library", Access: route.AccessRead, Summary: "The task library with the schemas of its parameters",
			Response: []TaskInfo{}, Handle: s.library},
		{Method: "POST", Pattern: "/api/check", Access: route.AccessRead, Summary: "Check a workflow file, which is the body",
			Query: checkQuery{}, Response: Checked{}, Body: workflowBody, Handle: s.check},

		// Repositories.
		{Method: "GET", Pattern: "/api/repos", Access: route.AccessRead, Summary: "List repositories",
			Response: []Repo{}, Handle: s.repos},
		{Method: "POST", Pattern: "/api/repos", Access: route.AccessAdmin, Summary: "Create an empty repository, or import one; the answer streams progress",
			Request: CreateRepo{}, Response: Progress{}, Media: route.MediaLines, Handle: s.createRepo},
		{Method: "GET", Pattern: "/api/repos/{repo}", Access: route.AccessRead, Summary: "One repository",
			Response: Repo{}, Handle: s.repo},
		{Method: "POST", Pattern: "/api/repos/{repo}/refresh", Access: route.AccessWrite, Summary: "Fast-forward the base from its upstream; the answer streams progress",
			Request: RefreshRepo{}, Response: Progress{}, Media: route.MediaLines, Handle: s.refreshRepo},
		{Method: "GET", Pattern: "/api/repos/{repo}/bases", Access: route.AccessRead, Summary: "The signed manifests of the base, newest first, checked",
			Query: basesQuery{}, Response: Bases{}, Handle: s.bases},
		{Method: "GET", Pattern: "/api/repos/{repo}/log", Access: route.AccessRead, Summary: "Commits, newest first",
			Query: logQuery{}, Response: []gitd.Commit{}, Handle: s.repoLog},
		{Method: "GET", Pattern: "/api/repos/{repo}/diff", Access: route.AccessRead, Summary: "The difference between two commits, as git writes it",
			Query: diffQuery{}, Media: route.MediaText, Handle: s.repoDiff},
		{Method: "GET", Pattern: "/api/repos/{repo}/changes", Access: route.AccessRead, Summary: "The files that differ between two commits",
			Query: diffQuery{}, Response: []gitd.Change{}, Handle: s.repoChanges},
		{Method: "GET", Pattern: "/api/repos/{repo}/tree", Access: route.AccessRead, Summary: "A folder at a commit",
			Query: treeQuery{}, Response: []gitd.TreeEntry{}, Handle: s.repoTree},
		{Method: "GET", Pattern: "/api/repos/{repo}/file", Access: route.AccessRead, Summary: "A file at a commit",
			Query: treeQuery{}, Media: route.MediaBytes, Handle: s.repoFile},

		// Runs.
		{Method: "GET", Pattern: "/api/runs", Access: route.AccessRead, Summary: "List runs, newest first",
			Query: listQuery{}, Response: []record.Run{}, Handle: s.runs},
		{Method: "POST", Pattern: "/api/runs", Access: route.AccessWrite, Summary: "Start a run: a workflow, a command, a task or an agent",
			Request: record.Request{}, Response: record.Run{}, Body: workflowBody, Handle: s.submit},
		{Method: "GET", Pattern: "/api/runs/{run}", Access: route.AccessRead, Summary: "One run",
			Response: record.Run{}, Handle: s.run},
		{Method: "GET", Pattern: "/api/runs/{run}/events", Access: route.AccessRead, Summary: "Follow a run's journal and live output; resumes at Last-Event-ID; follow=0 lists the journal as JSON",
			Query: eventsQuery{}, Response: record.Event{}, Media: route.MediaSSE, Handle: s.events},
		{Method: "GET", Pattern: "/api/runs/{run}/output/{step}/{stream}", Access: route.AccessRead, Summary: "A step's whole stdout or stderr",
			Media: route.MediaBytes, Handle: s.output},
		{Method: "GET", Pattern: "/api/runs/{run}/evidence", Access: route.AccessRead, Summary: "What was run and changed, with checksums, once the run has ended or waits",
			Response: record.Manifest{}, Handle: s.evidence},
		{Method: "POST", Pattern: "/api/runs/{run}/link", Access: route.AccessRead, Summary: "Make a link to the page of a run's evidence that opens without a token until it expires",
			Response: EvidenceLink{}, Handle: s.evidenceLink},
		{Method: "POST", Pattern: "/api/runs/{run}/stop", Access: route.AccessWrite, Summary: "Stop a run; what stands is committed",
			Response: record.Run{}, Handle: s.stopRun},
		{Method: "POST", Pattern: "/api/runs/{run}/retry", Access: route.AccessWrite, Summary: "Start a failed run again where it failed",
			Response: record.Run{}, Handle: s.retry},
		{Method: "POST", Pattern: "/api/runs/{run}/say", Access: route.AccessWrite, Summary: "Say something to a run's agent, for its next turn; with a key, once however often it is sent",
			Request: record.Prompt{}, Response: record.Run{}, Body: promptBody, Handle: s.say},
		{Method: "POST", Pattern: "/api/runs/{run}/decide", Access: route.AccessWrite, Summary: "Answer the question a run waits with",
			Request: record.Decision{}, Response: record.Run{}, Handle: s.decide},

		// Callers.
		{Method: "GET", Pattern: "/api/callers", Access: route.AccessRead, Summary: "List callers, the most recently active first",
			Query: listQuery{}, Response: []executor.CallerStatus{}, Handle: s.callers},
		{Method: "GET", Pattern: "/api/callers/{caller}", Access: route.AccessRead, Summary: "One caller",
			Response: executor.CallerStatus{}, Handle: s.caller},
		{Method: "POST", Pattern: "/api/callers/{caller}/exec", Access: route.AccessWrite, Summary: "Run a command and stream its output; hanging up stops it, unless detach=1. CALLER may be \"new\", or an id that is free, with a repo",
			Query: execQuery{}, Request: ExecRequest{}, Response: ExecLine{}, Media: route.MediaLines, Body: -1, Handle: s.exec},
		{Method: "GET", Pattern: "/api/callers/{caller}/log", Access: route.AccessRead, Summary: "Every command and commit of a caller, newest first",
			Query: callerLogQuery{}, Response: []LogEntry{}, Handle: s.callerLog},
		{Method: "GET", Pattern: "/api/callers/{caller}/diff", Access: route.AccessRead, Summary: "What a caller changed, as git writes it",
			Query: callerDiffQuery{}, Media: route.MediaText, Handle: s.callerDiff},
		{Method: "GET", Pattern: "/api/callers/{caller}/changes", Access: route.AccessRead, Summary: "The files a caller changed",
			Response: []gitd.Change{}, Handle: s.callerChanges},
		{Method: "POST", Pattern: "/api/callers/{caller}/merge", Access: route.AccessWrite, Summary: "Bring a caller's branch into another; a conflict is an answer",
			Request: record.Merge{}, Response: gitd.MergeResult{}, Handle: s.merge},
		{Method: "POST", Pattern: "/api/callers/{caller}/rollback", Access: route.AccessWrite, Summary: "Make a caller's branch look as it did at an earlier commit, by a new commit",
			Request: Rollback{}, Response: RolledBack{}, Handle: s.rollback},
		{Method: "POST", Pattern: "/api/callers/{caller}/stop", Access: route.AccessWrite, Summary: "Stop all runs of a caller and remove its container",
			Response: executor.CallerStatus{}, Handle: s.stopCaller},
		{Method: "GET", Pattern: "/api/callers/{caller}/sessions", Access: route.AccessRead, Summary: "A caller's sessions with agents, by agent and label, the most recently used first",
			Response: []executor.Session{}, Handle: s.sessions},
		{Method: "GET", Pattern: "/api/callers/{caller}/processes", Access: route.AccessRead, Summary: "A caller's background processes",
			Response: []executor.Process{}, Handle: s.processes},
		{Method: "GET", Pattern: "/api/callers/{caller}/processes/{process}/output", Access: route.AccessRead, Summary: "What a background process has printed; follow=1 goes on until it ends",
			Query: processQuery{}, Response: ExecLine{}, Media: route.MediaLines, Handle: s.processOutput},
		{Method: "DELETE", Pattern: "/api/callers/{caller}/processes/{process}", Access: route.AccessWrite, Summary: "End a background process",
			Response: none{}, Handle: s.stopProcess},
		{Method: "GET", Pattern: "/api/callers/{caller}/ports", Access: route.AccessRead, Summary: "The ports that something listens at in a caller's container, with links that show it",
			Response: []Port{}, Handle: s.ports},
		{Method: "POST", Pattern: "/api/callers/{caller}/ports/{port}/connect", Access: route.AccessWrite, Summary: "A connection to a port of a caller's container, in place of this one: with `Connection: Upgrade`, `Upgrade: ramus-tcp`; the answer is 101",
			Media: route.MediaBytes, Body: -1, Handle: s.connectPort},

		// Evidence, for people: by a signed link.
		{Method: "GET", Pattern: "/evidence/{caller}/{run}", Access: route.AccessSigned, Summary: "The page of a run: what was asked, run, changed and checked",
			Query: SignedQuery{}, Media: route.MediaHTML, Handle: s.evidencePage},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/status.json", Access: route.AccessSigned, Summary: "How a run stands",
			Query: SignedQuery{}, Response: EvidenceStatus{}, Handle: s.evidenceStatus},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/bundle.tar.gz", Access: route.AccessSigned, Summary: "All files of a run's evidence, once the run has ended or waits",
			Query: SignedQuery{}, Media: "application/gzip", Handle: s.evidenceBundle},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/files/{name...}", Access: route.AccessSigned, Summary: "One file of a run's evidence, by its name in the manifest; view=1 shows text, pictures and films in a page",
			Query: fileQuery{}, Media: route.MediaBytes, Handle: s.evidenceFile},

		// Previews, for people: by a signed link, which leads to where the second row, or a host of its own, shows it.
		{Method: "GET", Pattern: "/preview/{caller}/{port}/{$}", Access: route.AccessSigned, Summary: "What listens at a port of a caller's container: leads to its own origin",
			Query: SignedQuery{}, Media: route.MediaHTML, Handle: s.openPreview},
		{Pattern: "/preview/{caller}/{port}/{pass}/{path...}", Access: route.AccessPreview, Summary: "What listens at a port of a caller's container, where previews have no origin of their own",
			Media: route.MediaHTML, Body: -1, Handle: s.pathPreview},

		// Messages that are signed by who sends them.
		{Method: "POST", Pattern: "/hooks/deploy", Access: route.AccessHook, Summary: "Hear of a deploy: the base follows to its commit",
			Request: upstream.Deploy{}, Response: Deployed{}, Body: deployBody, Handle: s.deployHook},

		// Everything at once, and administration.
		{Method: "GET", Pattern: "/api/watch", Access: route.AccessRead, Summary: "Follow all that happens from now on",
			Query: watchQuery{}, Response: record.Event{}, Media: route.MediaSSE, Handle: s.watch},
		{Method: "POST", Pattern: "/api/tokens", Access: route.AccessAdmin, Summary: "Make a token",
			Request: NewToken{}, Response: Token{}, Handle: s.newToken},
		{Method: "POST", Pattern: "/api/reindex", Access: route.AccessAdmin, Summary: "Build the index anew from the repositories",
			Response: Reindexed{}, Handle: s.reindex},
		{Method: "POST", Pattern: "/api/prune", Access: route.AccessAdmin, Summary: "Remove what is not kept: old branches of callers, runs, layers, artifacts",
			Request: executor.Pruning{}, Response: []executor.Pruned{}, Handle: s.prune},
	}
}

// TaskInfo describes a library task.
type TaskInfo struct {
	Name     string          `json:"name"`
	Doc      string          `json:"doc"`
	ReadOnly bool            `json:"read_only,omitempty"`
	Schema   json.RawMessage `json:"schema"` // JSON Schema of the parameters
}

// Checked is the outcome of a check that found nothing; mistakes are a Problem.
type Checked struct {
	ID   string            `json:"id"`
	Repo executor.RepoSpec `json:"repo"`
}
