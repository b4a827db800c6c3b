package runner

// Config is the one argument of `ramus runner`, as JSON.
type Config struct {
	// Listen is where the SSH server accepts: "unix:/path", or "fd:3" for a
	// listening socket inherited from the process that started the runner.
	Listen string
	// ClientKey is the one authorized_keys line that is let in.
	ClientKey string
	// UID and GID are the user of commands. 0 is the runner's own user: the
	// Sandbox, whose user namespace holds a single one.
	UID, GID int
	// Spool is a folder on disk, writable by the runner, where output is kept
	// in unlinked files until it is forgotten.
	Spool string
	// Work is the work tree, where commands run; default /work.
	Work string
	// Env is the environment of every command, "K=V".
	Env []string
	// Output is how many bytes of stdout, and of stderr, are kept per command;
	// the rest is counted and dropped. Default 1 GiB.
	Output int64
	// FileSize is the largest file a command may write; default 8 GiB.
	FileSize int64
	// DiskFree is how many bytes the file system of Work must keep free; a
	// command under which it falls below is killed. 0 is 512 MiB, negative no limit.
	DiskFree int64
	// PIDs is how many processes the commands' user may have, where no cgroup
	// says so; default 512. It is applied only when UID is 0.
	PIDs int64
}
