// Package past answers questions about work that was done.
//
// [API.Why] explains lines of a file. Package executor/provenance finds the causes; this package finds the repository
// and the commit that the caller of a request means, with its rights.
//
// [API.Bisect] finds the first bad commit of a branch. Package executor/trial tries the commits. [API.Undo] takes the
// work of a run out of a branch, [API.Pick] brings single steps to one, and [API.Replay] runs the commands of a run
// again.
//
// [API.Fork] begins a new caller at a step of another one, and [API.Restart] a workflow at a node.
//
// [API.Begin] begins a tournament of agents, and [API.Take] takes the work of one of them. Package executor/tournament
// ranks the entries.
//
// [API.Radar] lists the branches that do not merge. Package executor/radar finds them.
//
// [API.Search] finds words in runs. Package executor/search has the index.
//
// # Invariants
//
// The caller of a request gets only lines, commits and runs that its grant lets it see.
package past
