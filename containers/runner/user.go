package runner

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// userThread is one operating system thread that has, for the file system, the rights of the commands' user, and no
// capability to pass on. Processes forked from it can never gain any. Files, pipes and terminals made on it belong to
// the commands' user. It may read /proc of the user's processes, which root without CAP_SYS_PTRACE may not.
type userThread struct {
	calls chan func()
}

func startUserThread(cfg Config) (*userThread, error) {
	u := &userThread{calls: make(chan func())}
	ready := make(chan error)
	go func() {
		// The thread is never unlocked, because its rights must not reach other goroutines.
		runtime.LockOSThread()
		become := func() error { return becomeUser(cfg.UID, cfg.GID) }
		if cfg.Program {
			// The container's own bounds are those of the program, which may start its parts as other users.
			become = func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }
		}
		if err := become(); err != nil {
			ready <- err
			return
		}
		ready <- nil
		for f := range u.calls {
			f()
		}
	}()
	return u, <-ready
}

// findUser returns the numbers of a user of an image, as "postgres", "999" or "999:999". Names are those of this container's files.
func findUser(text string) (uid, gid int, err error) {
	name, group, grouped := strings.Cut(text, ":")
	if name == "" || name == "root" || name == "0" {
		return 0, 0, nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		found, err = user.LookupId(name)
	}
	if err == nil {
		uid, err = strconv.Atoi(found.Uid)
		if err == nil {
			gid, err = strconv.Atoi(found.Gid)
		}
	} else if uid, err = strconv.Atoi(name); err == nil {
		gid = 0 // as the engines have it for a number without an entry
	}
	if err == nil && grouped {
		if gid, err = strconv.Atoi(group); err != nil {
			var g *user.Group
			if g, err = user.LookupGroup(group); err == nil {
				gid, err = strconv.Atoi(g.Gid)
			}
		}
	}
	if err != nil || uid < 0 || gid < 0 {
		return 0, 0, fmt.Errorf("cannot find the image's user %q: %w", text, errors.Join(err))
	}
	return uid, gid, nil
}

// do runs f on the thread. Calls must not be nested.
func (u *userThread) do(f func()) {
	done := make(chan struct{})
	u.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// becomeUser changes only the calling thread.
func becomeUser(uid, gid int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot set no_new_privs: %w", err)
	}
	// Without CAP_SETPCAP the bounding set stays. no_new_privs alone already prevents commands from gaining its
	// capabilities.
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			break
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot clear the ambient capabilities: %w", err)
	}
	if uid == 0 {
		if err := setCapabilities(0); err != nil {
			return err
		}
		return refuseForgery()
	}
	if err := setCapabilities(1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL); err != nil {
		return err
	}
	// These are raw system calls because those of the standard library change every thread.
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("cannot leave root's groups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETFSGID, uintptr(gid), 0, 0); e != 0 {
		return fmt.Errorf("cannot take the group of commands: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0); e != 0 {
		return fmt.Errorf("cannot take the user of commands: %w", e)
	}
	// setfsuid reports no failure, but returns the previous user.
	if is, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0); int(is) != uid {
		return fmt.Errorf("cannot take the user of commands: still %d", int(is))
	}
	return nil
}

// keptCapabilities returns the thread's capabilities that are in keep, none of them inheritable, as arguments of
// capset(2).
func keptCapabilities(keep uint64) (head unix.CapUserHeader, data [2]unix.CapUserData, err error) {
	head.Version = unix.LINUX_CAPABILITY_VERSION_3
	if err := unix.Capget(&head, &data[0]); err != nil {
		return head, data, fmt.Errorf("cannot read the capabilities: %w", err)
	}
	for i := range data {
		data[i].Permitted &= uint32(keep >> (32 * i))
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0
	}
	return head, data, nil
}

// setCapabilities drops the thread's capabilities that are not in keep, and makes none inheritable.
func setCapabilities(keep uint64) error {
	head, data, err := keptCapabilities(keep)
	if err != nil {
		return err
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("cannot drop capabilities: %w", err)
	}
	return nil
}

// setCapabilitiesEverywhere is setCapabilities for all current and future threads.
func setCapabilitiesEverywhere(keep uint64) error {
	head, data, err := keptCapabilities(keep)
	if err != nil {
		return err
	}
	_, _, e := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)),
		uintptr(unsafe.Pointer(&data[0])), 0)
	runtime.KeepAlive(&head)
	runtime.KeepAlive(&data)
	// A binary with cgo cannot change all threads, and then keeps more capabilities than it needs.
	if e != 0 && e != syscall.ENOTSUP {
		return fmt.Errorf("cannot drop capabilities: %w", e)
	}
	return nil
}

// process is the entry of one process in /proc.
type process struct {
	pid, parent, group, session int
	zombie                      bool
}

// processes returns all processes except process 1.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == 1 {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		if p, ok := parseStat(pid, string(stat)); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads /proc/PID/stat. The process chooses the name in it, which may have spaces and brackets. The last
// bracket ends it.
func parseStat(pid int, stat string) (process, bool) {
	i := strings.LastIndexByte(stat, ')')
	if i < 0 {
		return process{}, false
	}
	f := strings.Fields(stat[i+1:])
	if len(f) < 4 || len(f[0]) != 1 {
		return process{}, false
	}
	p := process{pid: pid, zombie: f[0] == "Z" || f[0] == "X"}
	for j, at := range []*int{&p.parent, &p.group, &p.session} {
		n, err := strconv.Atoi(f[j+1])
		if err != nil {
			return process{}, false
		}
		*at = n
	}
	return p, true
}

// cookie returns the command id in the environment of a process. It may be missing or forged. So it can only ever spare
// a process, and only while the named command runs. blank is true if the process has no environment at all, as a
// process in the middle of its execve.
func cookie(pid int) (id string, blank bool) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	const name = cookieName + "="
	for kv := range strings.SplitSeq(string(env), "\x00") {
		if strings.HasPrefix(kv, name) {
			id = kv[len(name):]
		}
	}
	return id, len(env) == 0
}

const cookieName = "RAMUS_COMMAND"
