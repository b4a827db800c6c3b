package containers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/runner"
)

// cgroupRoot is where sandboxes' control groups are made: below ramus's own
// group, so that a limit set on ramus as a whole holds for what it starts.
//
// With version 1 every controller has a hierarchy of its own, and only root may
// write there. With version 2 there is one; a user may write below a group that
// was delegated to it, as systemd does for `systemd-run --user --scope
// -p Delegate=yes`, and for everything below user@UID.service.
type cgroupRoot struct {
	// v1 has a folder a controller ("memory", "pids", "cpu"); v2 is one folder
	// with the controllers that it hands on. At most one of the two is set.
	v1          map[string]string
	v2          string
	controllers []string // of v2
}

var cgroupControllers = []string{"memory", "pids", "cpu"}

func (c *cgroupRoot) usable() bool { return c != nil && (len(c.v1) > 0 || c.v2 != "") }

// limits tells whether a controller is at hand.
func (c *cgroupRoot) limits(controller string) bool {
	if c == nil {
		return false
	}
	return c.v1[controller] != "" || c.v2 != "" && slices.Contains(c.controllers, controller)
}

// cgroupMount is a cgroup file system seen by this process.
type cgroupMount struct {
	point, root string
	v2          bool
	options     []string // of version 1: the controllers
}

// parseCgroupMounts reads /proc/self/mountinfo. Lines that are not of a cgroup
// file system, or make no sense, are left out.
func parseCgroupMounts(r io.Reader) []cgroupMount {
	var mounts []cgroupMount
	sc := bufio.NewScanner(io.LimitReader(r, 4<<20))
	for sc.Scan() {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup":
			mounts = append(mounts, cgroupMount{point: unescapeMount(f[4]), root: unescapeMount(f[3]), options: strings.Split(g[2], ",")})
		case "cgroup2":
			mounts = append(mounts, cgroupMount{point: unescapeMount(f[4]), root: unescapeMount(f[3]), v2: true})
		}
	}
	return mounts
}

// unescapeMount undoes the octal escapes of mountinfo (\040 for a space).
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// parseCgroupPaths reads /proc/self/cgroup: controller to path, "" being version 2.
func parseCgroupPaths(r io.Reader) map[string]string {
	paths := map[string]string{}
	sc := bufio.NewScanner(io.LimitReader(r, 1<<20))
	for sc.Scan() {
		f := strings.SplitN(sc.Text(), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			paths[c] = f[2]
		}
	}
	return paths
}

// folder is where a group's path lies on this mount; a mount may show a part of
// the hierarchy only, as in a container.
func (m cgroupMount) folder(path string) string {
	rel, err := filepath.Rel(m.root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		rel = "." // the mount's own root is the nearest that is visible
	}
	return filepath.Join(m.point, rel)
}

// findCgroups looks where groups can be made. It leaves nothing behind.
func findCgroups() *cgroupRoot {
	mi, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return &cgroupRoot{}
	}
	defer mi.Close()
	pf, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return &cgroupRoot{}
	}
	defer pf.Close()
	mounts, paths := parseCgroupMounts(mi), parseCgroupPaths(pf)

	c := &cgroupRoot{v1: map[string]string{}}
	for _, m := range mounts {
		if m.v2 {
			continue
		}
		for _, name := range cgroupControllers {
			path, ok := paths[name]
			if !ok || !slices.Contains(m.options, name) {
				continue
			}
			if dir := m.folder(path); canMakeGroup(dir) {
				c.v1[name] = filepath.Join(dir, "ramus")
			}
		}
	}
	if len(c.v1) > 0 {
		return c
	}
	for _, m := range mounts {
		if !m.v2 {
			continue
		}
		// The nearest group from ours up that may hand its controllers on. Ours
		// cannot as long as it holds processes, unless it is the root.
		own := m.folder(paths[""])
		stepAside(own)
		for dir := own; ; dir = filepath.Dir(dir) {
			if got := enableControllers(dir); slices.Contains(got, "memory") && slices.Contains(got, "pids") && canMakeGroup(dir) {
				return &cgroupRoot{v2: filepath.Join(dir, "ramus"), controllers: got}
			}
			if dir == m.point || len(dir) <= len(m.point) {
				break
			}
		}
	}
	return &cgroupRoot{}
}

// canMakeGroup tries; permission bits do not tell (the mount may be read-only).
func canMakeGroup(dir string) bool {
	p := filepath.Join(dir, "ramus-try-"+newSandboxID())
	if os.Mkdir(p, 0o755) != nil {
		return false
	}
	return os.Remove(p) == nil
}

// enableControllers asks a version 2 group to hand our controllers on, and
// returns those that it does.
func enableControllers(dir string) []string {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
		return nil
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	for _, name := range cgroupControllers {
		if slices.Contains(strings.Fields(string(have)), name) {
			// One at a time, so that one that is refused does not cost the others.
			writeControl(control, "+"+name)
		}
	}
	on, err := os.ReadFile(control)
	if err != nil {
		return nil
	}
	return strings.Fields(string(on))
}

// stepAside moves this process, where it is alone in a group that is its own,
// into a group below: only a group without processes hands controllers on. That
// is how `systemd-run --scope -p Delegate=yes` starts ramus.
func stepAside(dir string) {
	if len(enableControllers(dir)) > 0 {
		return // the root, or done already
	}
	self := strconv.Itoa(os.Getpid())
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(procs)) != self || unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) != nil {
		return
	}
	below := filepath.Join(dir, "ramus-server")
	if os.Mkdir(below, 0o755) != nil {
		return
	}
	if writeControl(filepath.Join(below, "cgroup.procs"), self) != nil {
		os.Remove(below)
		return
	}
	if len(enableControllers(dir)) == 0 { // there are none to be had
		writeControl(filepath.Join(dir, "cgroup.procs"), self)
		os.Remove(below)
	}
}

// writeControl writes a control file, which must exist.
func writeControl(name, value string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// folders names the groups of one container.
func (c *cgroupRoot) folders(id string) []string {
	if c.v2 != "" {
		return []string{filepath.Join(c.v2, id)}
	}
	var dirs []string
	for _, name := range cgroupControllers {
		if dir, ok := c.v1[name]; ok {
			dirs = append(dirs, filepath.Join(dir, id))
		}
	}
	return dirs
}

// runnerTasks is what the runner's own threads may take beyond what commands
// are allowed. The group's limit lies as much higher again than the user's
// limit: a fork storm must not keep process 1 from starting a thread.
const runnerTasks = 64

const cpuPeriod = 100_000 // µs

// create makes the groups and sets their limits.
func (c *cgroupRoot) create(dirs []string, l Limits) error {
	memory, pids := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.PIDs, 10)
	quota := strconv.FormatInt(max(int64(l.CPUs*cpuPeriod), 1000), 10)
	for _, dir := range dirs {
		parent := filepath.Dir(dir)
		if err := c.makeGroup(parent, dir); err != nil {
			return fmt.Errorf("cannot make a control group: %w", err)
		}
		type setting struct {
			file, value string
			optional    bool
		}
		var set []setting
		switch {
		case c.v2 != "":
			set = []setting{
				{"memory.max", memory, false}, {"memory.swap.max", "0", true}, {"memory.oom.group", "0", true},
				{"pids.max", pids, false},
				{"cpu.max", fmt.Sprintf("%s %d", quota, cpuPeriod), !c.limits("cpu")},
			}
		case parent == c.v1["memory"]:
			// memory+swap may only be lowered to a limit that memory alone keeps already.
			set = []setting{{"memory.limit_in_bytes", memory, false}, {"memory.memsw.limit_in_bytes", memory, true}}
		case parent == c.v1["pids"]:
			set = []setting{{"pids.max", pids, false}}
		case parent == c.v1["cpu"]:
			set = []setting{{"cpu.cfs_period_us", strconv.Itoa(cpuPeriod), true}, {"cpu.cfs_quota_us", quota, false}}
		}
		for _, s := range set {
			if err := writeControl(filepath.Join(dir, s.file), s.value); err != nil && !s.optional {
				return fmt.Errorf("cannot limit a control group: %w", err)
			}
		}
	}
	return nil
}

// oomKills counts what the kernel has killed in the groups for want of memory,
// and peak is the most they used, in bytes; both are 0 where that is not known.
func (c *cgroupRoot) oomKills(dirs []string) int64 {
	f, err := c.oomFile(dirs)
	if err != nil || f == nil {
		return 0
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return 0
	}
	return runner.ParseOOMKills(string(b))
}

func (c *cgroupRoot) peak(dirs []string) int64 {
	for _, dir := range dirs {
		if n := groupPeak(dir); n > 0 {
			return n
		}
	}
	return 0
}

func groupPeak(dir string) int64 {
	for _, name := range []string{"memory.peak", "memory.max_usage_in_bytes"} { // of version 2 and 1
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
			return n
		}
	}
	return 0
}

// MemoryPeak is the most memory in bytes that the control group of a process has used; 0
// where that is not known. The group's path must contain id, as that of a container of
// an engine on this machine does: elsewhere the number of its process is another's here.
func MemoryPeak(pid int, id string) int64 {
	mi, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return 0
	}
	defer mi.Close()
	pf, err := os.Open("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return 0
	}
	defer pf.Close()
	paths := parseCgroupPaths(pf)
	for _, m := range parseCgroupMounts(mi) {
		path, there := paths[""]
		if !m.v2 {
			if path, there = paths["memory"]; !slices.Contains(m.options, "memory") {
				continue
			}
		}
		if !there || !strings.Contains(path, id) {
			continue
		}
		if n := groupPeak(m.folder(path)); n > 0 {
			return n
		}
	}
	return 0
}

// oomFile opens the file in which the kernel counts what it killed for want of
// memory; nil when memory is not limited.
func (c *cgroupRoot) oomFile(dirs []string) (*os.File, error) {
	if !c.limits("memory") {
		return nil, nil
	}
	for _, dir := range dirs {
		if c.v2 != "" {
			return os.Open(filepath.Join(dir, "memory.events"))
		}
		if filepath.Dir(dir) == c.v1["memory"] {
			return os.Open(filepath.Join(dir, "memory.oom_control"))
		}
	}
	return nil, nil
}

// makeGroup makes a group and its parent. The removal of the last container
// takes the parent away, maybe just now: hence the second and third try.
func (c *cgroupRoot) makeGroup(parent, dir string) error {
	for try := 0; ; try++ {
		if err := os.Mkdir(parent, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if c.v2 != "" {
			enableControllers(parent)
		}
		err := os.Mkdir(dir, 0o755)
		if !errors.Is(err, fs.ErrNotExist) || try == 100 {
			return err
		}
	}
}

// join moves the calling thread, and so what it starts, into version 1 groups.
// The caller has locked its goroutine to the thread and lets it die afterwards.
func (c *cgroupRoot) join(dirs []string) error {
	if c.v2 != "" {
		return nil // the child is cloned into its group: see sandboxBox.start
	}
	tid := strconv.Itoa(unix.Gettid())
	for _, dir := range dirs {
		if err := writeControl(filepath.Join(dir, "tasks"), tid); err != nil {
			return fmt.Errorf("cannot enter a control group: %w", err)
		}
	}
	return nil
}

// removeCgroups kills what is left in the groups and removes them, and their
// common parent when it was the last.
func removeCgroups(ctx context.Context, dirs []string) error {
	for _, dir := range dirs {
		for {
			err := os.Remove(dir)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if !errors.Is(err, unix.EBUSY) {
				return fmt.Errorf("cannot remove a control group: %w", err)
			}
			if b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err == nil {
				for _, f := range strings.Fields(string(b)) {
					if pid, err := strconv.Atoi(f); err == nil && pid > 1 && pid != os.Getpid() {
						unix.Kill(pid, unix.SIGKILL)
					}
				}
			}
			// The kernel empties a group a moment after its last process is gone.
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("cannot remove control group %s: %w", dir, ctx.Err())
			}
		}
		os.Remove(filepath.Dir(dir)) // fails while other containers are in it
	}
	return nil
}
