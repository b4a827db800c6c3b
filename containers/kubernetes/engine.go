package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
)

// Time limits for one request. The context of a caller may have a shorter one.
const (
	shortWait  = 15 * time.Second
	removeWait = time.Minute
	// StartWait is the default of Engine.Wait. A pod may wait for a node, and for its image.
	StartWait = 10 * time.Minute
)

// Bounds on the requests of the engine to a cluster at once. A thousand callers that begin together wait for their turn, because an
// API server that has too much to do answers nobody in time.
const (
	// maxAsked bounds the requests to the API server that have no answer yet, apart from the watch and from commands in pods.
	maxAsked = 32
	// maxTried bounds the connections to runners that are being made, and again those that are being made again. So a node
	// that does not answer delays no new container.
	maxTried = 16
)

// Tests shorten these.
var (
	// tryWait bounds one try to connect to a runner.
	tryWait = 30 * time.Second
	// createWait is the time for which Start repeats the creation of a pod that the API server cannot do at the moment.
	createWait = time.Minute
)

// stuckWait is the time that a pod may report a mistake, as an image that cannot be pulled, before Start gives up.
// Tests shorten it.
var stuckWait = 15 * time.Second

// DefaultNamespace has the pods if no namespace is configured.
const DefaultNamespace = "ramus-containers"

// Engine is a [containers.Engine] over a Kubernetes cluster. Fields must not change after the first call.
type Engine struct {
	// Cluster has the address and the credential. It is needed.
	Cluster *kube.Config
	// Namespace has the pods, and nothing else. The default is [DefaultNamespace].
	Namespace string
	// Runtime is the image of the first container of each pod, with ramus-runner. It is needed.
	Runtime string
	// Image is used for a Spec without one.
	Image string
	// Template is the name of the operator's PodTemplate in Namespace. If it is empty, there is none.
	Template string
	// UserNamespaces has each pod have users of its own. The nodes need containerd 2.0 and Linux 6.3.
	UserNamespaces bool
	// Side describes the sidecars that stand ready in each pod. Without an image the engine has none.
	Side Side
	// Requests are the resources that the scheduler reserves for a pod. The limits of a Spec are its limits.
	Requests Requests
	// Wait is the time from the creation of a pod to the greeting of its runner, after which Start gives up. The default is
	// [StartWait].
	Wait time.Duration
	// Room is called while a pod of a caller waits because no node has room for it. It returns what is done about that, and
	// does not block. Nil means that nothing is done. Pods of the pool wait in silence.
	Room func() string
	// Log gets errors that no caller gets. If it is nil, they are discarded.
	Log *slog.Logger

	mu       sync.Mutex // guards the fields below
	api      *kube.Client
	pods     *watch
	template *template
	taken    map[string]bool // "POD/CONTAINER" of sides with a sidecar
	freed    chan struct{}   // is closed and replaced when a side becomes free
	sidecars map[string]bool // pods of sidecars whose RunSidecar has not returned
	id       string          // of this value; see [Engine.identity]

	asked  turns // with room for maxAsked
	tried  turns // with room for maxTried
	retied turns // with room for maxTried
}

// Side describes the sidecars that stand ready.
type Side struct {
	Image string
	// Limits are those of each sidecar. They are fixed when the pod starts.
	Limits containers.Limits
	// Count is the number in each pod, and so how many sidecars of a container can run at once. The default is 2.
	Count int
}

// Requests are the resources that the scheduler reserves.
type Requests struct {
	Memory int64   // bytes; default 64 MiB
	CPUs   float64 // default 0.02
}

func (r Requests) memory() int64 {
	if r.Memory > 0 {
		return r.Memory
	}
	return 64 << 20
}

func (r Requests) cpus() float64 {
	if r.CPUs > 0 {
		return r.CPUs
	}
	return 0.02
}

var _ interface {
	containers.Engine
	containers.Sidecars
	containers.Assigner
	containers.Volumes
	containers.Usages
	containers.Images
	containers.Names
} = (*Engine)(nil)

// Name returns "kubernetes".
func (e *Engine) Name() string { return "kubernetes" }

// Close ends the watch and closes the connections of the engine. Containers continue.
func (e *Engine) Close() error {
	e.mu.Lock()
	pods, api := e.pods, e.api
	e.pods, e.api = nil, nil
	e.mu.Unlock()
	if pods != nil {
		pods.close()
	}
	if api != nil {
		api.Close()
	}
	return nil
}

func (e *Engine) log() *slog.Logger {
	if e.Log != nil {
		return e.Log
	}
	return slog.New(slog.DiscardHandler)
}

func (e *Engine) namespace() string {
	if e.Namespace != "" {
		return e.Namespace
	}
	return DefaultNamespace
}

// Asked returns the number of requests to the API server so far. Tests use it to show that fast paths make none.
func (e *Engine) Asked() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.api == nil {
		return 0
	}
	return e.api.Requests()
}

// client returns the one client, which the first call makes.
func (e *Engine) client() (*kube.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.api != nil {
		return e.api, nil
	}
	if e.Cluster == nil {
		return nil, errors.New("cannot use a cluster: its address is missing (kubernetes.kubeconfig)")
	}
	api, err := kube.New(*e.Cluster)
	if err != nil {
		return nil, err
	}
	e.api = api
	return api, nil
}

// path returns the path of the pods, or of one.
func (e *Engine) path(kind string, parts ...string) string {
	path := "/api/v1/namespaces/" + url.PathEscape(e.namespace()) + "/" + kind
	for _, p := range parts {
		path += "/" + url.PathEscape(p)
	}
	return path
}

// ask sends one request within a time limit, when fewer than maxAsked others are under way. what names the attempt in errors. A request without an answer is
// [containers.ErrUnavailable].
func (e *Engine) ask(ctx context.Context, limit time.Duration, what, method, path string, query url.Values,
	body, answer any) error {
	api, err := e.client()
	if err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	leave, err := e.asked.takeTurn(ctx, maxAsked)
	if err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = api.Do(limited, method, path, query, body, answer)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("cannot %s: %w", what, context.Cause(ctx))
	case limited.Err() != nil:
		return fmt.Errorf("cannot %s: no answer from %s within %v: %w", what, api.Server(), limit,
			containers.ErrUnavailable)
	}
	return fmt.Errorf("cannot %s: %w", what, unavailable(err))
}

// unavailable marks an error that is no refusal of the API server, or one that it will not repeat.
func unavailable(err error) error {
	var status *kube.StatusError
	if errors.As(err, &status) && status.Code != http.StatusTooManyRequests && status.Code < 500 {
		return err
	}
	return fmt.Errorf("%w: %w", containers.ErrUnavailable, err)
}

// getPod returns a pod. Returns [containers.ErrGone] if it does not exist.
func (e *Engine) getPod(ctx context.Context, id string) (*pod, error) {
	var p pod
	if !isName(id) {
		return nil, fmt.Errorf("%w: %q is no name of a pod", containers.ErrGone, id)
	}
	err := e.ask(ctx, shortWait, "look at pod "+id, http.MethodGet, e.path("pods", id), nil, nil, &p)
	if kube.IsCode(err, http.StatusNotFound) {
		return nil, fmt.Errorf("%w: %w", containers.ErrGone, err)
	}
	return &p, err
}

// isName reports whether a pod can have a name.
func isName(id string) bool {
	return id != "" && len(id) < 254 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// pageSize is the number of pods in one answer.
const pageSize = 500

// listPods returns the pods of a selector, and the version of the list.
func (e *Engine) listPods(ctx context.Context, selector string) (items []pod, version string, err error) {
	query := url.Values{"labelSelector": {selector}, "limit": {fmt.Sprint(pageSize)}}
	for {
		var list podList
		if err := e.ask(ctx, shortWait, "list pods", http.MethodGet, e.path("pods"), query, nil, &list); err != nil {
			return nil, "", err
		}
		items = append(items, list.Items...)
		if list.Metadata.Continue == "" {
			return items, list.Metadata.ResourceVersion, nil
		}
		query.Set("continue", list.Metadata.Continue)
	}
}

// List returns the containers of one owner, the newest last. A pod that is being deleted is not listed.
func (e *Engine) List(ctx context.Context, owner string) ([]containers.Container, error) {
	if owner == "" {
		return nil, errors.New("cannot list containers: an owner is needed")
	}
	items, _, err := e.listPods(ctx, labelOwner+"="+hash(owner)+","+labelKind+"="+kindTask)
	if err != nil {
		return nil, err
	}
	var list []containers.Container
	for _, p := range items {
		if p.Metadata.DeletionTimestamp != nil || p.Metadata.Annotations[annotationOwner] != owner ||
			e.isStarting(p.Metadata.Name) {
			continue
		}
		c := describe(&p)
		if _, ended := p.ended(); ended {
			c.Running = false
		} else if p.Status.Phase == "Pending" && p.Spec.NodeName != "" {
			// The kubelet reports a container that runs up to a second late.
			probing, cancel := context.WithTimeout(ctx, probeWait)
			c.Running = e.greeted(probing, p.Metadata.Name) == nil
			cancel()
		}
		list = append(list, c)
	}
	slices.SortStableFunc(list, func(a, b containers.Container) int { return a.Created.Compare(b.Created) })
	return list, nil
}

// describe returns the record of a pod.
func describe(p *pod) containers.Container {
	c := containers.Container{ID: p.Metadata.Name, Key: p.Metadata.Annotations[annotationKey],
		Image: p.Metadata.Annotations[annotationImage], Running: p.Status.Phase == "Running"}
	if t := p.Metadata.CreationTimestamp; t != nil {
		c.Created = t.UTC()
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == taskName {
			c.Image = describeImage(c.Image, s.ImageID)
		}
	}
	_ = json.Unmarshal([]byte(p.Metadata.Annotations[annotationLabels]), &c.Labels)
	return c
}

// Assign gives a container a key and labels. See [containers.Assigner].
func (e *Engine) Assign(ctx context.Context, id, key string, labels map[string]string) error {
	text, err := json.Marshal(labels)
	if err != nil {
		return fmt.Errorf("kubernetes: %w", err)
	}
	patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotationKey: key,
		annotationLabels: string(text)}}}
	err = e.ask(ctx, shortWait, "assign pod "+id, http.MethodPatch, e.path("pods", id), nil, patch, nil)
	if kube.IsCode(err, http.StatusNotFound) {
		err = fmt.Errorf("%w: %w", containers.ErrGone, err)
	}
	return err
}

// Remove deletes the pod, and returns when the cluster has forgotten it. A node ends the processes within the next
// seconds. The pod of a node that does not answer is forgotten too, because a container holds nothing that counts.
func (e *Engine) Remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, removeWait, containers.ErrUnavailable)
	defer cancel()
	what := "remove pod " + id
	query := url.Values{"gracePeriodSeconds": {"0"}, "propagationPolicy": {"Background"}}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := e.ask(ctx, shortWait, what, http.MethodDelete, e.path("pods", id), query, nil, nil)
		if kube.IsCode(err, http.StatusNotFound) {
			e.watching(func(w *watch) { w.forget(id) })
			return nil
		}
		// A lost answer, a conflict with the kubelet and an overloaded server are worth another attempt. So is a
		// success, because the next answer shows whether the pod is gone.
		if err != nil && !errors.Is(err, containers.ErrUnavailable) && !kube.IsCode(err, http.StatusConflict) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("cannot %s: %w", what, errors.Join(context.Cause(ctx), err))
		}
	}
}

// watching calls f with the watch, if there is one.
func (e *Engine) watching(f func(*watch)) {
	e.mu.Lock()
	w := e.pods
	e.mu.Unlock()
	if w != nil {
		f(w)
	}
}

func (e *Engine) isStarting(id string) bool {
	starting := false
	e.watching(func(w *watch) { starting = w.isStarting(id) })
	return starting
}
