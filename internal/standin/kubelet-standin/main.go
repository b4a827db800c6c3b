// Kubelet-standin is the kubelets of many nodes in one process, to load an API server and ramus with more pods than this machine
// could run. It is for tests and measurements.
//
//	kubelet-standin -kubeconfig FILE -nodes 10 -dir DIR -runner bin/ramus-runner
//
// It needs root, an administrator of a cluster, and a network in which the API server reaches -address. `scripts/cluster.sh in`
// has that.
//
// # Real parts
//
// The API server, its scheduler and its controllers are the cluster's. Nodes are registered, renew their Leases, and report their
// state and that of their pods as kubelets do. The API server connects with the port of a node for each exec, over TLS with its own
// certificate as a client, and speaks SPDY.
//
// Each pod of ramus has one real process: its runner, as process 1 in process, mount and network namespaces of its own, with the
// folders of the pod's volumes and the programs of this machine. Its commands are real.
//
// # Simulated parts
//
// There are no images, no limits, and no first containers: their sessions (package way) are goroutines of this process. Pods
// that are not of ramus fail. A pod does not outlive this process.
//
// Nodes have the label ramus.dev/simulated=PREFIX and a taint of that name, so that no other pod is placed on them. A PodTemplate
// with both places those of ramus there (kubernetes.template). The program removes its nodes and ends all pods on an interrupt.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/ramus-dev/ramus/containers/kube"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == sandboxCommand {
		err := enterSandbox(os.Args[2]) // returns only with an error
		fmt.Fprintln(os.Stderr, "kubelet-standin:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "kubelet-standin:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) (err error) {
	flags := flag.NewFlagSet("kubelet-standin", flag.ContinueOnError)
	flags.SetOutput(errs)
	file := flags.String("kubeconfig", os.Getenv("KUBECONFIG"), "`file` with the credential of an administrator")
	nodes := flags.Int("nodes", 1, "how many nodes")
	prefix := flags.String("prefix", "simulated", "the beginning of the nodes' `names`, and the value of their label")
	pods := flags.Int("pods", 110, "how many pods each node may have")
	dir := flags.String("dir", "", "`folder` for the pods, which is made; its path must be short")
	runner := flags.String("runner", "bin/ramus-runner", "the `program` of ramus in pods")
	threads := flags.Int("threads", 4, "how many threads each runner makes at its start")
	address := flags.String("address", "", "`address` of the nodes (the API server's)")
	attached := flags.Bool("attached", false, "end when stdin ends")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("cannot use %q: it is no flag", flags.Arg(0))
	case *nodes < 1 || *nodes > maxNodes || *pods < 1 || *pods > maxPods:
		return fmt.Errorf("cannot simulate %d nodes with %d pods: 1 to %d and 1 to %d are possible", *nodes, *pods, maxNodes, maxPods)
	case *dir == "":
		return errors.New("cannot simulate nodes: a folder is needed (-dir)")
	case os.Geteuid() != 0:
		return errors.New("cannot simulate nodes: only root may make the namespaces of pods")
	}
	if *attached {
		attachedCtx, end := context.WithCancel(ctx)
		ctx = attachedCtx
		go func() { // ends with the process, because a Read of stdin cannot be interrupted
			_, _ = io.Copy(io.Discard, in)
			end()
		}()
	}
	config, err := kube.Load(*file, "")
	if err != nil {
		return err
	}
	if *address == "" {
		server, err := url.Parse(config.Server)
		if err != nil {
			return fmt.Errorf("cannot use the address of the API server: %w", err)
		}
		*address = server.Hostname()
	}
	client, err := kube.New(*config)
	if err != nil {
		return err
	}
	defer client.Close()
	box, err := newSandboxes(*dir, *runner)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.close()) }()
	k := &kubelet{client: client, log: slog.New(slog.NewTextHandler(errs, nil)), sandboxes: box, threads: *threads, address: *address,
		pods: map[string]*pod{}, byName: map[string]*pod{}, nodes: map[string]bool{}, label: *prefix, perNode: *pods}
	for n := range *nodes {
		k.nodes[fmt.Sprintf("%s-%d", *prefix, n)] = true
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(*address, "0"))
	if err != nil {
		return fmt.Errorf("cannot serve the nodes: %w", err)
	}
	k.port = ln.Addr().(*net.TCPAddr).Port
	return k.run(ctx, ln, config.CA, func() { fmt.Fprintf(out, "%d nodes are ready at %s\n", *nodes, ln.Addr()) })
}

// absolute returns the path of a folder with its links resolved, because pods have another root.
func absolute(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}
