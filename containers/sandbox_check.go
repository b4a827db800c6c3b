package containers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// bwrapProbe is what one bubblewrap can do.
type bwrapProbe struct {
	path                string
	size, disableUserNS bool
}

// probe looks at the machine once; a failure is looked at again next time.
func (s *Sandbox) probe(ctx context.Context) (*bwrapProbe, *cgroupRoot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.probed == nil {
		path, err := s.lookBwrap()
		if err != nil {
			return nil, nil, err
		}
		help, err := exec.CommandContext(ctx, path, "--help").CombinedOutput()
		if err != nil {
			return nil, nil, fmt.Errorf("cannot ask %s what it can do: %w: %w", path, ErrUnavailable, err)
		}
		p := &bwrapProbe{
			path: path,
			size: bytes.Contains(help, []byte("--size ")), disableUserNS: bytes.Contains(help, []byte("--disable-userns")),
		}
		for _, need := range []string{"--perms ", "--json-status-fd ", "--as-pid-1", "--ro-bind-data "} {
			if !bytes.Contains(help, []byte(need)) {
				return nil, nil, fmt.Errorf("cannot use %s: it does not know %s; bubblewrap 0.5 or newer is needed: %w",
					path, strings.TrimSpace(need), ErrUnavailable)
			}
		}
		s.probed = p
	}
	if s.cgroups == nil {
		s.cgroups = findCgroups()
	}
	return s.probed, s.cgroups, nil
}

// Check starts bubblewrap around nothing, exactly as for a container.
func (s *Sandbox) Check(ctx context.Context) error {
	probe, _, err := s.probe(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	b, err := s.newBox(probe, "", Limits{}.WithDefaults())
	if err != nil {
		return fmt.Errorf("cannot start sandboxes here: %w: %w", ErrUnavailable, err)
	}
	defer b.close()
	var said bytes.Buffer
	cmd := b.command(nil, nil, []string{"/bin/sh", "-c", ":"})
	cmd.Stderr = &said
	if err := b.start(cmd, nil, nil); err != nil {
		return fmt.Errorf("cannot start sandboxes here: %w: %w", ErrUnavailable, err)
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
			ErrUnavailable, err, strings.TrimSpace(strings.ToValidUTF8(said.String(), "?")), userNamespaceHint(readKernelSetting))
	}
	return nil
}

func readKernelSetting(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// userNamespaceHint says which of the kernel's settings stands in the way, and
// how to change it.
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

// Gives names the abilities that the sandbox has on this machine beyond what
// every engine has; Lacks names those that it has not. Both are empty where
// bubblewrap cannot be found: [Sandbox.Check] tells why.
func (s *Sandbox) Gives() []string { return s.abilities(true) }

// Lacks is the opposite of [Sandbox.Gives]. Without a control group a
// container's memory and CPU time are those of the host; to have one, start
// ramus as root or by `systemd-run --user --scope -p Delegate=yes`.
func (s *Sandbox) Lacks() []string { return s.abilities(false) }

func (s *Sandbox) abilities(given bool) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	probe, cgroups, err := s.probe(ctx)
	if err != nil {
		return nil
	}
	beside := true
	if _, other := s.user(); !other {
		_, _, err := findNsenter()
		beside = err == nil
	}
	var names []string
	for _, a := range []struct {
		name string
		have bool
	}{
		{AbilityMemory, cgroups.limits("memory")},
		{AbilityCPU, cgroups.limits("cpu")},
		{AbilityPIDs, cgroups.limits("pids")},
		{AbilityTmpSize, probe.size},
		{AbilityNoUserNS, probe.disableUserNS},
		{AbilityBeside, beside},
		{AbilityImage, false},
		{AbilityRootUser, false},
	} {
		if a.have == given {
			names = append(names, a.name)
		}
	}
	return names
}
