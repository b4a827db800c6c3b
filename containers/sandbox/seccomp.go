package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// seccompDenied are the system calls that are refused to commands. Most of them need capabilities that commands do not
// have. The filter protects against mistakes of the kernel in them, and refuses the few that need none (keyrings are
// shared by user, io_uring bypasses every filter).
//
// ptrace is allowed because debuggers need it. It reaches only processes of the same sandbox.
var seccompDenied = []uint32{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME,
	unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG,
	unix.SYS_FSMOUNT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_INIT_MODULE,
	unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP,
	unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD, unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE,
	unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT, unix.SYS_NFSSERVCTL,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_PERF_EVENT_OPEN, unix.SYS_PIVOT_ROOT,
	unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_REBOOT, unix.SYS_REQUEST_KEY,
	unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY,
	unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2, unix.SYS_USERFAULTFD,
	unix.SYS_VHANGUP,
}

// newNamespaces are the flags of clone and unshare that make a namespace.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// personalities are those that programs request: plain Linux, with 2.6 version numbers, without address randomisation
// (for debuggers), and the query for the current one.
var personalities = []uint32{0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff}

// Offsets into struct seccomp_data. Arguments are 64 bits wide and little-endian on both architectures. Only the low
// half of those below is used.
const (
	seccompNR   = 0
	seccompArch = 4
	seccompArg0 = 16
	seccompArg1 = 24
)

// seccompArchs are the audit names of the architectures ramus runs on.
var seccompArchs = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// seccompFilter is the filter in the form that bubblewrap's --seccomp reads.
func seccompFilter() ([]byte, error) {
	arch, ok := seccompArchs[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no seccomp filter is known for %s", runtime.GOARCH)
	}
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, seccompProgram(arch)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func seccompProgram(arch uint32) []unix.SockFilter {
	var p []unix.SockFilter
	load := func(off uint32) {
		p = append(p, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off})
	}
	// jump tests the loaded word. jt and jf are numbers of instructions to skip.
	jump := func(op uint16, k uint32, jt, jf uint8) {
		p = append(p, unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: jt, Jf: jf, K: k})
	}
	ret := func(k uint32) { p = append(p, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k}) }
	refuse := func(e unix.Errno) { ret(unix.SECCOMP_RET_ERRNO | uint32(e)) }

	// Another architecture has other numbers: 32-bit programs find no kernel.
	load(seccompArch)
	jump(unix.BPF_JEQ, arch, 1, 0)
	refuse(unix.ENOSYS)
	load(seccompNR)
	if arch == unix.AUDIT_ARCH_X86_64 {
		// The x32 ABI: the same architecture, a second set of numbers.
		jump(unix.BPF_JGE, 0x40000000, 0, 1)
		refuse(unix.ENOSYS)
	}
	for _, nr := range seccompDenied {
		jump(unix.BPF_JEQ, nr, 0, 1)
		refuse(unix.EPERM)
	}
	// clone3 has its flags in memory, where no filter can see them. Libraries use clone if clone3 does not exist.
	jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1)
	refuse(unix.ENOSYS)
	for _, nr := range []uint32{unix.SYS_CLONE, unix.SYS_UNSHARE} {
		jump(unix.BPF_JEQ, nr, 0, 4)
		load(seccompArg0)
		jump(unix.BPF_JSET, newNamespaces&0xffffffff, 0, 1)
		refuse(unix.EPERM)
		ret(unix.SECCOMP_RET_ALLOW)
	}
	// Typing into a terminal that others read from.
	jump(unix.BPF_JEQ, unix.SYS_IOCTL, 0, 5)
	load(seccompArg1)
	jump(unix.BPF_JEQ, unix.TIOCSTI, 1, 0)
	jump(unix.BPF_JEQ, unix.TIOCLINUX, 0, 1)
	refuse(unix.EPERM)
	ret(unix.SECCOMP_RET_ALLOW)
	// The runner has the user of the commands, and these calls ask for no more
	// than that: a command could take process 1's descriptors away, or its turn.
	jump(unix.BPF_JEQ, unix.SYS_PRLIMIT64, 0, 4)
	load(seccompArg0)
	jump(unix.BPF_JEQ, 0, 1, 0) // of itself
	refuse(unix.EPERM)
	ret(unix.SECCOMP_RET_ALLOW)
	for _, nr := range []uint32{unix.SYS_SETPRIORITY, unix.SYS_IOPRIO_SET} {
		jump(unix.BPF_JEQ, nr, 0, 4)
		load(seccompArg1)
		jump(unix.BPF_JEQ, 0, 1, 0)
		refuse(unix.EPERM)
		ret(unix.SECCOMP_RET_ALLOW)
	}
	for _, nr := range []uint32{unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETATTR, unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER} {
		jump(unix.BPF_JEQ, nr, 0, 4)
		load(seccompArg0)
		jump(unix.BPF_JEQ, 1, 0, 1)
		refuse(unix.EPERM)
		ret(unix.SECCOMP_RET_ALLOW)
	}
	jump(unix.BPF_JEQ, unix.SYS_PERSONALITY, 0, uint8(len(personalities)+2))
	load(seccompArg0)
	for i, v := range personalities {
		jump(unix.BPF_JEQ, v, uint8(len(personalities)-i), 0)
	}
	refuse(unix.EPERM)
	ret(unix.SECCOMP_RET_ALLOW)
	return p
}
