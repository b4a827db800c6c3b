package docker

import (
	"crypto/rand"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/runner"
)

// Labels that name the owner and the caller of a container.
const (
	labelOwner = "ramus.owner"
	labelKey   = "ramus.key"
	labelImage = "ramus.image" // name and digest of the container's image
	// labelNames has the names of the caller's labels. A container inherits the labels of its image, which must not be
	// taken for the caller's.
	labelNames = "ramus.labels"
)

// Paths inside that only root can reach.
const (
	insideDir       = "/run/ramus" // memory, mode 0700, so that only root can reach the paths below
	insideRunner    = insideDir + "/ramus"
	insideSocketDir = insideDir + "/run"
	insideSpool     = insideDir + "/spool" // a volume, so that output is kept on disk and not in memory
	socketName      = "runner.sock"
	hostsName       = "hosts" // in the container's folder on the host
)

// taskUID and taskGID are the user and the group of commands, as in the image.
const taskUID, taskGID = 1000, 1000

// maxArgument is the kernel's limit for one argument (MAX_ARG_STRLEN).
const maxArgument = 128 << 10

// containerName returns a name that people recognise. Docker allows [a-zA-Z0-9_.-], which excludes the colon of keys.
// The random suffix allows a new container of a caller while the last one is still being removed. Only the labels
// identify a container.
func containerName(key string) string {
	var b [4]byte
	rand.Read(b[:])
	return "container-" + plain(key, 80) + "-" + hex.EncodeToString(b[:])
}

// plain returns s with the characters replaced that names of containers and hosts do not allow.
func plain(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s)
	s = strings.Trim(s[:min(len(s), limit)], "-")
	if s == "" {
		return "task"
	}
	return s
}

func hostname(key string) string { return plain(key, 63) }

// hostsMount mounts file as /etc/hosts. A container without a network of the engine gets its names from nothing else.
func hostsMount(file string) mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: file, Target: "/etc/hosts", ReadOnly: true}
}

// parts are the ingredients of a container that its Spec does not have.
type parts struct {
	image           client.ImageInspectResult
	name            string // of the image, as requested
	runner, program string // paths on the host
	cpus            int    // of the engine's machine
}

// recipe returns the options of a container.
func recipe(s containers.Spec, p parts) (client.ContainerCreateOptions, error) {
	none := client.ContainerCreateOptions{}
	limits := s.Limits.WithDefaults()
	config, err := runnerConfig(s, limits, p.image)
	if err != nil {
		return none, err
	}
	labels, err := recipeLabels(s, p)
	if err != nil {
		return none, err
	}
	return client.ContainerCreateOptions{
		Name: containerName(s.Key),
		Config: &container.Config{
			// The id, because the name may mean another image by now.
			Image:      p.image.ID,
			Hostname:   hostname(s.Key),
			User:       "0:0", // with any image, because the runner has to become the user of commands
			WorkingDir: "/",
			// The runtime makes the loopback by itself. With a network of the engine, even of the kind "none", the daemon of
			// the engine is started once more in each container, to hand over its networks. That takes as long as the rest of
			// a start.
			NetworkDisabled: true,
			Entrypoint:      []string{insideRunner},
			Cmd:             []string{"runner", config},
			Labels:          labels,
			StopSignal:      "SIGKILL", // process 1 has nothing to save
			// The check of an image would run as root.
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		},
		HostConfig: recipeHost(s, p, limits),
	}, nil
}

// runnerConfig returns the configuration of the runner, as JSON.
func runnerConfig(s containers.Spec, limits containers.Limits, image client.ImageInspectResult) (string, error) {
	c := runner.Config{
		Listen:    "unix:" + insideSocketDir + "/" + socketName,
		ClientKey: s.ClientKey,
		UID:       taskUID, GID: taskGID,
		Spool:      insideSpool,
		Work:       containers.WorkDir,
		DoorFolder: containers.DoorFolder,
		Env:        s.Env, // the environment of the image comes by process 1
		Output:     limits.Output,
		FileSize:   limits.FileSize,
		DiskFree:   limits.DiskFree,
		PIDs:       limits.PIDs,
	}
	if s.Program {
		c.Program, c.UID, c.GID, c.PIDs = true, 0, 0, 0
		if image.Config != nil {
			c.User, c.Dir = image.Config.User, image.Config.WorkingDir
		}
	}
	b, err := json.Marshal(c)
	if err == nil && len(b) >= maxArgument {
		err = fmt.Errorf("the environment takes %d bytes; %d are possible", len(b), maxArgument)
	}
	return string(b), err
}

// recipeLabels returns the labels of a container: those of the caller and those of this engine.
func recipeLabels(s containers.Spec, p parts) (map[string]string, error) {
	labels := make(map[string]string)
	maps.Copy(labels, s.Labels)
	names, err := json.Marshal(slices.Sorted(maps.Keys(s.Labels)))
	if err != nil {
		return nil, err
	}
	labels[labelNames] = string(names)
	labels[labelOwner] = s.Owner
	labels[labelKey] = s.Key
	labels[labelImage] = digested(p.name, p.image)
	return labels, nil
}

// recipeHost returns the isolation, the mounts and the limits of a container.
func recipeHost(s containers.Spec, p parts, limits containers.Limits) *container.HostConfig {
	volume := func(target string) mount.Mount {
		return mount.Mount{Type: mount.TypeVolume, Target: target, VolumeOptions: &mount.VolumeOptions{
			Labels: map[string]string{labelOwner: s.Owner, labelKey: s.Key},
		}}
	}
	no := false
	host := &container.HostConfig{
		NetworkMode:    "none",
		IpcMode:        container.IPCModePrivate,
		CgroupnsMode:   container.CgroupnsModePrivate,
		ReadonlyRootfs: true,
		CapDrop:        []string{"ALL"},
		// The runner needs these to become the user of commands, to end commands, to take over its folders, and to drop even
		// the possibility of capabilities. Commands have none of them.
		CapAdd:        []string{"SETUID", "SETGID", "KILL", "CHOWN", "SETPCAP"},
		SecurityOpt:   []string{"no-new-privileges"},
		LogConfig:     container.LogConfig{Type: "none"},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Init:          &no, // the runner is one
		// If the host runs out of memory, containers are killed before services of the host.
		OomScoreAdj: 500,
		Tmpfs: map[string]string{
			"/tmp":    fmt.Sprintf("rw,exec,nosuid,nodev,mode=1777,size=%d", limits.Tmp),
			insideDir: "rw,noexec,nosuid,nodev,mode=0700,size=65536",
		},
		Mounts: []mount.Mount{
			{Type: mount.TypeBind, Source: p.runner, Target: insideRunner, ReadOnly: true},
			{Type: mount.TypeBind, Source: p.runner, Target: containers.RunnerProgram, ReadOnly: true}, // for commands
			{Type: mount.TypeBind, Source: p.program, Target: containers.Program, ReadOnly: true},
			{Type: mount.TypeBind, Source: filepath.Join(s.Dir, "run"), Target: insideSocketDir},
			hostsMount(filepath.Join(s.Dir, hostsName)),
			volume(insideSpool),
			volume(containers.WorkDir),
			volume(containers.ArtifactsDir),
			volume(containers.CacheDir),
		},
		Resources: container.Resources{
			Memory:     limits.Memory,
			MemorySwap: limits.Memory, // memory and swap together, so no swap
			// An engine refuses more CPUs than its machine has.
			NanoCPUs:  int64(min(limits.CPUs, float64(p.cpus)) * 1e9),
			PidsLimit: &limits.PIDs,
			// Only limits below those of the engine. An engine that is itself confined cannot give more.
			Ulimits: []*container.Ulimit{{Name: "core", Soft: 0, Hard: 0}},
		},
	}
	if s.Program {
		// An image's program often begins as root, makes its folders, and goes on as another user.
		host.CapAdd = append(host.CapAdd, "DAC_OVERRIDE", "FOWNER")
		host.Tmpfs["/run"] = "rw,exec,nosuid,nodev,mode=0755,size=16777216"
		for _, dir := range ownVolumes(p.image) {
			host.Mounts = append(host.Mounts, volume(dir))
		}
	}
	return host
}

// ownVolumes returns the volumes that an image declares, without those that every container has.
func ownVolumes(image client.ImageInspectResult) []string {
	if image.Config == nil {
		return nil
	}
	var own []string
	for _, dir := range slices.Sorted(maps.Keys(image.Config.Volumes)) {
		dir = path.Clean(dir)
		taken := slices.ContainsFunc([]string{"/tmp", "/run", "/etc", containers.WorkDir, containers.ArtifactsDir,
			containers.CacheDir}, func(p string) bool {
			return dir == p || strings.HasPrefix(dir, p+"/") || strings.HasPrefix(p, dir+"/")
		})
		if path.IsAbs(dir) && dir != "/" && !taken {
			own = append(own, dir)
		}
	}
	return own
}

// digested returns an image's name with its digest. The digest is the registry's for an image from a registry, and the
// image's own id otherwise.
func digested(name string, image client.ImageInspectResult) string {
	name, _, _ = strings.Cut(name, "@")
	for _, d := range image.RepoDigests {
		if _, digest, ok := strings.Cut(d, "@"); ok {
			return name + "@" + digest
		}
	}
	if name == image.ID {
		return name
	}
	return name + "@" + image.ID
}

// callersLabels returns the labels of [containers.Spec] among all labels of a container.
func callersLabels(all map[string]string) map[string]string {
	var names []string
	if err := json.Unmarshal([]byte(all[labelNames]), &names); err != nil || len(names) == 0 {
		return nil
	}
	labels := make(map[string]string, len(names))
	for _, name := range names {
		labels[name] = all[name]
	}
	return labels
}

// programs returns the paths of the runner's program and of the commands' program.
func (e *Engine) programs() (runner, program string, err error) {
	if runner, err = usableProgram(e.Runner); err != nil || e.Program == "" {
		return runner, runner, err
	}
	program, err = usableProgram(e.Program)
	return runner, program, err
}

// usableProgram resolves the path of a program; "" means this program. It refuses a program that could not run in every
// container. There the error would be "no such file" for a file that exists.
func usableProgram(path string) (string, error) {
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			return "", fmt.Errorf("cannot find this program: %w", err)
		}
	}
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the runner: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("cannot find the runner: %w", err)
	}
	// The commands' user starts it too, to serve files.
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o005 != 0o005 {
		return "", fmt.Errorf("cannot use %s as the runner: it must be executable for everyone (chmod a+rx)", path)
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("cannot use %s as the runner: %w", path, err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return "", fmt.Errorf("cannot use %s as the runner: %w", path, errDynamic)
		}
	}
	return path, nil
}

var errDynamic = errors.New("it is not static and would not start in images without its libraries (build with CGO_ENABLED=0)")
