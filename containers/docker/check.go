package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers"
)

// minAPI is the API of Engine 20.10, the oldest that has private cgroup namespaces on both versions of cgroups.
const minAPI = "1.41"

// Check reports whether the engine can start containers with every limit they need. The error names all problems at
// once. Check logs shortcomings that are no obstacle.
func (e *Engine) Check(ctx context.Context) error {
	var version client.ServerVersionResult
	err := e.ask(ctx, shortWait, "reach the Docker engine", func(ctx context.Context, api *client.Client) (err error) {
		version, err = api.ServerVersion(ctx, client.ServerVersionOptions{})
		return err
	})
	if err != nil {
		if errors.Is(err, containers.ErrUnavailable) {
			return fmt.Errorf("%w (is it running? make setup starts one; DOCKER_HOST names another)", err)
		}
		return err
	}
	var info client.SystemInfoResult
	err = e.ask(ctx, shortWait, "ask the Docker engine about itself",
		func(ctx context.Context, api *client.Client) (err error) {
			info, err = api.Info(ctx, client.InfoOptions{})
			return err
		})
	if err != nil {
		return err
	}
	i := info.Info

	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if older(version.APIVersion, minAPI) {
		problem("Docker Engine %s speaks API %s; the oldest that works is 20.10 with %s", version.Version,
			version.APIVersion, minAPI)
	}
	if i.OSType != "linux" {
		problem("the engine runs %s containers, but Linux containers are needed", i.OSType)
	}
	for _, limit := range []struct {
		name  string
		there bool
	}{{"memory", i.MemoryLimit}, {"cpu", i.CPUCfsQuota}, {"pids", i.PidsLimit}} {
		if !limit.there {
			problem("the engine cannot limit %s: the cgroup controller (version %s) is not mounted, or not delegated to a rootless engine", limit.name, i.CgroupVersion)
		}
	}
	if !slices.ContainsFunc(i.SecurityOptions, func(o string) bool { return strings.HasPrefix(o, "name=seccomp") }) {
		problem("the engine does not filter system calls (seccomp): its kernel or its build lacks it")
	}
	if _, _, err := e.programs(); err != nil {
		problems = append(problems, err)
	}
	if _, err := e.findImage(ctx, e.image(containers.Spec{})); err != nil {
		problems = append(problems, err)
	}

	if i.Driver == "vfs" {
		e.log().Warn("the engine's storage driver is vfs: each container copies its whole image; overlay2 does not",
			"root", i.DockerRootDir)
	}
	if !i.LiveRestoreEnabled {
		e.log().Info(`the engine ends its containers when it is restarted; "live-restore": true in its daemon.json keeps them`)
	}
	if !i.SwapLimit {
		e.log().Warn("the engine cannot limit swap: containers may use more than their memory limit of it")
	}
	if slices.Contains(i.SecurityOptions, "name=seccomp,profile=unconfined") {
		e.log().Warn("the engine's default seccomp profile is unconfined")
	}
	if len(problems) > 0 {
		return fmt.Errorf("cannot start containers on Docker Engine %s: %w", version.Version, errors.Join(problems...))
	}
	return nil
}

// older reports whether API version a ("1.41") is older than b. A version that cannot be read counts as old.
func older(a, b string) bool {
	x, okX := numbers(a)
	y, okY := numbers(b)
	return !okX || !okY || slices.Compare(x, y) < 0
}

func numbers(version string) ([]int, bool) {
	var list []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}
