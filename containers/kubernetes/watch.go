package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
)

// watch follows the pods of the namespace. One goroutine lists and watches. Others ask it for the last known state of a
// pod.
type watch struct {
	e      *Engine
	cancel context.CancelFunc
	done   chan struct{} // is closed when the goroutine has returned

	mu       sync.Mutex // guards the fields below
	pods     map[string]*pod
	gone     map[string]string           // why pods ended, by name, for the ones with connections
	conns    map[string]map[losable]bool // open connections by pod
	starting map[string]int              // pods that Start has not returned
	changed  map[string]chan struct{}    // by pod, with somebody who waits; is closed and removed when the pod changes
}

// Pauses between attempts to follow the pods.
const (
	watchPause    = 100 * time.Millisecond
	watchMaxPause = 10 * time.Second
)

// follow returns the watch, which the first call starts.
func (e *Engine) follow() *watch {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pods == nil {
		ctx, cancel := context.WithCancel(context.Background())
		w := &watch{e: e, cancel: cancel, done: make(chan struct{}), pods: map[string]*pod{}, gone: map[string]string{},
			conns: map[string]map[losable]bool{}, starting: map[string]int{}, changed: map[string]chan struct{}{}}
		e.pods = w
		go w.run(ctx)
	}
	return e.pods
}

func (w *watch) close() {
	w.cancel()
	<-w.done
}

// run lists and watches until ctx is done. Watches end at any time, and a version that is too old means to list again.
func (w *watch) run(ctx context.Context) {
	defer close(w.done)
	pause := watchPause
	for ctx.Err() == nil {
		began := time.Now()
		err := w.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil || errors.Is(err, kube.ErrExpired) || time.Since(began) > watchMaxPause {
			pause = watchPause
		} else {
			w.e.log().Warn("pods are not watched at the moment", "err", err)
			pause = min(2*pause, watchMaxPause)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// once lists the pods and watches them until the watch ends.
func (w *watch) once(ctx context.Context) error {
	items, version, err := w.e.listPods(ctx, labelKind)
	if err != nil {
		return err
	}
	w.replace(items)
	api, err := w.e.client()
	if err != nil {
		return err
	}
	for {
		last := version
		err := api.Watch(ctx, w.e.path("pods"), url.Values{"labelSelector": {labelKind}, "resourceVersion": {version}},
			func(c kube.Change) error {
				var p pod
				if err := json.Unmarshal(c.Object, &p); err != nil {
					return err
				}
				version = p.Metadata.ResourceVersion
				switch c.Type {
				case kube.Added, kube.Modified:
					w.set(&p)
				case kube.Deleted:
					w.lose(&p)
				}
				return nil
			})
		if err != nil || version == last { // a watch that ends without a change may end so again at once
			return err
		}
	}
}

// replace takes over a list. Pods that are missing in it were deleted meanwhile.
func (w *watch) replace(items []pod) {
	w.mu.Lock()
	listed := map[string]bool{}
	var lost []*pod
	for i := range items {
		listed[items[i].Metadata.Name] = true
	}
	for name, p := range w.pods {
		if !listed[name] {
			lost = append(lost, p)
		}
	}
	w.mu.Unlock()
	for i := range items {
		w.set(&items[i])
	}
	for _, p := range lost {
		w.lose(p)
	}
}

// set takes over the state of a pod. The connections of a pod that ended are closed, because the API server may not
// notice that the other side is gone.
func (w *watch) set(p *pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := p.Metadata.Name
	w.pods[name] = p
	if why, ended := p.ended(); ended {
		w.endLocked(name, why)
	}
	w.changeLocked(name)
}

func (w *watch) lose(p *pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := p.Metadata.Name
	delete(w.pods, name)
	why, _ := p.ended()
	if why == "" {
		why = "it was deleted"
	}
	w.endLocked(name, why)
	w.changeLocked(name)
}

func (w *watch) endLocked(name, why string) {
	if _, known := w.gone[name]; !known && (len(w.conns[name]) > 0 || w.starting[name] > 0) {
		w.gone[name] = why
	}
	for c := range w.conns[name] {
		c.lose()
	}
}

// changeLocked wakes those who wait for a change of the pod. A change of one of a thousand pods wakes nobody else.
func (w *watch) changeLocked(name string) {
	if c := w.changed[name]; c != nil {
		close(c)
		delete(w.changed, name)
	}
}

// pod returns the last known state of a pod, or nil.
func (w *watch) pod(name string) *pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pods[name]
}

// await is pod, and returns a channel that is closed when the pod changes.
func (w *watch) await(name string) (*pod, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed[name] == nil {
		w.changed[name] = make(chan struct{})
	}
	return w.pods[name], w.changed[name]
}

// forget drops the state of a pod that was removed.
func (w *watch) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.gone, name)
	delete(w.pods, name)
	for c := range w.conns[name] {
		c.lose()
	}
}

// giveUp has a pod count as gone until it is removed.
func (w *watch) giveUp(name, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.gone[name]; !known {
		w.gone[name] = why
	}
	for c := range w.conns[name] {
		c.lose()
	}
}

// whyGone returns why a pod ended, as far as this watch saw it, or was given up.
func (w *watch) whyGone(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone[name]
}

func (w *watch) setStarting(name string, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.starting[name] += by; w.starting[name] <= 0 {
		delete(w.starting, name)
		w.changeLocked(name) // a pod that was never seen has no other end
	}
}

func (w *watch) isStarting(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starting[name] > 0
}

// losable is a connection that ends with its pod. The watch is locked during lose.
type losable interface{ lose() }

// add has c be closed when a pod ends. Returns [containers.ErrGone] if the pod has ended.
func (w *watch) add(pod string, c losable) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[pod]; p != nil {
		if why, ended := p.ended(); ended {
			return goneError(why)
		}
	}
	if w.conns[pod] == nil {
		w.conns[pod] = map[losable]bool{}
	}
	w.conns[pod][c] = true
	return nil
}

func (w *watch) drop(pod string, c losable) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns[pod], c)
	if len(w.conns[pod]) == 0 {
		delete(w.conns, pod)
	}
}

// endError is the end of a pod, in the words of the cluster.
type endError struct{ why string }

func (e *endError) Error() string { return "the pod has ended: " + e.why }
func (e *endError) Unwrap() error { return containers.ErrGone }

func goneError(why string) error {
	if why == "" {
		return containers.ErrGone
	}
	return &endError{why}
}
