package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/sandbox"
	"github.com/ramus-dev/ramus/executor/standby"
	"github.com/ramus-dev/ramus/gateway/client"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
)

// finding is one line of a diagnosis.
type finding struct {
	What  string `json:"what"`
	OK    bool   `json:"ok"`
	Needs bool   `json:"needed"` // ramus cannot work as configured without it
	Says  string `json:"says"`
}

func doctorCommand() command {
	return command{
		name: "doctor", args: "",
		short: "check this machine, and explain how to fix the problems",
		long: `
The exit status is 0 if ramus can work as configured, and 1 otherwise.`,
		set: func(fs *flag.FlagSet, e *env) { fs.BoolVar(&e.json, "json", false, "as JSON") },
		run: func(ctx context.Context, e *env, args []string) error {
			if err := want(args, 0, 0, ""); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			list := diagnose(ctx, e)
			bad := false
			for _, f := range list {
				bad = bad || f.Needs && !f.OK
			}
			if e.json {
				if err := e.writeJSON(list); err != nil {
					return err
				}
			} else {
				for _, f := range list {
					mark := e.colour(green, "ok  ")
					switch {
					case !f.OK && f.Needs:
						mark = e.colour(red, "BAD ")
					case !f.OK:
						mark = e.colour(yellow, "none")
					}
					fmt.Fprintf(e.out, "%s  %-14s %s\n", mark, f.What, e.oneLine(f.Says, 500))
				}
			}
			if bad {
				return &exitStatus{code: exitFailed}
			}
			return nil
		},
	}
}

func diagnose(ctx context.Context, e *env) []finding {
	var list []finding
	add := func(what string, needed bool, says string, err error) {
		if err != nil {
			says = err.Error()
		}
		list = append(list, finding{what, err == nil, needed, says})
	}
	c, err := e.config()
	add("configuration", true, "data folder "+c.Data, err)
	if err != nil {
		return list
	}
	losses, err := readLosses(filepath.Join(c.Data, lostFile))
	for _, l := range losses {
		add("lost work", false, "", errors.New(l.String()))
	}
	if err != nil {
		add("lost work", true, "", err)
	}
	version, err := gitVersion(ctx, e)
	add("git", true, version, err)

	bwrap := &sandbox.Engine{Dir: filepath.Join(c.Data, "sandbox"), ReadOnly: c.Sandbox.ReadOnly,
		Browser: browserDir(c.Browser)}
	says := "bubblewrap starts containers"
	sandboxErr := bwrap.Check(ctx)
	if sandboxErr == nil {
		if lacks := bwrap.Lacks(); len(lacks) > 0 {
			says += "; missing on this machine: " + strings.Join(lacks, ", ")
		}
	}
	moby := &docker.Engine{Image: c.Image}
	dockerErr := moby.Check(ctx)
	defer moby.Close()
	cluster := c.Engine == "kubernetes"
	neither := sandboxErr != nil && dockerErr != nil && !cluster
	add("sandbox", c.Engine == "sandbox" || neither, says, sandboxErr)
	add("docker", c.Engine == "docker" || neither, "the Docker engine answers", dockerErr)
	var pods containers.Engine
	var podsErr error
	if cluster {
		var says, walls string
		if pods, says, walls, podsErr = diagnoseKubernetes(ctx, c); pods != nil {
			defer pods.Close()
		}
		add("kubernetes", true, says, podsErr)
		if podsErr == nil {
			add("walls", false, walls, nil)
		}
	}
	chosen := "sandbox"
	if c.Engine == "docker" || c.Engine == "auto" && sandboxErr != nil && dockerErr == nil {
		chosen = "docker"
	} else if cluster {
		chosen = "kubernetes"
	}
	add("engine", false, chosen+": "+whyEngine(c.Engine, sandboxErr, dockerErr), nil)
	if !neither && podsErr == nil {
		var engine containers.Engine = bwrap
		if cluster {
			engine = pods
		} else if c.Engine == "docker" || c.Engine == "auto" && sandboxErr != nil {
			engine = moby
		}
		says, sees, err := diagnoseWorkTree(ctx, c, engine)
		add("work trees", c.WorkTree != "auto", says, err)
		says, err = diagnoseDisk(c, engine, sees)
		add("disk", false, says, err)
		says, err = diagnoseBrowser(ctx, c.Browser, engine)
		add("browser", false, says, err)
	}

	if conn, err := dialSocket(ctx, c.Data); err == nil {
		conn.Close()
		add("server", false, "runs on "+socketPath(c.Data), nil)
	} else {
		add("server", false, "",
			errors.New("none runs, so each command starts its own (`ramus serve` starts a lasting one)"))
	}
	if says, err := diagnoseStandby(ctx, c); says != "" || err != nil {
		add("stand-by", errors.Is(err, gitd.ErrFenced), says, err)
	}
	if says, err := diagnoseDomain(ctx, c, net.DefaultResolver.LookupHost); says != "" || err != nil {
		add("domain", true, says, err)
	}
	diagnoseWeb(c, add)
	known := &secrets{environ: e.environ}
	err = known.all(c)
	if _, short := redact.New(known.values); err == nil && len(short) > 0 {
		err = errors.New(shortSecrets(short))
	}
	add("secrets", true, fmt.Sprintf("%d values are kept out of logs, commits and messages", len(known.values)), err)
	_, err = newLLM(c.LLM, &secrets{environ: e.environ})
	switch {
	case err == nil && c.LLM.Kind == "":
		add("llm", false, "", errors.New("no endpoint is configured; workflows with llm nodes are refused"))
	default:
		add("llm", c.LLM.Kind != "", c.LLM.Kind+" at "+c.LLM.BaseURL, err)
	}
	return list
}

// diagnoseStandby describes how far stand-bys are. It returns "" and no error if there are none and none may follow.
func diagnoseStandby(ctx context.Context, c Config) (string, error) {
	fence, err := standby.ReadFence(c.Data)
	if err != nil {
		return "", err
	}
	if fence != nil {
		return "", fence
	}
	conn, err := dialSocket(ctx, c.Data)
	if err != nil {
		if c.Standby.Allow {
			return "", errors.New("no server runs that stand-bys could follow")
		}
		return "", nil
	}
	conn.Close()
	s := client.Socket(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, c.Data) })
	defer s.Close()
	st, err := s.Standby(ctx)
	if err != nil {
		return "", err
	}
	if st.Role == standby.RoleStandby {
		if st.Error != "" || st.At.IsZero() {
			return "", fmt.Errorf("follows %s, and is %.1f s behind it: %s", st.Of, st.Lag, cmp.Or(st.Error, "it has nothing yet"))
		}
		return fmt.Sprintf("follows %s, and is %.1f s behind it", st.Of, st.Lag), nil
	}
	best, connected := st.Best()
	switch {
	case connected > 0:
		return fmt.Sprintf("%s, the best %.1f s behind", plural(connected, "stand-by follows", "stand-bys follow"), best.Lag), nil
	case c.Standby.Sync && !c.Standby.Alone:
		return "", errors.New("none follows, and standby.sync is set: all changes are refused")
	case c.Standby.Allow:
		return "", errors.New("none follows, so all is lost with this machine")
	}
	return "", nil
}

// diagnoseDisk describes the enforcement of limits.disk. sees is true if the files of containers can be read in all
// their storage.
func diagnoseDisk(c Config, engine containers.Engine, sees bool) (string, error) {
	_, sandbox := engine.(*sandbox.Engine)
	_, measures := engine.(containers.Usages)
	switch {
	case c.Limits.Disk == 0:
		return "limits.disk is 0: callers may fill the disk up to limits.disk_free", nil
	case sees || measures:
		return "limits.disk: the disk space of a caller is measured while its commands run", nil
	case sandbox:
		return "limits.disk: the disk space of a caller is measured while its commands run; without root's rights this excludes folders that their owner may not read", nil
	}
	return "", errors.New("limits.disk does not bound Docker's volumes: only root, or a helper with root's rights (work_tree), can read them")
}

// oldestGit is the first release with `merge-tree --write-tree`.
const oldestGit = "2.38"

func gitVersion(ctx context.Context, e *env) (string, error) {
	cmd := exec.CommandContext(ctx, "git", "version")
	cmd.Env = e.environ
	b, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot run git: %w; install git %s or newer", err, oldestGit)
	}
	text := strings.TrimSpace(string(b))
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimPrefix(text, "git version "), "%d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("cannot read %q", text)
	}
	if major < 2 || major == 2 && minor < 38 {
		return "", fmt.Errorf("%s is too old; install %s or newer", text, oldestGit)
	}
	return text, nil
}
