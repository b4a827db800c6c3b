package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/gateway/client"
	nodesapi "github.com/ramus-dev/ramus/gateway/nodes"
)

func nodeCommand() command {
	return command{name: "node", args: "list|add|stop|rm|events", short: "order machines at a cloud, and see the nodes of the cluster", usual: "list",
		subs: []command{nodeListCommand(), nodeAddCommand(), nodeStopCommand(), nodeRmCommand(), nodeEventsCommand()}}
}

func nodeListCommand() command {
	var leaked bool
	return command{
		name: "list", args: "[--leaked]", short: "list the nodes",
		long: `
The first is the machine of the server. The others are those at the cloud, those that a
person brought, and those of the cluster of engine: kubernetes. The states are pending,
creating, running, stopping, stopped and error. A running node is healthy, stale or
unhealthy, by the time since its last sign of life. In a cluster that is the lease of its
kubelet, and the condition Ready counts as well.

--leaked asks the cloud, and lists its machines with the name of this server that belong
to no node. Remove them in the console of the cloud.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.BoolVar(&leaked, "leaked", false, "list the machines that belong to no node")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			if leaked {
				l, err := c.LeakedMachines(ctx)
				if err != nil || e.json {
					return firstError(err, func() error { return e.writeJSON(l) })
				}
				for _, m := range l.Machines {
					fmt.Fprintf(e.out, "%s  %s  %s  %s\n", e.oneLine(m.ID, 40), e.oneLine(m.Name, 100), e.oneLine(m.Address, 100),
						m.Created.Local().Format(time.DateTime))
				}
				return nil
			}
			all, err := c.Nodes(ctx)
			if err != nil || e.json {
				return firstError(err, func() error { return e.writeJSON(all) })
			}
			for _, n := range all {
				printNode(e, n)
			}
			return nil
		},
	}
}

// firstError returns err, or the error of f if that is nil.
func firstError(err error, f func() error) error {
	if err != nil {
		return err
	}
	return f()
}

// printNode writes the line of a machine.
func printNode(e *env, n nodesapi.Node) {
	state := string(n.Status)
	if n.Health != "" {
		state += ", " + string(n.Health)
	}
	if n.Cloud == nil {
		fmt.Fprintf(e.out, "%s  %s  this machine, %s, %s\n", n.ID, state, n.Engine, n.Platform)
		return
	}
	parts := []string{n.ID, state, n.Cloud.Size, n.Cloud.Location, e.oneLine(n.Cloud.Address, 100)}
	if m := n.Cloud.Member; m != nil {
		parts = append(parts, e.oneLine(m.Version, 100), fmt.Sprintf("%d containers", m.Containers))
	}
	parts = append(parts, e.oneLine(n.Cloud.Error, 300))
	fmt.Fprintln(e.out, strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "  "))
}

func nodeAddCommand() command {
	var o nodesapi.Order
	return command{
		name: "add", args: "[--size SIZE] [--location PLACE] [--own] | --ssh USER@HOST", short: "order a node, or make a machine one",
		long: `
The node is in the book before the cloud is asked. Its machine exchanges a token, which
is good once and for five minutes, and reports that it is ready. If it does not within
nodes.boot_wait, it is removed.

--ssh orders nothing. It runs a script on a bare machine with Debian, as root or by sudo,
through the ssh of this computer. The machine reports as one at a cloud does. It runs on
when its node is stopped.`,
		set: func(fs *flag.FlagSet, e *env) {
			fs.StringVar(&o.Size, "size", "", "small, medium or large; by default nodes.size")
			fs.StringVar(&o.Location, "location", "", "a `place` of the cloud, such as nbg1; by default nodes.location")
			fs.BoolVar(&o.Own, "own", false, "order with your own token (ramus secret set --type cloud-provider)")
			fs.StringVar(&o.Address, "ssh", "", "a machine that you have, as `USER@HOST` or ssh://USER@HOST:PORT")
			setJSON(fs, e)
		},
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 0, 0, "")
			if err != nil {
				return err
			}
			if o.Address != "" && (o.Size != "" || o.Location != "" || o.Own) {
				return usage("--ssh orders nothing, so it has no --size, --location and --own")
			}
			if strings.HasPrefix(o.Address, "-") {
				return usage("%q is no machine; want USER@HOST", o.Address)
			}
			n, err := c.AddNode(ctx, o)
			if err == nil && o.Address != "" {
				n.Node, err = e.bringMachine(ctx, c, n, o.Address)
			}
			if err != nil || e.json {
				return firstError(err, func() error { return e.writeJSON(n.Node) })
			}
			printNode(e, n.Node)
			return nil
		},
	}
}

// becomeRoot reads a script on standard input and runs it as root.
const becomeRoot = `if [ "$(id -u)" = 0 ]; then exec sh -s; else exec sudo -n sh -s; fi`

// bringMachine runs the script of a node on its machine. The node is stopped if that fails.
func (e *env) bringMachine(ctx context.Context, c *client.Client, n nodesapi.Ordered, address string) (nodesapi.Node, error) {
	cmd := exec.CommandContext(ctx, "ssh", "-T", "--", address, becomeRoot)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(n.Script), e.err, e.err
	if err := cmd.Run(); err != nil {
		err = fmt.Errorf("cannot make %s a node: ssh: %w", address, err)
		_, stopped := c.StopNode(context.WithoutCancel(ctx), n.ID)
		return n.Node, errors.Join(err, stopped)
	}
	return c.Node(ctx, n.ID)
}

func nodeStopCommand() command {
	return command{
		name: "stop", args: "NODE", short: "remove the machine of a node, and keep the node's events",
		set: func(fs *flag.FlagSet, e *env) { setJSON(fs, e) },
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NODE")
			if err != nil {
				return err
			}
			n, err := c.StopNode(ctx, args[0])
			if err != nil || e.json {
				return firstError(err, func() error { return e.writeJSON(n) })
			}
			printNode(e, n)
			return nil
		},
	}
}

func nodeRmCommand() command {
	return command{
		name: "rm", args: "NODE", short: "remove a node and its machine",
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NODE")
			if err != nil {
				return err
			}
			return c.RemoveNode(ctx, args[0])
		},
	}
}

func nodeEventsCommand() command {
	return command{
		name: "events", args: "NODE", short: "show the events and the boot log of a node",
		set: func(fs *flag.FlagSet, e *env) { setJSON(fs, e) },
		run: func(ctx context.Context, e *env, args []string) error {
			c, err := e.clientFor(ctx, args, 1, 1, "NODE")
			if err != nil {
				return err
			}
			events, err := c.NodeEvents(ctx, args[0])
			if err != nil || e.json {
				return firstError(err, func() error { return e.writeJSON(events) })
			}
			for _, ev := range slices.Backward(events) {
				fmt.Fprintf(e.out, "%s  %-18s  %s\n", ev.Time.Local().Format(time.DateTime), ev.Type, e.oneLine(ev.Message, 300))
			}
			boot, err := c.NodeBootLog(ctx, args[0])
			if err != nil {
				return err
			}
			for line := range strings.Lines(boot.Text) {
				fmt.Fprintf(e.out, "  %s\n", e.oneLine(strings.TrimSuffix(line, "\n"), 500))
			}
			return nil
		},
	}
}
