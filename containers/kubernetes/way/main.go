package way

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
)

// Paths in the containers of a pod. The folders are volumes of the pod.
const (
	// Image is the path of this program in the image of the first container.
	Image = "/ramus-runner"
	// Bin has this program in all containers.
	Bin     = "/run/ramus/bin"
	Program = Bin + "/ramus-runner"
	// Hosts is /etc/hosts of the other containers. The kubelet writes its own again with each container that starts.
	Hosts = Bin + "/hosts"
	// Run has the runner's socket, and Spool the output of commands. Only root may enter them.
	Run    = "/run/ramus/run"
	Socket = Run + "/runner.sock"
	Spool  = "/run/ramus/spool"
	// Tmp is /tmp of the task.
	Tmp = "/run/ramus/tmp"
)

// Main performs a command and returns the exit status.
func Main(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: ramus-runner way COMMAND (started by ramus, in pods)")
		return 2
	}
	var err error
	switch rest := args[1:]; {
	case args[0] == "hold" && len(rest) == 0:
		reapUntilEnd()
	case args[0] == "serve" && len(rest) == 0:
		err = serve()
	case args[0] == "prepare" && len(rest) == 1:
		err = prepare(rest[0])
	case args[0] == "connect" && len(rest) == 1:
		err = connect(Sessions, rest[0], os.Stdin, os.Stdout)
	case args[0] == "names" && len(rest) == 0:
		err = replaceNames(Hosts, os.Stdin)
	case args[0] == "usage" && len(rest) >= 2:
		err = printUsage(os.Stdout, rest)
	case args[0] == "sidecar" && len(rest) == 1:
		var code int
		if code, err = runSidecar(rest[0], os.Stdin); err == nil {
			return code
		}
	case args[0] == "release" && len(rest) == 2:
		err = end(rest[0], func(engine string) bool { return engine != rest[1] })
	case args[0] == "end" && len(rest) == 2:
		err = end(rest[0], func(engine string) bool { return engine == rest[1] })
	default:
		err = fmt.Errorf("cannot perform %q: it is no command of this version", strings.Join(args, " "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ramus-runner:", err)
		return Failed
	}
	return 0
}

// Failed is the exit status of a command of this package that failed. A sidecar's own status is below it, or above 128.
const Failed = 125

// prepare makes a pod ready for its other containers. Kubernetes starts the next container when prepare has returned.
func prepare(dir string) error {
	if err := Seal(); err != nil {
		return err
	}
	// New volumes are open to all users. A command could replace the runner's socket.
	for _, private := range []string{Run, Spool} {
		if err := os.Chmod(private, 0o700); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("cannot close the folder of the runner: %w", err)
		}
	}
	// No command may rename the folders of another user.
	if err := os.Chmod(Tmp, 0o777|os.ModeSticky); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot prepare /tmp: %w", err)
	}
	// The file system of the image may be read by root alone, so the program that runs is copied.
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("cannot open this program: %w", err)
	}
	defer from.Close()
	to, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return fmt.Errorf("cannot install the runner: %w", err)
	}
	if _, err = io.Copy(to, from); err == nil {
		err = to.Chmod(0o755)
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(to.Name(), filepath.Join(dir, filepath.Base(Program)))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, filepath.Base(Hosts)),
			[]byte("127.0.0.1\tlocalhost task\n::1\tlocalhost\n"), 0o644)
	}
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		return fmt.Errorf("cannot install the runner: %w", err)
	}
	return nil
}

// connectWait bounds the wait for a socket whose queue of connections is full.
const connectWait = 10 * time.Second

// Bounds on the names of a pod.
const (
	maxHosts  = 64 << 10 // bytes
	namesMark = "# services\n"
)

// replaceNames replaces the part of a hosts file that an earlier call wrote. The file stays the same, because it is
// bound into all containers of the pod.
func replaceNames(path string, in io.Reader) error {
	wrap := func(err error) error { return fmt.Errorf("cannot name addresses: %w", err) }
	names, err := io.ReadAll(io.LimitReader(in, maxHosts+1))
	if err == nil && len(names) > maxHosts {
		err = fmt.Errorf("they take more than %d bytes", maxHosts)
	}
	if err != nil {
		return wrap(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return wrap(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 2*maxHosts))
	if err != nil {
		return wrap(err)
	}
	own, _, _ := strings.Cut(string(text), namesMark)
	if own != "" && !strings.HasSuffix(own, "\n") {
		own += "\n"
	}
	text = []byte(own + namesMark + string(names))
	if _, err = f.WriteAt(text, 0); err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err != nil {
		return wrap(err)
	}
	return nil
}

// usageWait bounds a measurement. The host gives up earlier.
const usageWait = time.Minute

// printUsage measures folders that commands write to. They are not followed out of their file systems, and no link is
// followed.
func printUsage(out io.Writer, args []string) error {
	most, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil || most <= 0 {
		return fmt.Errorf("cannot count up to %q", args[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), usageWait)
	defer cancel()
	sum, err := layer.Count(ctx, most, args[1:]...)
	if err != nil && !errors.Is(err, layer.ErrTooMany) {
		return err
	}
	return json.NewEncoder(out).Encode(sum)
}
