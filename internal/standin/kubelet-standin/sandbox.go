package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
)

// sandboxCommand is the first argument of this program as process 1 of a pod.
const sandboxCommand = "sandbox"

// volume is a folder of a pod. name is that of the folder outside.
type volume struct {
	name, at string
	mode     os.FileMode
}

// volumes are the folders that way.prepare and the kubelet make for the containers of a pod.
var volumes = []volume{{"ramus", "/run/ramus", 0o755}, {"work", containers.WorkDir, 0o777}, {"artifacts", containers.ArtifactsDir, 0o777},
	{"cache", containers.CacheDir, 0o777}, {"tmp", "/tmp", 0o777 | os.ModeSticky}}

// sandboxes are the processes of pods, each in namespaces of its own. All methods may be called concurrently.
type sandboxes struct {
	dir    string
	runner string // a copy of the runner in dir
	calls  chan func()
	done   chan struct{} // is closed when the thread has ended
}

// newSandboxes makes a folder for pods.
func newSandboxes(dir, runner string) (*sandboxes, error) {
	wrap := func(err error) error { return fmt.Errorf("cannot make a folder for pods: %w", err) }
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, wrap(err)
	}
	dir, err := absolute(dir)
	if err != nil {
		return nil, wrap(err)
	}
	s := &sandboxes{dir: dir, runner: filepath.Join(dir, "ramus-runner"), calls: make(chan func()), done: make(chan struct{})}
	program, err := os.ReadFile(runner)
	if err == nil {
		err = os.WriteFile(s.runner, program, 0o755)
	}
	if err != nil {
		return nil, wrap(err)
	}
	go s.thread()
	return s, nil
}

// thread starts all processes. The kernel ends them when the thread that started them ends, and so with this process.
func (s *sandboxes) thread() {
	defer close(s.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for f := range s.calls {
		f()
	}
}

// close ends the thread and removes its resources. All pods must have ended.
func (s *sandboxes) close() error {
	close(s.calls)
	<-s.done
	if err := os.Remove(s.runner); err != nil {
		return fmt.Errorf("cannot remove the folder for pods: %w", err)
	}
	return nil
}

// folder makes the folder of a pod, with its volumes as they are when the first container has prepared them.
func (s *sandboxes) folder(uid string) (string, error) {
	dir := filepath.Join(s.dir, uid)
	wrap := func(err error) (string, error) {
		return "", errors.Join(fmt.Errorf("cannot make the folder of a pod: %w", err), os.RemoveAll(dir))
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return wrap(err)
	}
	make := func(name string, mode os.FileMode) error {
		path := filepath.Join(dir, name)
		return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, mode))
	}
	for _, v := range volumes {
		if err := make(v.name, v.mode); err != nil {
			return wrap(err)
		}
	}
	for _, name := range []string{way.Bin, way.Run, way.Spool} {
		mode := os.FileMode(0o700)
		if name == way.Bin {
			mode = 0o755
		}
		if err := make(filepath.Join("ramus", filepath.Base(name)), mode); err != nil {
			return wrap(err)
		}
	}
	if err := make("root", 0o755); err != nil {
		return wrap(err)
	}
	// A link, because a thousand copies take some gigabytes.
	if err := os.Link(s.runner, filepath.Join(dir, "ramus", "bin", filepath.Base(way.Program))); err != nil {
		return wrap(err)
	}
	return dir, nil
}

// call is the argument of the process that becomes process 1 of a pod.
type call struct {
	Folder string
	Args   []string
}

// start starts process 1 of a pod.
func (s *sandboxes) start(folder string, args []string) (*exec.Cmd, error) {
	text, err := json.Marshal(call{folder, args})
	if err != nil {
		return nil, err
	}
	said, err := os.Create(filepath.Join(folder, "said"))
	if err != nil {
		return nil, fmt.Errorf("cannot start a pod: %w", err)
	}
	defer said.Close()
	cmd := exec.Command("/proc/self/exe", sandboxCommand, string(text))
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	started := make(chan error)
	s.calls <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start a pod: %w", err)
	}
	return cmd, nil
}

// enterSandbox becomes process 1 of a pod, in new namespaces. It returns only with an error.
func enterSandbox(text string) error {
	var c call
	if err := json.Unmarshal([]byte(text), &c); err != nil || len(c.Args) == 0 {
		return fmt.Errorf("cannot start a pod: its description is %q: %w", text, err)
	}
	if os.Getpid() != 1 {
		return errors.New("cannot start a pod: this is not process 1 of a namespace")
	}
	if err := makeRoot(c.Folder); err != nil {
		return fmt.Errorf("cannot make the root of a pod: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("cannot make the network of a pod: %w", err)
	}
	if err := unix.Sethostname([]byte("task")); err != nil {
		return fmt.Errorf("cannot name a pod: %w", err)
	}
	return fmt.Errorf("cannot start %s: %w", c.Args[0], syscall.Exec(c.Args[0], c.Args, os.Environ()))
}

// makeRoot makes a root with the programs of this machine and the volumes of the pod, and nothing else.
func makeRoot(folder string) error {
	root := filepath.Join(folder, "root")
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", unix.MS_NOSUID, "mode=755,size=64k,nr_inodes=100"); err != nil {
		return err
	}
	for _, name := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"} {
		if target, err := os.Readlink(name); err == nil {
			if err := os.Symlink(target, root+name); err != nil {
				return err
			}
			continue
		}
		if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := bind(name, root+name, unix.MS_RDONLY); err != nil {
			return err
		}
	}
	if err := bind("/dev", root+"/dev", 0); err != nil {
		return err
	}
	for _, v := range volumes {
		if err := bind(filepath.Join(folder, v.name), root+v.at, 0); err != nil {
			return err
		}
	}
	for _, name := range []string{containers.RunnerProgram, containers.Program} {
		if err := os.Symlink(way.Program, root+name); err != nil {
			return err
		}
	}
	if err := os.Mkdir(root+"/proc", 0o555); err != nil {
		return err
	}
	if err := unix.Mount("proc", root+"/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_BIND|unix.MS_NOSUID, "")
}

// bind puts a folder at another place.
func bind(from, to string, flags uintptr) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if flags == 0 {
		return nil
	}
	if err := unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// loopbackUp has the loopback of a new network namespace work.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}
