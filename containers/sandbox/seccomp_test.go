package sandbox

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// runFilter is what the kernel does with a filter and a system call.
func runFilter(t *testing.T, p []unix.SockFilter, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.LittleEndian.PutUint32(data[0:], nr)
	binary.LittleEndian.PutUint32(data[4:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(p); pc++ {
		in := p[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[in.K:])
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(acc == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(acc >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(acc&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d is unknown: %+v", pc, in)
		}
	}
	t.Fatal("the filter runs off its end")
	return 0
}

func TestSeccompFilter(t *testing.T) {
	const (
		allow  = uint32(unix.SECCOMP_RET_ALLOW)
		refuse = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
		absent = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
	)
	for name, arch := range seccompArchs {
		p := seccompProgram(arch)
		if len(p) > 4096 {
			t.Errorf("%s: %d instructions are more than the kernel takes", name, len(p))
		}
		for _, nr := range seccompDenied {
			if got := runFilter(t, p, arch, nr); got != refuse {
				t.Errorf("%s: system call %d: %#x", name, nr, got)
			}
		}
		for _, test := range []struct {
			what string
			nr   uint32
			args []uint64
			want uint32
		}{
			{"read", unix.SYS_READ, nil, allow},
			{"ptrace", unix.SYS_PTRACE, []uint64{16, 5}, allow},
			{"a thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
			{"fork", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
			{"a user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, refuse},
			{"a mount namespace", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWNS}, refuse},
			{"unshare files", unix.SYS_UNSHARE, []uint64{unix.CLONE_FILES}, allow},
			{"clone3", unix.SYS_CLONE3, nil, absent},
			{"TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, refuse},
			{"TIOCSTI with rubbish above", unix.SYS_IOCTL, []uint64{0, 0xdead<<32 | unix.TIOCSTI}, refuse},
			{"TIOCLINUX", unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX}, refuse},
			{"window size", unix.SYS_IOCTL, []uint64{0, unix.TIOCGWINSZ}, allow},
			{"plain personality", unix.SYS_PERSONALITY, []uint64{0}, allow},
			{"personality?", unix.SYS_PERSONALITY, []uint64{0xffffffff}, allow},
			{"debugger's personality", unix.SYS_PERSONALITY, []uint64{0x40000}, allow},
			{"executable data", unix.SYS_PERSONALITY, []uint64{0x400000}, refuse},
			{"own limits", unix.SYS_PRLIMIT64, []uint64{0, 7}, allow},
			{"another's limits", unix.SYS_PRLIMIT64, []uint64{1, 7}, refuse},
			{"own priority", unix.SYS_SETPRIORITY, []uint64{0, 0, 5}, allow},
			{"another's priority", unix.SYS_SETPRIORITY, []uint64{0, 1, 5}, refuse},
			{"own processors", unix.SYS_SCHED_SETAFFINITY, []uint64{0}, allow},
			{"a thread's processors", unix.SYS_SCHED_SETAFFINITY, []uint64{77}, allow},
			{"the runner's processors", unix.SYS_SCHED_SETAFFINITY, []uint64{1}, refuse},
		} {
			if got := runFilter(t, p, arch, test.nr, test.args...); got != test.want {
				t.Errorf("%s: %s: %#x, not %#x", name, test.what, got, test.want)
			}
		}
		if got := runFilter(t, p, unix.AUDIT_ARCH_I386, unix.SYS_READ); got != absent {
			t.Errorf("%s: another architecture: %#x", name, got)
		}
	}
	if got := runFilter(t, seccompProgram(unix.AUDIT_ARCH_X86_64), unix.AUDIT_ARCH_X86_64, 0x40000000|unix.SYS_READ); got != absent {
		t.Errorf("x32: %#x", got)
	}
}
