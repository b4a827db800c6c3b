package gateway

import (
	"encoding/json"
	"slices"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// The types of streams and of answers that are no JSON.
const (
	mediaSSE   = "text/event-stream"
	mediaLines = "application/x-ndjson"
	mediaHTML  = "text/html; charset=utf-8"
	mediaText  = "text/plain; charset=utf-8"
	mediaBytes = "application/octet-stream"
)

// workflowBody bounds requests that carry a workflow; the parser has a tighter
// limit of its own, whose message says more.
const workflowBody = 16 << 20

// promptBody bounds what is said to an agent; the executor has a tighter limit
// of its own, but JSON may write a byte as six.
const promptBody = 2 << 20

// routes is every way in, on one screen.
func (s *Server) routes() []Route {
	return slices.Concat(s.apiRoutes(), taskRoutes(), mcpRoutes(), slackHooks(), githubHooks(), githubRoutes(), signInRoutes(), traceRoutes(), []Route{
		// /NAME.git/… and /NAME/…, and the answer to what is no route.
		{Pattern: "/", Access: AccessGit, Summary: "Repositories, for git clients", Body: -1, Handle: (*call).fallback},
	})
}

func (s *Server) apiRoutes() []Route {
	type none = struct{}
	return []Route{
		// About the server.
		{Method: "GET", Pattern: "/health", Access: AccessPublic, Summary: "Version, engine, limits and what is going on",
			Response: Health{}, Handle: (*call).health},
		{Method: "GET", Pattern: "/metrics", Access: AccessMetrics, Summary: "Numbers for Prometheus",
			Media: mediaText, Handle: (*call).scrape},
		{Method: "GET", Pattern: "/.well-known/jwks.json", Access: AccessPublic, Summary: "The key that signs grants (RFC 7517)",
			Response: json.RawMessage{}, Handle: (*call).jwks},
		{Method: "GET", Pattern: "/.well-known/allowed_signers", Access: AccessPublic, Summary: "Who signs commits here: a file for git's gpg.ssh.allowedSignersFile",
			Media: mediaText, Handle: (*call).allowedSigners},
		{Method: "GET", Pattern: "/api/openapi.json", Access: AccessPublic, Summary: "This document",
			Response: json.RawMessage{}, Handle: (*call).openapi},
		{Method: "GET", Pattern: "/api/schema/workflow", Access: AccessPublic, Summary: "The JSON Schema of workflow files",
			Response: json.RawMessage{}, Handle: (*call).workflowSchema},
		{Method: "GET", Pattern: "/api/whoami", Access: AccessRead, Summary: "Whom the token stands for",
			Response: Who{}, Handle: (*call).whoami},
		{Method: "GET", Pattern: "/api/library", Access: AccessRead, Summary: "The task library with the schemas of its parameters",
			Response: []TaskInfo{}, Handle: (*call).library},
		{Method: "POST", Pattern: "/api/check", Access: AccessRead, Summary: "Check a workflow file, which is the body",
			Query: checkQuery{}, Response: Checked{}, Body: workflowBody, Handle: (*call).check},

		// Repositories.
		{Method: "GET", Pattern: "/api/repos", Access: AccessRead, Summary: "List repositories",
			Response: []Repo{}, Handle: (*call).repos},
		{Method: "POST", Pattern: "/api/repos", Access: AccessAdmin, Summary: "Create an empty repository, or import one; the answer streams progress",
			Request: CreateRepo{}, Response: Progress{}, Media: mediaLines, Handle: (*call).createRepo},
		{Method: "GET", Pattern: "/api/repos/{repo}", Access: AccessRead, Summary: "One repository",
			Response: Repo{}, Handle: (*call).repo},
		{Method: "POST", Pattern: "/api/repos/{repo}/refresh", Access: AccessWrite, Summary: "Fast-forward the base from its upstream; the answer streams progress",
			Request: RefreshRepo{}, Response: Progress{}, Media: mediaLines, Handle: (*call).refreshRepo},
		{Method: "GET", Pattern: "/api/repos/{repo}/bases", Access: AccessRead, Summary: "The signed manifests of the base, newest first, checked",
			Query: basesQuery{}, Response: Bases{}, Handle: (*call).bases},
		{Method: "GET", Pattern: "/api/repos/{repo}/log", Access: AccessRead, Summary: "Commits, newest first",
			Query: logQuery{}, Response: []gitd.Commit{}, Handle: (*call).repoLog},
		{Method: "GET", Pattern: "/api/repos/{repo}/diff", Access: AccessRead, Summary: "The difference between two commits, as git writes it",
			Query: diffQuery{}, Media: mediaText, Handle: (*call).repoDiff},
		{Method: "GET", Pattern: "/api/repos/{repo}/changes", Access: AccessRead, Summary: "The files that differ between two commits",
			Query: diffQuery{}, Response: []gitd.Change{}, Handle: (*call).repoChanges},
		{Method: "GET", Pattern: "/api/repos/{repo}/tree", Access: AccessRead, Summary: "A folder at a commit",
			Query: treeQuery{}, Response: []gitd.TreeEntry{}, Handle: (*call).repoTree},
		{Method: "GET", Pattern: "/api/repos/{repo}/file", Access: AccessRead, Summary: "A file at a commit",
			Query: treeQuery{}, Media: mediaBytes, Handle: (*call).repoFile},

		// Runs.
		{Method: "GET", Pattern: "/api/runs", Access: AccessRead, Summary: "List runs, newest first",
			Query: listQuery{}, Response: []record.Run{}, Handle: (*call).runs},
		{Method: "POST", Pattern: "/api/runs", Access: AccessWrite, Summary: "Start a run: a workflow, a command, a task or an agent",
			Request: record.Request{}, Response: record.Run{}, Body: workflowBody, Handle: (*call).submit},
		{Method: "GET", Pattern: "/api/runs/{run}", Access: AccessRead, Summary: "One run",
			Response: record.Run{}, Handle: (*call).run},
		{Method: "GET", Pattern: "/api/runs/{run}/events", Access: AccessRead, Summary: "Follow a run's journal and live output; resumes at Last-Event-ID; follow=0 lists the journal as JSON",
			Query: eventsQuery{}, Response: record.Event{}, Media: mediaSSE, Handle: (*call).events},
		{Method: "GET", Pattern: "/api/runs/{run}/output/{step}/{stream}", Access: AccessRead, Summary: "A step's whole stdout or stderr",
			Media: mediaBytes, Handle: (*call).output},
		{Method: "GET", Pattern: "/api/runs/{run}/evidence", Access: AccessRead, Summary: "What was run and changed, with checksums, once the run has ended or waits",
			Response: record.Manifest{}, Handle: (*call).evidence},
		{Method: "POST", Pattern: "/api/runs/{run}/link", Access: AccessRead, Summary: "Make a link to the page of a run's evidence that opens without a token until it expires",
			Response: EvidenceLink{}, Handle: (*call).evidenceLink},
		{Method: "POST", Pattern: "/api/runs/{run}/stop", Access: AccessWrite, Summary: "Stop a run; what stands is committed",
			Response: record.Run{}, Handle: (*call).stopRun},
		{Method: "POST", Pattern: "/api/runs/{run}/retry", Access: AccessWrite, Summary: "Start a failed run again where it failed",
			Response: record.Run{}, Handle: (*call).retry},
		{Method: "POST", Pattern: "/api/runs/{run}/say", Access: AccessWrite, Summary: "Say something to a run's agent, for its next turn; with a key, once however often it is sent",
			Request: record.Prompt{}, Response: record.Run{}, Body: promptBody, Handle: (*call).say},
		{Method: "POST", Pattern: "/api/runs/{run}/decide", Access: AccessWrite, Summary: "Answer the question a run waits with",
			Request: record.Decision{}, Response: record.Run{}, Handle: (*call).decide},

		// Callers.
		{Method: "GET", Pattern: "/api/callers", Access: AccessRead, Summary: "List callers, the most recently active first",
			Query: listQuery{}, Response: []executor.CallerStatus{}, Handle: (*call).callers},
		{Method: "GET", Pattern: "/api/callers/{caller}", Access: AccessRead, Summary: "One caller",
			Response: executor.CallerStatus{}, Handle: (*call).caller},
		{Method: "POST", Pattern: "/api/callers/{caller}/exec", Access: AccessWrite, Summary: "Run a command and stream its output; hanging up stops it, unless detach=1. CALLER may be \"new\", or an id that is free, with a repo",
			Query: execQuery{}, Request: ExecRequest{}, Response: ExecLine{}, Media: mediaLines, Body: -1, Handle: (*call).exec},
		{Method: "GET", Pattern: "/api/callers/{caller}/log", Access: AccessRead, Summary: "Every command and commit of a caller, newest first",
			Query: callerLogQuery{}, Response: []LogEntry{}, Handle: (*call).callerLog},
		{Method: "GET", Pattern: "/api/callers/{caller}/diff", Access: AccessRead, Summary: "What a caller changed, as git writes it",
			Query: callerDiffQuery{}, Media: mediaText, Handle: (*call).callerDiff},
		{Method: "GET", Pattern: "/api/callers/{caller}/changes", Access: AccessRead, Summary: "The files a caller changed",
			Response: []gitd.Change{}, Handle: (*call).callerChanges},
		{Method: "POST", Pattern: "/api/callers/{caller}/merge", Access: AccessWrite, Summary: "Bring a caller's branch into another; a conflict is an answer",
			Request: record.Merge{}, Response: gitd.MergeResult{}, Handle: (*call).merge},
		{Method: "POST", Pattern: "/api/callers/{caller}/rollback", Access: AccessWrite, Summary: "Make a caller's branch look as it did at an earlier commit, by a new commit",
			Request: Rollback{}, Response: RolledBack{}, Handle: (*call).rollback},
		{Method: "POST", Pattern: "/api/callers/{caller}/stop", Access: AccessWrite, Summary: "Stop all runs of a caller and remove its container",
			Response: executor.CallerStatus{}, Handle: (*call).stopCaller},
		{Method: "GET", Pattern: "/api/callers/{caller}/sessions", Access: AccessRead, Summary: "A caller's sessions with agents, by agent and label, the most recently used first",
			Response: []executor.Session{}, Handle: (*call).sessions},
		{Method: "GET", Pattern: "/api/callers/{caller}/processes", Access: AccessRead, Summary: "A caller's background processes",
			Response: []executor.Process{}, Handle: (*call).processes},
		{Method: "GET", Pattern: "/api/callers/{caller}/processes/{process}/output", Access: AccessRead, Summary: "What a background process has printed; follow=1 goes on until it ends",
			Query: processQuery{}, Response: ExecLine{}, Media: mediaLines, Handle: (*call).processOutput},
		{Method: "DELETE", Pattern: "/api/callers/{caller}/processes/{process}", Access: AccessWrite, Summary: "End a background process",
			Response: none{}, Handle: (*call).stopProcess},
		{Method: "GET", Pattern: "/api/callers/{caller}/ports", Access: AccessRead, Summary: "The ports that something listens at in a caller's container, with links that show it",
			Response: []Port{}, Handle: (*call).ports},
		{Method: "POST", Pattern: "/api/callers/{caller}/ports/{port}/connect", Access: AccessWrite, Summary: "A connection to a port of a caller's container, in place of this one: with `Connection: Upgrade`, `Upgrade: ramus-tcp`; the answer is 101",
			Media: mediaBytes, Body: -1, Handle: (*call).connectPort},

		// Evidence, for people: by a signed link.
		{Method: "GET", Pattern: "/evidence/{caller}/{run}", Access: AccessSigned, Summary: "The page of a run: what was asked, run, changed and checked",
			Query: signedQuery{}, Media: mediaHTML, Handle: (*call).evidencePage},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/status.json", Access: AccessSigned, Summary: "How a run stands",
			Query: signedQuery{}, Response: EvidenceStatus{}, Handle: (*call).evidenceStatus},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/bundle.tar.gz", Access: AccessSigned, Summary: "All files of a run's evidence, once the run has ended or waits",
			Query: signedQuery{}, Media: "application/gzip", Handle: (*call).evidenceBundle},
		{Method: "GET", Pattern: "/evidence/{caller}/{run}/files/{name...}", Access: AccessSigned, Summary: "One file of a run's evidence, by its name in the manifest; view=1 shows text, pictures and films in a page",
			Query: fileQuery{}, Media: mediaBytes, Handle: (*call).evidenceFile},

		// Previews, for people: by a signed link, which leads to where the second row, or a host of its own, shows it.
		{Method: "GET", Pattern: "/preview/{caller}/{port}/{$}", Access: AccessSigned, Summary: "What listens at a port of a caller's container: leads to its own origin",
			Query: signedQuery{}, Media: mediaHTML, Handle: (*call).openPreview},
		{Pattern: "/preview/{caller}/{port}/{pass}/{path...}", Access: AccessPreview, Summary: "What listens at a port of a caller's container, where previews have no origin of their own",
			Media: mediaHTML, Body: -1, Handle: (*call).pathPreview},

		// Messages that are signed by who sends them.
		{Method: "POST", Pattern: "/hooks/deploy", Access: AccessHook, Summary: "Hear of a deploy: the base follows to its commit",
			Request: executor.Deploy{}, Response: Deployed{}, Body: deployBody, Handle: (*call).deployHook},

		// Everything at once, and administration.
		{Method: "GET", Pattern: "/api/watch", Access: AccessRead, Summary: "Follow all that happens from now on",
			Query: watchQuery{}, Response: record.Event{}, Media: mediaSSE, Handle: (*call).watch},
		{Method: "POST", Pattern: "/api/tokens", Access: AccessAdmin, Summary: "Make a token",
			Request: NewToken{}, Response: Token{}, Handle: (*call).newToken},
		{Method: "POST", Pattern: "/api/reindex", Access: AccessAdmin, Summary: "Build the index anew from the repositories",
			Response: Reindexed{}, Handle: (*call).reindex},
		{Method: "POST", Pattern: "/api/prune", Access: AccessAdmin, Summary: "Remove what is not kept: old branches of callers, runs, layers, artifacts",
			Request: executor.Pruning{}, Response: []executor.Pruned{}, Handle: (*call).prune},
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
