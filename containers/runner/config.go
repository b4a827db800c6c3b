package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/gliderlabs/ssh"
)

// Config is the argument of `ramus runner`, as JSON. The environment of the runner is part of every command's. So the
// runner must be started with the variables of the image and none of the host.
type Config struct {
	// Listen is the address of the SSH server. It is "unix:/path", or "fd:3" for a listening socket inherited from the
	// process that started the runner. The commands' user must not be able to enter the folder of the path.
	Listen string
	// ClientKey is the only accepted key, as a line of authorized_keys.
	ClientKey string
	// UID and GID are the user of commands. 0 means the runner's own user, for the Sandbox, whose user namespace has
	// only one. Otherwise the runner needs the capabilities SETUID, SETGID, KILL and, at its start, CHOWN. With SETPCAP
	// it also empties the bounding set of commands.
	UID, GID int
	// Program means that the commands are the program of an image, which may need more than a user of its own. They keep the
	// capabilities of the container and begin in Dir. User is the image's, by name or number, with a group after a colon. It
	// takes the place of UID and GID. The empty User is root.
	Program   bool
	User, Dir string
	// Spool is a folder on disk, writable by the runner. Unlinked files in it keep the output of commands until the
	// commands are forgotten.
	Spool string
	// Work is the work tree, in which commands run. The default is /work.
	Work string
	// Env is added to the environment of every command, "K=V".
	Env []string
	// Door is the address inside whose connections go to the host. The default is 127.0.0.1:7070.
	Door string
	// DoorFolder is a folder that the runner makes, with the unix socket door.sock, whose connections go to the host as
	// those of Door do, and with gh/config.yml, which leads the GitHub CLI to the socket. Empty means none.
	DoorFolder string
	// Sealed has the runner refuse to start while the container has a network interface other than the loopback.
	Sealed bool
	// UserPIDs has PIDs limit the processes of the commands' user, if the container has a user namespace of its own. It
	// is for engines that have no limit for a container.
	UserPIDs bool
	// Without has the prefixes of the names of variables that the runner has and commands do not get.
	Without []string
	// Idle is the time after which a silent connection is closed. The default is 2 minutes. A live peer sends
	// keepalives far more often, unless its connection is being made again.
	Idle time.Duration
	// Alive is a file without which the runner ends, and all commands with it. It looks each minute. Empty means none.
	Alive string
	// Output is the number of bytes of stdout, and of stderr, that are kept for each command. Further bytes are counted
	// and dropped. The default is 1 GiB, and the maximum is FileSize.
	Output int64
	// FileSize is the size of the largest file that a command may write. The default is 8 GiB.
	FileSize int64
	// DiskFree is the number of bytes that the file system of Work must keep free. A command is killed if the free
	// space falls below it. 0 means 512 MiB. A negative value means no limit.
	DiskFree int64
	// PIDs bounds the processes and threads of the commands' user where no cgroup does. 0 means no limit. It is applied
	// only if UID is 0, and includes the runner's own threads.
	PIDs int64
	// Memory is the file whose "oom_kill" line counts processes that the kernel killed because memory ran out. If it is
	// empty, the file is below /sys/fs/cgroup.
	Memory string
	// Commands is the number of commands that are remembered. The default is 10,000.
	Commands int
	// Threads is the number of threads that the runner makes at its start. A fork bomb takes the container's whole limit of
	// processes, which includes threads, and a Go program dies if it cannot start a thread. The default is 24. A machine with a
	// thousand runners may not have room for as many.
	Threads int
}

// doorDefault is the address of the door if a Config has none.
const doorDefault = "127.0.0.1:7070"

// parseConfig reads a Config and sets its defaults.
func parseConfig(text string) (Config, ssh.PublicKey, error) {
	var c Config
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, nil, fmt.Errorf("cannot read the configuration: %w", err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(c.ClientKey))
	if err != nil {
		return c, nil, fmt.Errorf("cannot read ClientKey: %w", err)
	}
	if c.UID < 0 || c.GID < 0 {
		return c, nil, errors.New("a negative UID or GID")
	}
	if c.Threads < 0 || c.Threads > maxThreads {
		return c, nil, fmt.Errorf("cannot make %d threads: want 1 to %d", c.Threads, maxThreads)
	}
	if c.Program {
		if c.UID, c.GID, err = findUser(c.User); err != nil {
			return c, nil, err
		}
	}
	if c.UID != 0 && c.GID == 0 && !c.Program {
		return c, nil, errors.New("no GID: commands would have the group root")
	}
	if c.Spool == "" {
		return c, nil, errors.New("no Spool")
	}
	c.Work = defaulted(c.Work, "/work")
	c.Door = defaulted(c.Door, doorDefault)
	c.FileSize = defaulted(c.FileSize, 8<<30)
	c.Output = min(defaulted(c.Output, 1<<30), c.FileSize)
	c.DiskFree = defaulted(c.DiskFree, 512<<20)
	c.Commands = defaulted(c.Commands, 10_000)
	c.Threads = defaulted(c.Threads, spareThreads)
	c.Dir = defaulted(c.Dir, c.Work)
	if !filepath.IsAbs(c.Work) || !filepath.IsAbs(c.Spool) || !filepath.IsAbs(c.Dir) {
		return c, nil, errors.New("cannot use relative paths as Work, Spool and Dir")
	}
	for _, kv := range c.Env {
		if !validVariable(kv) {
			return c, nil, fmt.Errorf("cannot use %q in Env: it is not K=V", kv)
		}
	}
	return c, key, nil
}

func defaulted[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

func validVariable(kv string) bool {
	return strings.IndexByte(kv, '=') > 0 && strings.IndexByte(kv, 0) < 0
}
