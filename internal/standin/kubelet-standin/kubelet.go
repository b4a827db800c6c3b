package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
)

// Bounds of the flags.
const (
	maxNodes = 1000
	maxPods  = 1000
)

const (
	// askWait bounds one request to the API server, and endWait all that is done at the end.
	askWait = 15 * time.Second
	endWait = 30 * time.Second
	// again is the pause after a request that failed.
	again = time.Second
	// startsAtOnce bounds the pods that are being started, and askedAtOnce the requests about pods.
	startsAtOnce = 8
	askedAtOnce  = 16
)

// kubelet is the kubelet of all nodes. Each pod has a goroutine, which run waits for.
type kubelet struct {
	client    *kube.Client
	log       *slog.Logger
	sandboxes *sandboxes
	nodes     map[string]bool
	label     string // the value of the label simulated
	perNode   int    // pods
	address   string // of all nodes
	port      int
	threads   int

	starting, asking chan struct{} // have room for startsAtOnce and askedAtOnce
	living           sync.WaitGroup

	mu     sync.Mutex      // guards the fields below
	pods   map[string]*pod // by UID, until nothing is left of them
	byName map[string]*pod // by NAMESPACE/NAME, the newest
	number int             // of pods so far
}

// run is the nodes until ctx is done. It calls ready when all are.
func (k *kubelet) run(ctx context.Context, ln net.Listener, ca []byte, ready func()) error {
	k.starting, k.asking = make(chan struct{}, startsAtOnce), make(chan struct{}, askedAtOnce)
	server, err := newServer(k, ca)
	if err != nil {
		ln.Close()
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var serving, following sync.WaitGroup
	serving.Go(func() {
		if err := server.ServeTLS(ln, "", ""); !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("cannot serve the nodes: %w", err))
		}
	})
	for name := range k.nodes {
		if err = k.register(ctx, name); err != nil {
			break
		}
	}
	if err == nil {
		for name := range k.nodes {
			following.Go(func() { k.keepNode(ctx, name) })
		}
		following.Go(func() { k.follow(ctx) })
		ready()
		<-ctx.Done()
	}
	stop(nil)
	following.Wait() // no pod begins any more
	k.living.Wait()  // their goroutines end with ctx
	_ = server.Close()
	serving.Wait()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	for name := range k.nodes {
		err = errors.Join(err, k.unregister(ending, name))
	}
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// ask sends a request to the API server within a time limit.
func (k *kubelet) ask(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	if err := k.client.Do(ctx, method, path, query, body, answer); err != nil {
		return fmt.Errorf("cannot %s %s: %w", method, path, err)
	}
	return nil
}

// placed selects the pods that are on a node.
const placed = "spec.nodeName!="

// follow has the pods of all nodes live, until ctx is done. One watch is enough for all, as the nodes are of one process.
func (k *kubelet) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.followOnce(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, kube.ErrExpired) {
			k.log.Warn("pods are not watched at the moment", "err", err)
		}
		pause(ctx, again/10)
	}
}

// followOnce lists the pods, and watches them until the watch ends.
func (k *kubelet) followOnce(ctx context.Context) error {
	query := url.Values{"fieldSelector": {placed}, "limit": {"500"}}
	listed := map[string]bool{}
	var version string
	for {
		var list struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []object `json:"items"`
		}
		if err := k.ask(ctx, http.MethodGet, "/api/v1/pods", query, nil, &list); err != nil {
			return err
		}
		for _, o := range list.Items {
			listed[o.Metadata.UID] = true
			k.take(ctx, o)
		}
		version = list.Metadata.ResourceVersion
		if list.Metadata.Continue == "" {
			break
		}
		query.Set("continue", list.Metadata.Continue)
	}
	k.mu.Lock()
	for uid, p := range k.pods {
		if !listed[uid] {
			p.removed()
		}
	}
	k.mu.Unlock()
	for {
		last := version
		err := k.client.Watch(ctx, "/api/v1/pods", url.Values{"fieldSelector": {placed}, "resourceVersion": {version}},
			func(c kube.Change) error {
				var o object
				if err := json.Unmarshal(c.Object, &o); err != nil {
					return err
				}
				version = o.Metadata.ResourceVersion
				switch c.Type {
				case kube.Added, kube.Modified:
					k.take(ctx, o)
				case kube.Deleted:
					k.forget(o.Metadata.UID)
				}
				return nil
			})
		if err != nil || version == last {
			return err
		}
	}
}

// take begins the life of a pod that is new on one of the nodes, and ends that of one that is to be deleted.
func (k *kubelet) take(ctx context.Context, o object) {
	if !k.nodes[o.Spec.NodeName] {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pods[o.Metadata.UID]
	if p == nil {
		if ended := o.Status.Phase == "Failed" || o.Status.Phase == "Succeeded"; ended && o.Metadata.DeletionTimestamp == nil {
			return
		}
		k.number++
		p = newPod(k, o, k.number)
		k.pods[o.Metadata.UID], k.byName[p.name()] = p, p
		k.living.Go(func() { p.live(ctx) })
	}
	if o.Metadata.DeletionTimestamp != nil {
		p.delete()
	}
}

// forget ends the life of a pod that the API server has forgotten.
func (k *kubelet) forget(uid string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pods[uid]; p != nil {
		p.removed()
	}
}

// over drops a pod of which nothing is left.
func (k *kubelet) over(p *pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, p.Metadata.UID)
	if k.byName[p.name()] == p {
		delete(k.byName, p.name())
	}
}

// find returns a pod by its name. Returns nil if none of the nodes has it.
func (k *kubelet) find(namespace, name string) *pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.byName[namespace+"/"+name]
}

// pause waits for a time, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
