package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/cgroup"
)

// bwrapProbe describes the abilities of one version of bubblewrap.
type bwrapProbe struct {
	path                string
	size, disableUserNS bool
}

// probe looks at the machine once. After a failure the next call looks again.
func (s *Engine) probe(ctx context.Context) (*bwrapProbe, *cgroup.Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probed == nil {
		path, err := s.lookBwrap()
		if err != nil {
			return nil, nil, err
		}
		help, err := exec.CommandContext(ctx, path, "--help").CombinedOutput()
		if err != nil {
			return nil, nil, fmt.Errorf("cannot ask %s what it can do: %w: %w", path, containers.ErrUnavailable, err)
		}
		p := &bwrapProbe{
			path: path,
			size: bytes.Contains(help, []byte("--size ")), disableUserNS: bytes.Contains(help, []byte("--disable-userns")),
		}
		for _, need := range []string{"--perms ", "--json-status-fd ", "--as-pid-1", "--ro-bind-data "} {
			if !bytes.Contains(help, []byte(need)) {
				return nil, nil, fmt.Errorf("cannot use %s: it does not know %s; bubblewrap 0.5 or newer is needed: %w",
					path, strings.TrimSpace(need), containers.ErrUnavailable)
			}
		}
		s.probed = p
	}
	if s.cgroups == nil {
		s.cgroups = cgroup.Find()
	}
	return s.probed, s.cgroups, nil
}

// lookBwrap finds bubblewrap. The error explains how to install it.
func (s *Engine) lookBwrap() (string, error) {
	name := s.Bwrap
	if name == "" {
		name = "bwrap"
	}
	p, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("cannot find bubblewrap (%w); install the package \"bubblewrap\": %w", err,
			containers.ErrUnavailable)
	}
	return filepath.Abs(p)
}

// Check starts bubblewrap without a runner, in the same way as for a container.
func (s *Engine) Check(ctx context.Context) error {
	probe, _, err := s.probe(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	b, err := s.newBox(probe, "", containers.Limits{}.WithDefaults())
	if err != nil {
		return fmt.Errorf("cannot start sandboxes here: %w: %w", containers.ErrUnavailable, err)
	}
	defer b.close()
	var said bytes.Buffer
	cmd := b.command(nil, nil, []string{"/bin/sh", "-c", ":"})
	cmd.Stderr = &said
	if err := b.start(cmd, nil, nil); err != nil {
		return fmt.Errorf("cannot start sandboxes here: %w: %w", containers.ErrUnavailable, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		cmd.Process.Kill()
		<-ended
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("cannot start sandboxes here: %w: bubblewrap: %w: %s%s",
			containers.ErrUnavailable, err, strings.TrimSpace(strings.ToValidUTF8(said.String(), "?")),
			userNamespaceHint(readKernelSetting))
	}
	return nil
}

// readKernelSetting returns a setting of the kernel, or "" if there is none.
func readKernelSetting(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// userNamespaceHint names the setting of the kernel that forbids user namespaces, and how to change it.
func userNamespaceHint(setting func(name string) string) string {
	switch {
	case setting("kernel/unprivileged_userns_clone") == "0":
		return "; user namespaces are switched off here: `sysctl -w kernel.unprivileged_userns_clone=1` allows them"
	case setting("user/max_user_namespaces") == "0":
		return "; user namespaces are switched off here: `sysctl -w user.max_user_namespaces=15000` allows them"
	case setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "; AppArmor restricts user namespaces here: install the package \"apparmor-profiles\" and load its profile" +
			" bwrap-userns-restrict, or `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`"
	}
	return "; if this machine is itself a container, it may forbid user namespaces: use the docker engine," +
		" or allow the container the unshare and mount system calls"
}

// Gives returns the limits and features, such as [containers.AbilityMemory], that the engine has on this machine beyond
// those that every engine has. Returns nil if bubblewrap cannot be found. [Engine.Check] returns the reason.
func (s *Engine) Gives() []string { return s.abilities(true) }

// Lacks returns the limits and features that the engine does not have on this machine. Returns nil if bubblewrap cannot be found.
// Without a control group, the memory and CPU time of a container are those of the host. To have one, start ramus as root or by
// `systemd-run --user --scope -p Delegate=yes`.
func (s *Engine) Lacks() []string { return s.abilities(false) }

func (s *Engine) abilities(given bool) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	probe, cgroups, err := s.probe(ctx)
	if err != nil {
		return nil
	}
	sidecars := true
	if _, other := s.user(); !other {
		_, _, err := findNsenter()
		sidecars = err == nil
	}
	var names []string
	for _, a := range []struct {
		name string
		have bool
	}{
		{containers.AbilityMemory, cgroups.Has("memory")},
		{containers.AbilityCPU, cgroups.Has("cpu")},
		{containers.AbilityPIDs, cgroups.Has("pids")},
		{containers.AbilityTmpSize, probe.size},
		{containers.AbilityNoUserNS, probe.disableUserNS},
		{containers.AbilitySidecar, sidecars},
		{containers.AbilityImage, false},
		{containers.AbilityRootUser, false},
	} {
		if a.have == given {
			names = append(names, a.name)
		}
	}
	return names
}
