package runner

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// diskGuard reports when a command uses the disk space that must stay free.
type diskGuard struct {
	dirs  []string
	floor []int64
}

func newDiskGuard(c Config) *diskGuard {
	g := &diskGuard{}
	if c.DiskFree < 0 {
		return g
	}
	for _, dir := range []string{c.Work, c.Spool} {
		free, ok := diskFree(dir)
		if !ok {
			continue
		}
		floor := c.DiskFree
		if free < floor {
			// Too little is free already. The command may run, because it may be the one that cleans up, but must not
			// take the rest.
			floor = free / 2
		}
		g.dirs, g.floor = append(g.dirs, dir), append(g.floor, floor)
	}
	return g
}

func (g *diskGuard) short() bool {
	for i, dir := range g.dirs {
		if free, ok := diskFree(dir); ok && free < g.floor[i] {
			return true
		}
	}
	return false
}

func diskFree(dir string) (int64, bool) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, false
	}
	return int64(st.Bavail) * st.Bsize, true
}

// memoryFiles are the files that describe a container's own cgroup, for versions 2 and 1.
var memoryFiles = []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"}

// oomKills returns the number of processes that the kernel has killed because memory ran out. Returns 0 if it is not
// known.
func (s *server) oomKills() int64 {
	files := memoryFiles
	if s.cfg.Memory != "" {
		files = []string{s.cfg.Memory}
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		return ParseOOMKills(string(b))
	}
	return 0
}

// ParseOOMKills returns the count in memory.events or memory.oom_control.
func ParseOOMKills(text string) int64 {
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
