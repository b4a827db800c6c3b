package kubernetes

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
)

// defaultSides is the default of [Side].Count.
const defaultSides = 2

// maxReport bounds the report of a sidecar, in bytes.
const maxReport = 64 << 10

// RunSidecar runs a program in one of the containers of a pod that stand ready for it. Its image and its limits are
// those of [Engine].Side. If all are taken, it waits for one. If id is "", the sidecar has a pod of its own.
func (e *Engine) RunSidecar(ctx context.Context, id string, s containers.Sidecar) (
	exit containers.SidecarExit, err error) {
	wrap := func(err error) error { return fmt.Errorf("kubernetes: %w", err) }
	if err := s.Valid(); err != nil {
		return exit, wrap(err)
	}
	if e.Side.Image == "" {
		return exit, wrap(fmt.Errorf("cannot run a sidecar: no image for sidecars is configured: %w",
			containers.ErrLacks))
	}
	if s.Image != "" && s.Image != e.Side.Image {
		return exit, wrap(fmt.Errorf("cannot run a sidecar of image %s: pods have %s: %w", s.Image, e.Side.Image,
			containers.ErrLacks))
	}
	if id == "" {
		made, err := e.ownPod(ctx, s)
		if err != nil {
			return exit, wrap(err)
		}
		defer func() {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
			defer cancel()
			if rerr := e.Remove(undo, made); rerr != nil {
				err = errors.Join(err, wrap(rerr))
			}
			e.setSidecar(made, false)
		}()
		id = made
	}
	p, err := e.getPod(ctx, id)
	if err != nil {
		return exit, wrap(err)
	}
	if why, ended := p.ended(); ended {
		return exit, wrap(goneError(why))
	}
	busy := map[string]bool{}
	for began := time.Now(); ; {
		side, leave, err := e.takeSide(ctx, p, busy)
		if err != nil {
			return exit, wrap(err)
		}
		exit.Image = sideImage(p, side, e.Side.Image)
		err = e.runIn(ctx, id, side, s, &exit)
		leave()
		if errors.Is(err, errBusy) {
			busy[side] = true // a sidecar of another process has it
			continue
		}
		if errors.Is(err, errNotBegun) && time.Since(began) < sideWait && ctx.Err() == nil {
			// The runner of a pod may greet before its last containers run.
			if err = e.orGone(ctx, id, err); !errors.Is(err, containers.ErrGone) {
				wait(ctx, sidePause)
				continue
			}
		}
		if err != nil {
			return containers.SidecarExit{Image: exit.Image}, wrap(e.orGone(ctx, id, err))
		}
		return exit, nil
	}
}

// ownPod makes a pod for a sidecar without a container, and returns its name.
func (e *Engine) ownPod(ctx context.Context, s containers.Sidecar) (string, error) {
	r, err := e.recipe(ctx)
	if err != nil {
		return "", err
	}
	p := r.sidecar(s.Key, s.Owner)
	name := p.Metadata.Name
	e.setSidecar(name, true)
	_, err = e.createPod(ctx, p, nil, func(ctx context.Context) error {
		probing, cancel := context.WithTimeout(ctx, probeWait)
		defer cancel()
		// Nothing is measured. The command ends with 0 if it runs.
		_, err := e.perform(probing, name, sideName+"0", nil, maxReport, way.Program, "way", "usage", "1", "/nowhere")
		return err
	})
	if err != nil {
		e.setSidecar(name, false)
		return "", err
	}
	return name, nil
}

func (e *Engine) setSidecar(name string, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sidecars == nil {
		e.sidecars = map[string]bool{}
	}
	if on {
		e.sidecars[name] = true
	} else {
		delete(e.sidecars, name)
	}
}

// wait waits for a time, or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// errNotBegun means that the program of a sidecar was not started. Nothing of the input was read.
var errNotBegun = errors.New("the program was not started")

const (
	// sideWait bounds the time until the containers of sidecars run, after the runner greeted, and sidePause is that
	// between attempts.
	sideWait  = 30 * time.Second
	sidePause = 100 * time.Millisecond
	// drainWait bounds the wait for the end of a sidecar without stdin.
	drainWait = 3 * time.Second
	// endWait bounds the time to end a sidecar whose caller gave up.
	endWait = 30 * time.Second
)

// errBusy means that a sidecar of another process runs in a container. Nothing of the input was read.
var errBusy = errors.New("another sidecar has the container")

// busyPause is the time after which containers that another process used are tried again.
const busyPause = time.Second

// takeSide returns the name of a container of a pod in which no sidecar of this engine runs. leave frees it. It tries
// those in busy only after some time.
func (e *Engine) takeSide(ctx context.Context, p *pod, busy map[string]bool) (side string, leave func(), err error) {
	sides := 0
	for _, c := range p.Spec.Containers {
		if c.Name == sideName+strconv.Itoa(sides) {
			sides++
		}
	}
	if sides == 0 {
		return "", nil, fmt.Errorf("pod %s was started without sidecars: %w", p.Metadata.Name, containers.ErrLacks)
	}
	for {
		e.mu.Lock()
		if e.freed == nil {
			e.freed, e.taken = make(chan struct{}), map[string]bool{}
		}
		freed := e.freed
		for n := range sides {
			side := sideName + strconv.Itoa(n)
			place := p.Metadata.Name + "/" + side
			if e.taken[place] || busy[side] {
				continue
			}
			e.taken[place] = true
			e.mu.Unlock()
			return side, func() { e.freeSide(place) }, nil
		}
		e.mu.Unlock()
		again := time.NewTimer(busyPause)
		select {
		case <-freed:
		case <-again.C:
			clear(busy)
		case <-ctx.Done():
			again.Stop()
			return "", nil, context.Cause(ctx)
		}
		again.Stop()
	}
}

func (e *Engine) freeSide(place string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.taken, place)
	close(e.freed)
	e.freed = make(chan struct{})
}

// sideImage returns the image of a side with its digest.
func sideImage(p *pod, side, name string) string {
	for _, s := range p.Status.ContainerStatuses {
		if s.Name == side && s.ImageID != "" {
			return describeImage(name, s.ImageID)
		}
	}
	return name
}

// runIn runs a sidecar in a container and passes its streams on.
func (e *Engine) runIn(ctx context.Context, id, side string, s containers.Sidecar, exit *containers.SidecarExit) error {
	text, err := json.Marshal(way.Sidecar{Args: s.Args, Env: s.Env, Home: containers.SidecarHome, PIDs: s.Bounds().PIDs,
		Owner: s.Owner, Engine: e.identity()})
	if err != nil {
		return err
	}
	if len(text) >= maxArgument {
		return fmt.Errorf("its arguments and its environment take %d bytes; %d are possible", len(text), maxArgument)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	words := &said{}
	x, err := e.exec(ctx, id, side, true, words, way.Program, "way", "sidecar", string(text))
	if errors.Is(err, containers.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", errNotBegun, err)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	// The end of the streams ends the sidecar, also if this process ends.
	defer x.Close()
	w, end := e.follow(), &sideEnd{cancel}
	if err := w.add(id, end); err != nil {
		return err
	}
	defer w.drop(id, end)
	defer context.AfterFunc(ctx, func() {
		// Without its stdin the sidecar ends, and its end is awaited.
		_ = x.SetDeadline(time.Now().Add(drainWait))
		_ = x.CloseWrite()
	})()
	begun := false
	report, err := readSidecar(x, s, func() {
		begun = true
		go e.feed(x, s, cancel)
	})
	if err != nil && !errors.Is(err, errBusy) && !errors.Is(context.Cause(ctx), containers.ErrGone) {
		err = errors.Join(err, e.endSidecar(ctx, id, side, s.Owner))
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && !begun && errors.Is(err, containers.ErrUnavailable):
		return fmt.Errorf("%w: %w", errNotBegun, err)
	case err != nil && words.String() != "":
		return fmt.Errorf("%w: %s", err, words)
	case err != nil:
		return err
	case report.Error != "":
		return errors.New("cannot start the program: " + report.Error)
	}
	exit.Code, exit.OOM, exit.Memory, exit.Duration = report.Code, report.OOM, report.Memory, time.Since(began)
	if exit.OOM {
		exit.Memory = max(exit.Memory, containers.Sidecar{Limits: e.Side.Limits}.Bounds().Memory)
	}
	return nil
}

// endSidecar returns when nothing is left of a sidecar of this engine. Its end has begun with that of its streams. A
// pod that is gone has no sidecar.
func (e *Engine) endSidecar(ctx context.Context, id, side, owner string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	for {
		_, err := e.perform(ctx, id, side, nil, maxReport, way.Program, "way", "end", owner, e.identity())
		if err == nil || errors.Is(err, containers.ErrGone) {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cannot end a sidecar in pod %s: %w", id, err)
		}
		// A sidecar that ends kills all other processes of its container, and so perhaps this one.
		wait(ctx, sidePause)
	}
}

// sideEnd ends a sidecar when its pod ends.
type sideEnd struct{ cancel context.CancelCauseFunc }

func (s *sideEnd) lose() { s.cancel(goneError("")) }

// feed passes the input of a sidecar on. It may outlive the sidecar, while a Read of Stdin blocks; see
// [containers.Sidecar].
func (e *Engine) feed(x io.Writer, s containers.Sidecar, cancel context.CancelCauseFunc) {
	w := &way.FrameWriter{W: x}
	if s.Stdin != nil {
		if err := s.Feed(w.Of(way.FrameInput)); err != nil {
			cancel(err)
			return
		}
	}
	_ = w.Frame(way.FrameEnd, nil)
}

// readSidecar passes the output of a sidecar on until its report. It calls ready once, when the program begins. The
// frames come from a hostile container.
func readSidecar(x io.Reader, s containers.Sidecar, ready func()) (way.Report, error) {
	var report way.Report
	buf := make([]byte, 0, maxReport)
	write := func(w io.Writer, data []byte) error {
		if w == nil {
			return nil
		}
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("cannot pass on its output: %w", err)
		}
		return nil
	}
	for {
		kind, data, err := way.ReadFrame(x, buf)
		var exit *kube.ExitError
		switch {
		case errors.As(err, &exit) && exit.Code == way.Busy && ready != nil:
			return report, errBusy
		case errors.As(err, &exit) || errors.Is(err, io.EOF):
			return report, fmt.Errorf("it ended without a report: %w", err)
		case err != nil:
			return report, unavailable(err)
		}
		switch kind {
		case way.FrameStdout:
			err = write(s.Stdout, data)
		case way.FrameStderr:
			err = write(s.Stderr, data)
		case way.FrameReady:
			if ready != nil {
				ready()
				ready = nil
			}
		case way.FrameReport:
			if err := json.Unmarshal(data, &report); err != nil || report.Code < 0 || report.Code > 255 {
				return report, fmt.Errorf("cannot read its report: %q", data[:min(len(data), 200)])
			}
			return report, nil
		default:
			err = fmt.Errorf("it sent a frame of kind %d", kind)
		}
		if err != nil {
			return report, err
		}
	}
}

// SweepSidecars ends the sidecars that another process of the owner left. Most ended with the connection of that
// process.
func (e *Engine) SweepSidecars(ctx context.Context, owner string) error {
	if owner == "" {
		return errors.New("cannot sweep sidecars: an owner is needed")
	}
	items, _, err := e.listPods(ctx, labelOwner+"="+hash(owner)+","+labelKind+"="+kindSidecar)
	if err != nil {
		return err
	}
	var errs []error
	if e.Side.Image != "" {
		errs = append(errs, e.releaseSides(ctx, owner))
	}
	for _, p := range items {
		e.mu.Lock()
		own := e.sidecars[p.Metadata.Name]
		e.mu.Unlock()
		if !own && p.Metadata.Annotations[annotationOwner] == owner {
			errs = append(errs, e.Remove(ctx, p.Metadata.Name))
		}
	}
	return errors.Join(errs...)
}

// releaseSides ends the sidecars of an owner in the pods of its containers, except those of this engine.
func (e *Engine) releaseSides(ctx context.Context, owner string) error {
	items, _, err := e.listPods(ctx, labelOwner+"="+hash(owner)+","+labelKind+"="+kindTask)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range items {
		if _, ended := p.ended(); ended || p.Spec.NodeName == "" || p.Metadata.Annotations[annotationOwner] != owner {
			continue
		}
		for _, c := range p.Spec.Containers[1:] {
			if !strings.HasPrefix(c.Name, sideName) {
				continue
			}
			_, err := e.perform(ctx, p.Metadata.Name, c.Name, nil, maxReport, way.Program, "way", "release", owner,
				e.identity())
			// In a pod whose containers do not run yet nothing is left. Its state is known up to a second late.
			early := p.Status.Phase == "Pending" && errors.Is(err, containers.ErrUnavailable)
			if err != nil && !early && !errors.Is(err, containers.ErrGone) {
				errs = append(errs, fmt.Errorf("cannot end sidecars of pod %s: %w", p.Metadata.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// identity returns a random name of this value.
func (e *Engine) identity() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.id == "" {
		e.id = rand.Text()
	}
	return e.id
}
