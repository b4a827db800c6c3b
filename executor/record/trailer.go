package record

// The trailers of commits that ramus makes for commands. They name the caller, and record how the
// command ended.
const (
	TrailerCaller = "Ramus-Caller"
	TrailerRun    = "Ramus-Run"
	TrailerStep   = "Ramus-Step"
	TrailerExit   = "Ramus-Exit"
	// TrailerReason is only in commits of commands that did not end by themselves.
	TrailerReason = "Ramus-Reason"
	// TrailerUncommitted is only in commits that do not hold all files of the work tree.
	TrailerUncommitted = "Ramus-Uncommitted"
	// TrailerRepo is only in commits in additional repositories of a caller. It names the repository that has the run.
	TrailerRepo = "Ramus-Repository"
	// TrailerUndoes is only in commits that take the work of a run out of a branch. It names the run as CALLER/RUN.
	TrailerUndoes = "Ramus-Undoes"
	// TrailerRemark is only in commits of suggestions that people took. It names the comment that has the suggestion.
	TrailerRemark = "Ramus-Remark"
	// TrailerImported is only in records of runs that came in a file of another server. It names the run there.
	TrailerImported = "Ramus-Imported"
)
