package runner

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forgery is a system call that reaches process 1 if its argument has the given value. If commands have the runner's
// own user, being undumpable does not prevent two kinds of such calls. The first are signals that look as if the kernel
// sent them for a fault, which no Go program survives. The second are changes of the runner's limits and scheduling.
type forgery struct {
	call, argument, value uint32
}

var forgeries = []forgery{
	{unix.SYS_RT_SIGQUEUEINFO, 0, 1},
	{unix.SYS_RT_TGSIGQUEUEINFO, 0, 1},
	{unix.SYS_FCNTL, 1, unix.F_SETSIG}, // a chosen I/O signal for the "owner" of the file
	{unix.SYS_PRLIMIT64, 0, 1},
	{unix.SYS_SETPRIORITY, 1, 1},
	{unix.SYS_IOPRIO_SET, 1, 1},
	{unix.SYS_SCHED_SETAFFINITY, 0, 1},
	{unix.SYS_SCHED_SETSCHEDULER, 0, 1},
	{unix.SYS_SCHED_SETPARAM, 0, 1},
	{unix.SYS_SCHED_SETATTR, 0, 1},
}

// architectures has the kernel's identifiers, as used by its filters, of the architectures that ramus runs on.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// refuseForgery makes the forgeries fail with EPERM for all processes forked from this thread, which must have
// no_new_privs.
func refuseForgery() error {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return nil // commands can then end their own container
	}
	p := forgeryFilter(arch)
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(p)
	if err != nil {
		return fmt.Errorf("cannot refuse forged signals: %w", err)
	}
	return nil
}

func forgeryFilter(arch uint32) []unix.SockFilter {
	const (
		load      = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal     = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret       = unix.BPF_RET | unix.BPF_K
		number    = 0 // offsets into struct seccomp_data
		machine   = 4
		arguments = 16
	)
	refused := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)}
	absent := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}
	p := []unix.SockFilter{
		// Other architectures and x32 have the same calls with other numbers.
		{Code: load, K: machine},
		{Code: equal, K: arch, Jt: 1},
		absent,
		{Code: load, K: number},
		{Code: atLeast, K: 1 << 30, Jf: 1},
		absent,
	}
	for _, f := range forgeries {
		p = append(p,
			unix.SockFilter{Code: load, K: number},
			unix.SockFilter{Code: equal, K: f.call, Jf: 3},
			unix.SockFilter{Code: load, K: arguments + 8*f.argument}, // the low half, because all values are 32 bits wide
			unix.SockFilter{Code: equal, K: f.value, Jf: 1},
			refused,
		)
	}
	// pidfd_send_signal with a siginfo of the caller's choice is refused for all targets.
	for half := range uint32(2) {
		p = append(p,
			unix.SockFilter{Code: load, K: number},
			unix.SockFilter{Code: equal, K: unix.SYS_PIDFD_SEND_SIGNAL, Jf: 3},
			unix.SockFilter{Code: load, K: arguments + 8*2 + 4*half},
			unix.SockFilter{Code: equal, K: 0, Jt: 1},
			refused,
		)
	}
	return append(p, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
}
