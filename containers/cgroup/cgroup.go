package cgroup

import (
	"bufio"
	"context"
	"crypto/rand"
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

// Root is the place of the control groups of containers.
//
// With version 1 each controller has a hierarchy of its own, and only root may write there. With version 2 there is one
// hierarchy. A user may write below a group that was delegated to the user, as systemd does for
// `systemd-run --user --scope -p Delegate=yes`, and for all groups below user@UID.service.
//
// The zero value and nil have no groups.
type Root struct {
	// At most one of v1 and v2 is set.
	v1          map[string]string // a folder for each controller ("memory", "pids", "cpu")
	v2          string            // one folder for all controllers
	controllers []string          // those that v2 hands on
}

// Unified returns the Root at a folder of version 2 that exists or can be made. The folder above it hands on the controllers.
func Unified(dir string, controllers ...string) *Root {
	return &Root{v2: dir, controllers: controllers}
}

// Limits are those of one container.
type Limits struct {
	Memory int64   // bytes, without swap
	PIDs   int64   // processes and threads
	CPUs   float64 // CPU time in one second, in seconds
}

var controllerNames = []string{"memory", "pids", "cpu"}

// Usable reports whether groups can be made.
func (c *Root) Usable() bool { return c != nil && (len(c.v1) > 0 || c.v2 != "") }

// Has reports whether groups can have limits of a controller: "memory", "pids" or "cpu".
func (c *Root) Has(controller string) bool {
	if c == nil {
		return false
	}
	return c.v1[controller] != "" || c.v2 != "" && slices.Contains(c.controllers, controller)
}

// mount is a mounted cgroup file system.
type mount struct {
	point, root string
	v2          bool
	options     []string // of version 1: the controllers
}

// parseMounts reads /proc/self/mountinfo. Lines of other file systems and lines
// that cannot be read are left out.
func parseMounts(r io.Reader) []mount {
	var mounts []mount
	sc := bufio.NewScanner(io.LimitReader(r, 4<<20))
	for sc.Scan() {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup":
			mounts = append(mounts, mount{point: unescape(f[4]), root: unescape(f[3]), options: strings.Split(g[2], ",")})
		case "cgroup2":
			mounts = append(mounts, mount{point: unescape(f[4]), root: unescape(f[3]), v2: true})
		}
	}
	return mounts
}

// unescape resolves the octal escapes of mountinfo (\040 for a space).
func unescape(s string) string {
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

// parsePaths reads /proc/PID/cgroup. It returns the path of each controller. The key "" is version 2.
func parsePaths(r io.Reader) map[string]string {
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

// folder returns the place of a group's path on the mount. A mount may show only a
// part of the hierarchy, as in a container.
func (m mount) folder(path string) string {
	rel, err := filepath.Rel(m.root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		rel = "." // the mount's own root is the nearest that is visible
	}
	return filepath.Join(m.point, rel)
}

// Find returns the nearest place where groups can be made. If there is none, the
// Root that it returns is not usable.
func Find() *Root {
	mi, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return &Root{}
	}
	defer mi.Close()
	pf, err := os.Open("/proc/self/cgroup")
	if err != nil {
		return &Root{}
	}
	defer pf.Close()
	mounts, paths := parseMounts(mi), parsePaths(pf)

	c := &Root{v1: map[string]string{}}
	for _, m := range mounts {
		if m.v2 {
			continue
		}
		for _, name := range controllerNames {
			path, ok := paths[name]
			if !ok || !slices.Contains(m.options, name) {
				continue
			}
			if dir := m.folder(path); canMake(dir) {
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
		// Find the nearest group, from the group of this process upwards, that may delegate its controllers. A group
		// that has processes may not, unless it is the root.
		own := m.folder(paths[""])
		stepAside(own)
		for dir := own; ; dir = filepath.Dir(dir) {
			if got := enableControllers(dir); slices.Contains(got, "memory") && slices.Contains(got, "pids") && canMake(dir) {
				return &Root{v2: filepath.Join(dir, "ramus"), controllers: got}
			}
			if dir == m.point || len(dir) <= len(m.point) {
				break
			}
		}
	}
	return &Root{}
}

// canMake makes a group and removes it. Permission bits are not enough, because the mount may be read-only.
func canMake(dir string) bool {
	p := filepath.Join(dir, "ramus-try-"+rand.Text())
	if os.Mkdir(p, 0o755) != nil {
		return false
	}
	return os.Remove(p) == nil
}

// enableControllers asks a group of version 2 to hand on our controllers. It
// returns those that the group hands on.
func enableControllers(dir string) []string {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
		return nil
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	for _, name := range controllerNames {
		if slices.Contains(strings.Fields(string(have)), name) {
			// One write for each, because a refused controller makes the whole write fail.
			writeControl(control, "+"+name)
		}
	}
	on, err := os.ReadFile(control)
	if err != nil {
		return nil
	}
	return strings.Fields(string(on))
}

// stepAside moves this process into a group below its own, if it is alone in its
// group. Only a group without processes hands on controllers. `systemd-run --scope
// -p Delegate=yes` starts ramus alone in a group.
func stepAside(dir string) {
	if len(enableControllers(dir)) > 0 {
		return // the root, or done already
	}
	self := strconv.Itoa(os.Getpid())
	procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil || strings.TrimSpace(string(procs)) != self ||
		unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) != nil {
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
	if len(enableControllers(dir)) == 0 { // the group has none
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

// Folders returns the folders of the groups of one container.
func (c *Root) Folders(id string) []string {
	if c.v2 != "" {
		return []string{filepath.Join(c.v2, id)}
	}
	var dirs []string
	for _, name := range controllerNames {
		if dir, ok := c.v1[name]; ok {
			dirs = append(dirs, filepath.Join(dir, id))
		}
	}
	return dirs
}

const cpuPeriod = 100_000 // µs

// Create makes the groups of one container and sets their limits. dirs is the result of [Root.Folders]. After an error
// some may exist, and [Remove] removes them.
func (c *Root) Create(dirs []string, l Limits) error {
	memory, pids := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.PIDs, 10)
	quota := strconv.FormatInt(max(int64(l.CPUs*cpuPeriod), 1000), 10)
	for _, dir := range dirs {
		parent := filepath.Dir(dir)
		if err := c.make(parent, dir); err != nil {
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
				{"cpu.max", fmt.Sprintf("%s %d", quota, cpuPeriod), !c.Has("cpu")},
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

// OOMKills returns how many processes of the groups the kernel has killed because
// memory ran out. It returns 0 if that is not known.
func (c *Root) OOMKills(dirs []string) int64 {
	f, err := c.OOMFile(dirs)
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

// Peak returns the most memory in bytes that the groups have used. It returns 0 if that is not known.
func (c *Root) Peak(dirs []string) int64 {
	for _, dir := range dirs {
		if n := readPeak(dir); n > 0 {
			return n
		}
	}
	return 0
}

func readPeak(dir string) int64 {
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

// MemoryPeak returns the most memory in bytes that the control group of a process has used. It returns 0 if that is not
// known. The path of the group must contain id, as the path of a container of an engine on this machine does. Elsewhere the
// number of the process is that of another process here.
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
	paths := parsePaths(pf)
	for _, m := range parseMounts(mi) {
		path, there := paths[""]
		if !m.v2 {
			if path, there = paths["memory"]; !slices.Contains(m.options, "memory") {
				continue
			}
		}
		if !there || !strings.Contains(path, id) {
			continue
		}
		if n := readPeak(m.folder(path)); n > 0 {
			return n
		}
	}
	return 0
}

// OOMFile opens the file in which the kernel counts the processes that it killed because memory ran out. It returns nil if
// memory is not limited.
func (c *Root) OOMFile(dirs []string) (*os.File, error) {
	if !c.Has("memory") {
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

// make makes a group and its parent. It tries again because the removal of the last
// container removes the parent, maybe at this moment.
func (c *Root) make(parent, dir string) error {
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

// CloneInto returns the folder of the group into which a process is cloned by descriptor, with version 2. It returns "" if
// [Root.Join] is to be used.
func (c *Root) CloneInto(dirs []string) string {
	if !c.Usable() || c.v2 == "" || len(dirs) == 0 {
		return ""
	}
	return dirs[0]
}

// Join moves the calling thread, and so the processes it starts, into groups of
// version 1. The caller has locked its goroutine to the thread and lets the thread end afterwards. With version 2 Join does
// nothing: there a process is cloned into [Root.CloneInto].
func (c *Root) Join(dirs []string) error {
	if c.v2 != "" {
		return nil
	}
	tid := strconv.Itoa(unix.Gettid())
	for _, dir := range dirs {
		if err := writeControl(filepath.Join(dir, "tasks"), tid); err != nil {
			return fmt.Errorf("cannot enter a control group: %w", err)
		}
	}
	return nil
}

// Remove kills the processes in the groups, removes the groups, and removes their parents that are empty then. It returns
// when all are gone, or when ctx is done.
func Remove(ctx context.Context, dirs []string) error {
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
		os.Remove(filepath.Dir(dir)) // fails while it has groups of other containers
	}
	return nil
}
