// Package remains finds the remains of a folder on the machine: the processes that use it, in any namespaces, and the
// mounts in it. Tests that start servers and containers call it at their end.
//
// It reads /proc of the kernel and not the state of an engine, because it has to find containers that their engine has
// forgotten. It skips everything that it may not read. A process that denies access, like a runner, is found by its
// command line unless this process is root.
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

// Process is a process that uses a folder.
type Process struct {
	PID  int
	Line string // its command line, clipped
	// Container is the sandbox of which the process is process 1, or "" for every other process.
	Container string
	Why       string // how the process uses the folder
}

func (p Process) String() string { return fmt.Sprintf("process %d, %s: %s", p.PID, p.Why, p.Line) }

const (
	// grace bounds the wait for processes that end by themselves, such as the git of a killed server.
	grace = 30 * time.Second
	again = 10 * time.Millisecond
)

// Check fails the test if a process or a mount of the folder is left. It ends such processes, so that they do not
// disturb the next test. The data folders of servers are the folder itself or its subfolders.
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
		t.Errorf("left on the machine: a mount at %s", at)
	}
}

// mountedIn returns the mount points in a folder.
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

// KillContainers kills the sandboxes of a data folder, as a crash of the engine or the kernel would, and waits until
// they have ended. It informs no other process and cleans up nothing.
func KillContainers(data string) {
	killed := make(map[int]string) // id of the container by process
	for _, p := range Of(data) {
		if p.Container != "" {
			killed[p.PID] = p.Container
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
	}
	// Others may have started meanwhile.
	alive := func(p Process) bool { return p.Container != "" && killed[p.PID] == p.Container }
	for until := time.Now().Add(grace); slices.ContainsFunc(Of(data), alive) && time.Now().Before(until); {
		time.Sleep(again)
	}
}

// Of returns the processes that use a folder, without this one.
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

// containerMark is on the command line of process 1 of a sandbox, before its id.
const containerMark = "RAMUS_CONTAINER="

// containersIn returns the ids of the sandboxes that have a folder in dir, or had one. A process can outlive its
// folder. It is then found by its mounts.
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
	root, at string // the visible part of the file system, and its mount point
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

// locate returns the position of a folder on its file system. It does not find names with spaces, which the kernel
// escapes.
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

// within reports whether a path is that of a folder or inside it. Deleted files count.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
