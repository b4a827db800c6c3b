package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gliderlabs/ssh"
)

// Config is the one argument of `ramus runner`, as JSON. The runner's own
// environment is the base of every command's, so whoever starts it passes on
// the image's variables and nothing of the host's.
type Config struct {
	// Listen is where the SSH server accepts: "unix:/path", or "fd:3" for a
	// listening socket inherited from the process that started the runner.
	// The folder of the path must be closed to the commands' user.
	Listen string
	// ClientKey is the one authorized_keys line that is let in.
	ClientKey string
	// UID and GID are the user of commands. 0 is the runner's own user: the
	// Sandbox, whose user namespace holds a single one. Otherwise the runner
	// needs the capabilities SETUID, SETGID, KILL and, at its start, CHOWN;
	// with SETPCAP it also empties the bounding set of commands.
	UID, GID int
	// Spool is a folder on disk, writable by the runner, where output is kept
	// in unlinked files until it is forgotten.
	Spool string
	// Work is the work tree, where commands run; default /work.
	Work string
	// Env is added to the environment of every command, "K=V".
	Env []string
	// Door is the address inside whose connections go to the host; default
	// 127.0.0.1:7070.
	Door string
	// Output is how many bytes of stdout, and of stderr, are kept per command;
	// the rest is counted and dropped. Default 1 GiB, never more than FileSize.
	Output int64
	// FileSize is the largest file a command may write; default 8 GiB.
	FileSize int64
	// DiskFree is how many bytes the file system of Work must keep free; a
	// command under which it falls below is killed. 0 is 512 MiB, negative no limit.
	DiskFree int64
	// PIDs is how many processes and threads the commands' user may have where
	// no cgroup says so; 0 is no limit. It is applied only when UID is 0, and
	// counts the runner's own threads.
	PIDs int64
	// Memory is the file whose "oom_kill" line counts what the kernel killed
	// for want of memory; empty looks in /sys/fs/cgroup.
	Memory string
	// Commands is how many commands are remembered; default 10,000.
	Commands int
}

// doorDefault is where commands find the door unless a Config says otherwise.
const doorDefault = "127.0.0.1:7070"

// parseConfig reads a Config and fills in the defaults.
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
	if c.UID != 0 && c.GID == 0 {
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
	if !filepath.IsAbs(c.Work) || !filepath.IsAbs(c.Spool) {
		return c, nil, errors.New("cannot use relative paths as Work and Spool")
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
