package runner

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"
)

const (
	// idleTime is the default of Config.Idle.
	idleTime = 2 * time.Minute
	// aliveTick is the pause between two looks at Config.Alive.
	aliveTick = time.Minute
	// spareThreads is the default of Config.Threads, and maxThreads its bound.
	spareThreads = 24
	maxThreads   = 256
)

// Command performs the call if this program was started as the runner's program inside a container. That is process 1
// (`runner`), or a call by git to sign (`-Y`), to list changed files (`fsmonitor`), or to make a pointer to a large file (`lfs-clean`). args are all arguments of the
// process. known is false for other calls.
func Command(args []string) (code int, known bool) {
	if len(args) < 2 {
		return 0, false
	}
	switch args[1] {
	case "runner":
		return Main(args[2:]), true
	case "-Y":
		return Sign(args[1:]), true
	case "fsmonitor":
		return Fsmonitor(args[2:]), true
	case "lfs-clean":
		return CleanLarge(args[2:]), true
	}
	return 0, false
}

// Main is `ramus runner JSON`, with a [Config]. It returns the exit status only if the runner could not start.
func Main(args []string) int {
	var err error
	switch {
	case len(args) == 2 && args[0] == "sftp":
		err = serveFiles(args[1])
	case len(args) >= 3 && args[0] == "guard":
		err = guard(args[1], args[2:]) // returns only with an error
		fmt.Fprintf(os.Stderr, "ramus: %v\n", err)
		return 126
	case len(args) == 1:
		err = run(args[0])
	default:
		fmt.Fprintln(os.Stderr, "usage: ramus runner JSON (started by a container engine, as process 1)")
		return 2
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "ramus runner: %v\n", err)
		return 1
	}
	return 0
}

func run(text string) error {
	cfg, key, err := parseConfig(text)
	if err != nil {
		return err
	}
	if os.Getpid() != 1 {
		// The runner kills all remaining processes. Outside of a container these would be the host's.
		return errors.New("cannot start: not process 1 of a pid namespace")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	score := openOOMScore()
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become undumpable: %w", err)
	}
	if err := closeOnExec(); err != nil {
		return err
	}
	if cfg.Sealed {
		if err := Sealed(); err != nil {
			return err
		}
	}
	childEnded := catchSignals()
	warmThreads(cfg.Threads)
	unix.Umask(0o022)
	if err := limitChildren(cfg); err != nil {
		return err
	}
	if cfg.UID != 0 {
		if err := giveFolders(cfg); err != nil {
			return err
		}
	}
	if cfg.UID != 0 && !cfg.Program {
		if err := setCapabilitiesEverywhere(1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL | 1<<unix.CAP_SETPCAP); err != nil {
			return err
		}
	}
	user, err := startUserThread(cfg)
	if err != nil {
		return err
	}
	spool, err := openSpoolFolder(cfg.Spool, cfg.Output)
	if err != nil {
		return err
	}
	ln, err := listen(cfg.Listen)
	if err != nil {
		return err
	}
	door, err := openDoor(cfg.Door, log)
	if err != nil {
		return err
	}
	if cfg.DoorFolder != "" {
		// An image may have no /tmp, or a file there. Commands still reach the host by the address.
		if err := door.addSocket(cfg.DoorFolder); err != nil {
			log.Warn("programs that need a socket cannot reach the host", "error", err)
		}
	}
	s := &server{
		cfg: cfg, log: log, user: user, spool: spool, door: door, forwards: &forwards{door: door, log: log}, score: score,
		env:      baseEnvironment(cfg),
		commands: map[string]*command{}, children: map[int]*child{},
	}
	user.do(func() {
		// A failure is no error, because an engine may provide a home of its own, or none.
		_ = os.MkdirAll(home, 0o755)
	})
	go func() {
		for range childEnded {
			s.reap()
		}
	}()
	if cfg.Alive != "" {
		go func() {
			awaitMissing(cfg.Alive, aliveTick)
			log.Warn("the host has not been there for long, so this container ends")
			os.Exit(0) // process 1, so the kernel ends all others
		}()
	}
	// A hundred runners may wait on a machine at a time, and most memory of each is left from the start of a large
	// program.
	debug.SetGCPercent(50)
	time.AfterFunc(tidyAfter, debug.FreeOSMemory)
	return s.serve(ln, key)
}

// awaitMissing returns when a file is missing. It looks at each tick.
func awaitMissing(path string, tick time.Duration) {
	for {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(tick)
	}
}

// tidyAfter is the time from the start of the runner until it returns memory to the kernel. It is long enough for the
// first command not to wait for it.
const tidyAfter = time.Second

// home is the folder for caches and settings of programs.
const home = "/cache/home"

func baseEnvironment(c Config) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "USER=task",
		"LOGNAME=task"}
	for _, v := range os.Environ() {
		if !slices.ContainsFunc(c.Without, func(prefix string) bool { return strings.HasPrefix(v, prefix) }) {
			env = append(env, v)
		}
	}
	env = append(env, "HOME="+home)
	return lastWins(append(env, c.Env...))
}

// carrierKey is the key of a connection's [Carrier] in its context.
type carrierKey struct{}

// serve serves SSH connections. It returns only after an error.
func (s *server) serve(ln net.Listener, client ssh.PublicKey) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("cannot make a host key: %w", err)
	}
	signer, err := gossh.NewSignerFromKey(private)
	if err != nil {
		return fmt.Errorf("cannot make a host key: %w", err)
	}
	srv := &ssh.Server{
		Version: ServerVersion,
		ConnCallback: func(ctx ssh.Context, conn net.Conn) net.Conn {
			u, ok := conn.(*net.UnixConn)
			if !ok {
				return conn
			}
			c := NewCarrier(u)
			ctx.SetValue(carrierKey{}, c)
			return c
		},
		HostSigners: []ssh.Signer{signer},
		IdleTimeout: cmp.Or(s.cfg.Idle, idleTime),
		// There is one key, and no identity follows from it. So it does not matter that a client may offer this key and
		// then sign with another.
		PublicKeyHandler: func(_ ssh.Context, key ssh.PublicKey) bool { return ssh.KeysEqual(key, client) },
		ChannelHandlers:  map[string]ssh.ChannelHandler{"session": s.session, "direct-tcpip": s.door.dial},
		RequestHandlers: map[string]ssh.RequestHandler{"tcpip-forward": s.forwards.serve,
			"cancel-tcpip-forward": s.forwards.serve},
	}
	if err := srv.Serve(ln); err != nil {
		return fmt.Errorf("cannot accept connections: %w", err)
	}
	return nil
}

// listen makes the socket of the SSH server, or takes over an inherited one.
func listen(where string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("cannot listen: %w", err)
		}
		// All users may connect who can enter the folder, because the host's side may be another user than the
		// container's root.
		old := unix.Umask(0o111)
		ln, err := net.Listen("unix", path)
		unix.Umask(old)
		if err != nil {
			return nil, fmt.Errorf("cannot listen: %w", err)
		}
		return ln, nil
	}
	if n, ok := strings.CutPrefix(where, "fd:"); ok {
		fd, err := strconv.Atoi(n)
		if err != nil || fd < 3 {
			return nil, fmt.Errorf("cannot listen at %q: no descriptor", where)
		}
		f := os.NewFile(uintptr(fd), "listener")
		defer f.Close() // FileListener has a copy
		ln, err := net.FileListener(f)
		if err != nil {
			return nil, fmt.Errorf("cannot listen at %q: %w", where, err)
		}
		return ln, nil
	}
	return nil, fmt.Errorf("cannot listen at %q: neither unix:PATH nor fd:N", where)
}

// closeOnExec marks all inherited descriptors so that commands do not inherit them.
func closeOnExec() error {
	if unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	// Linux before 5.11.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("cannot list open files: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// catchSignals drops every signal except SIGCHLD. The signals are caught and not ignored, because every command would
// inherit an ignored signal.
func catchSignals() <-chan os.Signal {
	childEnded := make(chan os.Signal, 1)
	dropped := make(chan os.Signal, 1) // never read; sends to a full channel are dropped
	signal.Notify(childEnded, syscall.SIGCHLD)
	var all []os.Signal
	for n := syscall.Signal(1); n <= 64; n++ {
		switch n {
		// Go sends itself SIGURG thousands of times, and those of other processes do no harm.
		case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGKILL, syscall.SIGSTOP:
		default:
			all = append(all, n)
		}
	}
	signal.Notify(dropped, all...)
	return childEnded
}

func warmThreads(n int) {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	for range n {
		ready.Add(1)
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-gate
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

// limitChildren sets the limits that commands inherit. They apply to the runner as well, whose spools are never larger
// than a command's files.
func limitChildren(c Config) error {
	limit := func(what int, n uint64) error {
		var now unix.Rlimit
		if err := unix.Getrlimit(what, &now); err != nil {
			return err
		}
		n = min(n, now.Max)
		return unix.Setrlimit(what, &unix.Rlimit{Cur: n, Max: n})
	}
	if err := limit(unix.RLIMIT_CORE, 0); err != nil {
		return fmt.Errorf("cannot forbid core dumps: %w", err)
	}
	if err := limit(unix.RLIMIT_FSIZE, uint64(c.FileSize)); err != nil {
		return fmt.Errorf("cannot limit the size of files: %w", err)
	}
	if c.PIDs > 0 && (c.UID == 0 || c.UserPIDs && OwnUsers()) {
		if err := limit(unix.RLIMIT_NPROC, uint64(c.PIDs)); err != nil {
			return fmt.Errorf("cannot limit processes: %w", err)
		}
	}
	return nil
}

// giveFolders gives the folders of commands to the commands' user.
func giveFolders(c Config) error {
	for _, dir := range []string{c.Work, "/artifacts", "/cache"} {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			if dir == c.Work {
				return fmt.Errorf("cannot use the work tree %s: %w", dir, err)
			}
			continue
		}
		if int(st.Uid) == c.UID {
			continue
		}
		if err := os.Chown(dir, c.UID, c.GID); err != nil {
			return fmt.Errorf("cannot give %s to the commands' user: %w", filepath.Clean(dir), err)
		}
	}
	return nil
}

func randomName() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
