// Hetzner-standin is a project of Hetzner Cloud on this machine, to try ramus without a cloud. It keeps servers, and
// writes the files of each one's description to a folder, as cloud-init does.
//
//	HCLOUD_TOKEN=… hetzner-standin -listen 127.0.0.1:7090 -dir machines -url http://127.0.0.1:7077 -power ./power
//
// The folder of a server is -dir/NODE. `POWER on NODE FOLDER` runs when a server is made, and `POWER off NODE FOLDER`
// when it is removed. In the files http://ramus.example is replaced by -url. The program ends on an interrupt.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/internal/standin/cloudtest"
	"github.com/ramus-dev/ramus/internal/standin/hetznertest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Getenv("HCLOUD_TOKEN"), os.Stdout); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "hetzner-standin:", err)
		}
		os.Exit(1)
	}
}

// hall has the servers as they were last.
type hall struct {
	dir, url, power string
	on              map[string]string // the node of each server, by the server's name
	out             io.Writer
}

func run(ctx context.Context, args []string, token string, out io.Writer) error {
	h := hall{on: map[string]string{}, out: out}
	flags := flag.NewFlagSet("hetzner-standin", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:7090", "`address` of the API")
	flags.StringVar(&h.dir, "dir", "machines", "`folder` of the servers' folders")
	flags.StringVar(&h.url, "url", "http://ramus.example", "`URL` of ramus for servers")
	flags.StringVar(&h.power, "power", "", "`program` that is told of each server")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cloud, err := hetznertest.NewAt(*listen, token)
	if err != nil {
		return err
	}
	defer cloud.Close()
	fmt.Fprintln(out, "the cloud is at", cloud.URL)
	for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; {
		if err := h.look(ctx, cloud.Machines()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}

// look switches servers on that are new, and off that are gone.
func (h *hall) look(ctx context.Context, machines []cloudtest.Machine) error {
	there := map[string]bool{}
	for _, m := range machines {
		there[m.Name] = true
		if h.on[m.Name] != "" {
			continue
		}
		node := m.Labels["ramus-node"]
		h.on[m.Name] = node
		if err := cloudtest.WriteFiles(m.UserData, filepath.Join(h.dir, node), h.url); err != nil {
			return err
		}
		if err := h.tell(ctx, "on", node); err != nil {
			return err
		}
	}
	for name, node := range h.on {
		if !there[name] {
			delete(h.on, name)
			if err := h.tell(ctx, "off", node); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *hall) tell(ctx context.Context, what, node string) error {
	fmt.Fprintf(h.out, "the machine of %s is %s\n", node, what)
	if h.power == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, h.power, what, node, filepath.Join(h.dir, node))
	cmd.Stdout, cmd.Stderr = h.out, h.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot switch %s %s: %w", node, what, err)
	}
	return nil
}
