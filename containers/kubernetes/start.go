package kubernetes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
)

// greetPause is the pause between two attempts to reach a runner that starts. The cluster reports that a container runs
// up to a second late, so the engine does not wait for that.
const (
	greetPause    = 40 * time.Millisecond
	greetMaxPause = 500 * time.Millisecond
)

// createPause is the pause before a pod is created again. It doubles up to createMaxPause.
const (
	createPause    = 100 * time.Millisecond
	createMaxPause = 5 * time.Second
)

// Start makes a pod and returns when its runner greets. The error has the reason of the cluster if the pod cannot be
// placed on a node or its image cannot be pulled.
func (e *Engine) Start(ctx context.Context, s containers.Spec) (containers.Container, error) {
	none := containers.Container{}
	wrap := func(err error) error { return fmt.Errorf("kubernetes: %w", err) }
	if s.Key == "" || s.Owner == "" {
		return none, errors.New("cannot start a container: a key and an owner are needed")
	}
	if s.Program {
		return none, wrap(fmt.Errorf("cannot start the program of an image: %w", containers.ErrLacks))
	}
	image := s.Image
	if image == "" {
		image = e.Image
	}
	if image == "" {
		return none, wrap(errors.New("cannot start a container: an image is needed"))
	}
	r, err := e.recipe(ctx)
	if err != nil {
		return none, wrap(err)
	}
	p, err := r.task(s, image)
	if err != nil {
		return none, wrap(err)
	}
	made, err := e.createPod(ctx, p, s.Delayed, func(ctx context.Context) error { return e.greeted(ctx, p.Metadata.Name) })
	if err != nil {
		return none, wrap(err)
	}
	c := describe(made)
	c.Running = true
	return c, nil
}

// recipe returns how pods are made. It reads the operator's template once.
func (e *Engine) recipe(ctx context.Context) (recipe, error) {
	r := recipe{namespace: e.namespace(), runtime: e.Runtime, userNS: e.UserNamespaces, side: e.Side,
		requests: e.Requests}
	if r.runtime == "" {
		return r, errors.New("cannot start a container: the image of the runner is needed (kubernetes.image)")
	}
	if e.Side.Image != "" {
		r.sides = max(e.Side.Count, 0)
		if e.Side.Count == 0 {
			r.sides = defaultSides
		}
	}
	if e.Template == "" {
		return r, nil
	}
	e.mu.Lock()
	known := e.template
	e.mu.Unlock()
	if known == nil {
		var object podTemplate
		err := e.ask(ctx, shortWait, "read PodTemplate "+e.Template, http.MethodGet,
			e.path("podtemplates", e.Template), nil, nil, &object)
		if err != nil {
			return r, err
		}
		t, err := newTemplate(object)
		if err != nil {
			return r, fmt.Errorf("cannot use PodTemplate %s: %w", e.Template, err)
		}
		known = &t
		e.mu.Lock()
		e.template = known
		e.mu.Unlock()
	}
	r.template = *known
	return r, nil
}

// createPod creates a pod and returns when it answers. delayed, if not nil, gets the reason if no node has room. After an
// error the pod is removed, even if the answer to its creation was lost.
func (e *Engine) createPod(ctx context.Context, p *pod, delayed func(string),
	answers func(context.Context) error) (_ *pod, err error) {
	wait := cmp.Or(e.Wait, StartWait)
	ctx, cancel := context.WithTimeoutCause(ctx, wait,
		fmt.Errorf("%w: the pod did not start within %v", containers.ErrUnavailable, wait))
	defer cancel()
	w := e.follow()
	name := p.Metadata.Name
	w.setStarting(name, +1)
	defer w.setStarting(name, -1)
	made, err := e.create(ctx, p)
	if err != nil && kube.IsCode(err, http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound,
		http.StatusUnprocessableEntity) {
		return nil, err
	}
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
			defer cancel()
			err = errors.Join(err, e.Remove(undo, name))
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := e.awaitAnswer(ctx, w, name, delayed, answers); err != nil {
		return nil, err
	}
	return made, nil
}

// create creates a pod. An API server that is overloaded or away is asked again for createWait. The name of a pod is new, so
// a pod that has it is that of an earlier request, whose answer was lost.
func (e *Engine) create(ctx context.Context, p *pod) (*pod, error) {
	until := time.Now().Add(createWait)
	repeated := false
	for pause := createPause; ; pause = min(2*pause, createMaxPause) {
		var made pod
		err := e.ask(ctx, shortWait, "create a pod", http.MethodPost, e.path("pods"), nil, p, &made)
		var status *kube.StatusError
		told := errors.As(err, &status)
		switch {
		case err == nil:
			return &made, nil
		case told && status.Reason == "AlreadyExists" && repeated:
			return e.getPod(ctx, p.Metadata.Name)
		case told && status.Reason == "Conflict": // of a quota that others use at the same time
		case !errors.Is(err, containers.ErrUnavailable):
			return nil, err
		}
		repeated = true
		if told {
			pause = max(pause, min(status.RetryAfter, createMaxPause))
		}
		later := pause + rand.N(pause) // those who were refused together do not come again together
		if time.Now().Add(later).After(until) {
			return nil, err
		}
		if wait(ctx, later); ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// awaitAnswer returns when a pod answers, or the reason why it will not.
func (e *Engine) awaitAnswer(ctx context.Context, w *watch, name string, delayed func(string),
	answers func(context.Context) error) error {
	var stuckSince time.Time
	var last error
	why, told, pause := "", "", greetPause
	for {
		p, changed := w.await(name)
		placed := false
		if p != nil {
			if lacks, never := p.noImage(); never {
				return errNotStarting(lacks)
			}
		}
		if gone := w.whyGone(name); gone != "" {
			return goneError(gone)
		}
		if p != nil {
			if ended, is := p.ended(); is {
				return goneError(ended)
			}
			placed = p.Spec.NodeName != ""
			var stuck bool
			if why, stuck = p.waits(); !stuck {
				stuckSince = time.Time{}
			} else if stuckSince.IsZero() {
				stuckSince = time.Now()
			} else if time.Since(stuckSince) > stuckWait {
				return errNotStarting(why)
			}
			if doing := e.room(p); doing != "" {
				why = doing + " (" + why + ")"
				if delayed != nil && doing != told {
					delayed(doing)
				}
				told = doing
			}
		}
		var again <-chan time.Time
		if placed || p == nil { // the watch may not work at the moment
			if last = answers(ctx); last == nil {
				return nil
			}
			again = time.After(pause)
			pause = min(pause*5/4, greetMaxPause)
		} else {
			again = time.After(greetMaxPause)
		}
		select {
		case <-again:
		case <-changedOnly(changed, placed):
		case <-ctx.Done():
			err := context.Cause(ctx)
			if why != "" {
				err = fmt.Errorf("%w: the pod waits: %s", err, why)
			}
			return errors.Join(err, last)
		}
	}
}

// errNotStarting is the error of a pod that does not start, for a reason that needs a person.
func errNotStarting(why string) error {
	return fmt.Errorf("%w: the pod does not start: %s", containers.ErrUnavailable, why)
}

// room asks for room for a pod that no node has room for. Returns what is done, or "" if the pod does not wait for that.
func (e *Engine) room(p *pod) string {
	if e.Room == nil || !p.roomless() || strings.HasPrefix(p.Metadata.Annotations[annotationKey], poolKey) {
		return ""
	}
	return e.Room()
}

// changedOnly returns the channel of changes for a pod that is not placed. A placed one is asked at its own pace.
func changedOnly(changed <-chan struct{}, placed bool) <-chan struct{} {
	if placed {
		return nil
	}
	return changed
}
