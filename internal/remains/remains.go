// Package remains finds what is left of a folder on the machine: the processes
// that live in it, in whatever namespaces, and the mounts that lie there. Tests
// that start servers and containers end with it.
//
// It goes by what the kernel tells below /proc, not by what an engine knows: a
// container that its engine has forgotten is what it is there to find. What it cannot
// read is passed over; a process that keeps others from looking, as a runner
// does, is told by its command line unless this process is root.
package remains

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Process is one that has to do with a folder.
type Process struct {
	PID  int
	Line string // its command line, shortened
	// Container is the sandbox of which it is process 1; "" for every other process.
	Container string
	Why       string // what of it lies in the folder
}

func (p Process) String() string { return fmt.Sprintf("process %d, %s: %s", p.PID, p.Why, p.Line) }

const (
	// grace is for what ends by itself, such as the git of a server that was killed.
	grace = 30 * time.Second
	again = 10 * time.Millisecond
)

// Check fails the test when a process or a mount of the folder is left, and ends
// such processes, so that the next test does not meet them. The data folders of servers
// are folders directly in it, or itself.
func Check(t testing.TB, dir string) {
	t.Helper()
	var left []Process
	var mounted []string
	for until := time.Now().Add(grace); ; time.Sleep(again) {
		left, mounted = Of(dir), mountedIn(t, dir)
		if len(left)+len(mounted) == 0 || time.Now().After(until) {
			break
		}
	}
	for _, p := range left {
		t.Errorf("left on the machine: %v", p)
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	for _, at := range mounted {
		t.Errorf("left on the machine: what is mounted at %s", at)
	}
}

// mountedIn is where something is mounted in a folder.
func mountedIn(t testing.TB, dir string) (at []string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for _, m := range parseMounts(mounts) {
		if within(m.at, dir) {
			at = append(at, m.at)
		}
	}
	return at
}

// KillContainers kills the sandboxes of a data folder, as an engine that died or a
// kernel would, and waits until they have ended. Nobody is told, and nothing is tidied up.
func KillContainers(data string) {
	killed := make(map[int]string) // the container of each
	for _, p := range Of(data) {
		if p.Container != "" {
			killed[p.PID] = p.Container
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	// Others may have begun meanwhile.
	alive := func(p Process) bool { return p.Container != "" && killed[p.PID] == p.Container }
	for until := time.Now().Add(grace); slices.ContainsFunc(Of(data), alive) && time.Now().Before(until); {
		time.Sleep(again)
	}
}

// Of lists the processes that have to do with a folder, this one excepted.
func Of(dir string) []Process {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	own, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	device, root := locate(parseMounts(own), dir)
	namespace, _ := os.Readlink("/proc/self/ns/mnt")
	containers := containersIn(dir)
	names, _ := filepath.Glob("/proc/[0-9]*")
	var list []Process
	for _, proc := range names {
		pid, err := strconv.Atoi(filepath.Base(proc))
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || len(line) == 0 { // it has ended, or is the kernel's
			continue
		}
		p := Process{PID: pid}
		for _, id := range containers {
			if bytes.Contains(line, []byte(containerMark+id)) {
				p.Container, p.Why = id, "container "+id
			}
		}
		for _, link := range []string{"exe", "cwd"} {
			if to, err := os.Readlink(filepath.Join(proc, link)); err == nil && within(to, dir) {
				p.Why = link + " " + to
			}
		}
		if at, err := os.Readlink(filepath.Join(proc, "ns/mnt")); p.Why == "" && err == nil && at != namespace {
			mounts, _ := os.ReadFile(filepath.Join(proc, "mountinfo"))
			for _, m := range parseMounts(mounts) {
				if m.device == device && within(m.root, root) {
					p.Why = "it sees " + m.root + " at " + m.at
				}
			}
		}
		if p.Why != "" {
			line = bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte(" "))
			p.Line = string(line[:min(len(line), 200)])
			list = append(list, p)
		}
	}
	return list
}

// containerMark stands on the command line of process 1 of a sandbox, ahead of its id.
const containerMark = "RAMUS_CONTAINER="

// containersIn are the ids of the sandboxes that have a folder in dir, or did: a
// process can outlive its folder, but then it is found by its mounts.
func containersIn(dir string) []string {
	var ids []string
	for _, pattern := range []string{"sandbox/sb*", "*/sandbox/sb*"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range found {
			ids = append(ids, filepath.Base(name))
		}
	}
	return ids
}

// A mount is a line of /proc/PID/mountinfo.
type mount struct {
	device   string // major:minor
	root, at string // what of the file system is seen, and where
}

func parseMounts(mountinfo []byte) []mount {
	var list []mount
	for line := range strings.Lines(string(mountinfo)) {
		if f := strings.Fields(line); len(f) > 5 {
			list = append(list, mount{f[2], f[3], f[4]})
		}
	}
	return list
}

// locate tells where a folder lies on its file system. Names with spaces, which
// the kernel writes as escapes, are not found.
func locate(mounts []mount, dir string) (device, root string) {
	var best mount
	for _, m := range mounts {
		if within(dir, m.at) && len(m.at) >= len(best.at) {
			best = m
		}
	}
	rest, _ := filepath.Rel(best.at, dir)
	return best.device, filepath.Join(best.root, rest)
}

// within tells whether a path is a folder's, or in it. A file that was deleted counts.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
