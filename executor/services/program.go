package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/tasks/service"
)

// start starts the program of a unit in its container, unless it runs there, and waits until it is ready.
func (s *Set) start(ctx context.Context, u *unit) (err error) {
	living, cancel := context.WithCancel(s.starter.ctx)
	u.cancel = cancel
	p, err := u.launch(ctx, living)
	if err != nil {
		cancel()
		u.how = err
		close(u.ended)
		return fmt.Errorf("cannot start the service %s: %w", u.service.Name, err)
	}
	ready := make(chan struct{})
	host := s.host
	s.starter.owned.Go(func() {
		defer cancel()
		s.follow(living, u, p, host, ready)
	})
	defer func() {
		u.failed = err != nil
		close(ready)
	}()
	timeout := cmp.Or(u.service.Timeout, service.DefaultTimeout)
	rctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	why, wrong := u.awaitReady(rctx)
	switch {
	case wrong == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case u.hasEnded():
		return &Failed{u.service.Name, "ended before it was ready: " + u.how.Error() + s.starter.said(u)}
	case rctx.Err() != nil:
		return &Failed{u.service.Name, fmt.Sprintf("is not ready after %v%s%s", timeout, why, s.starter.said(u))}
	}
	return fmt.Errorf("cannot start the service %s: %w", u.service.Name, wrong)
}

// launch starts the program, or attaches to it. The attachment ends with living.
func (u *unit) launch(ctx, living context.Context) (*containers.Process, error) {
	h := u.lease.Host
	commands, err := h.Commands(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range commands {
		if c.ID == commandID {
			from := func(n int64) int64 { return max(0, n-toldOutput) }
			return h.Attach(living, commandID, from(c.Exit.Stdout), from(c.Exit.Stderr))
		}
	}
	return h.Start(living, containers.Command{ID: commandID, Args: u.program.args, Shell: u.program.shell,
		Env: environ(u.service), Background: true})
}

// follow keeps the end of the program's output until the program ends. Then it waits for ready, and reports the end. The end of host's
// container is no news.
func (s *Set) follow(ctx context.Context, u *unit, p *containers.Process, host *containers.Host, ready <-chan struct{}) {
	exit, err := p.Output(u.said, u.said)
	switch {
	case ctx.Err() != nil:
		u.how = errClosing
	case err != nil:
		u.how = err
	case exit.Reason != "":
		u.how = fmt.Errorf("it was ended (%s)", exit.Reason)
	default:
		u.how = fmt.Errorf("exit %d", exit.Code)
	}
	close(u.ended)
	<-ready
	if !u.failed && !errors.Is(u.how, errClosing) && !lost(host) {
		s.tell(fmt.Sprintf("the service %s ended by itself: %v%s", u.service.Name, u.how, s.starter.said(u)))
	}
}

// lost reports whether the connection to a container has ended.
func lost(h *containers.Host) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

// awaitReady returns when a unit is ready, and notes its ports. why is the reason why it is not, for a message.
func (u *unit) awaitReady(ctx context.Context) (why string, err error) {
	tick := time.NewTicker(readyAgain)
	defer tick.Stop()
	for n := 1; ; n++ {
		now, err := u.isReady(ctx, n)
		if now == "" && err == nil {
			return "", nil
		}
		why = cmp.Or(now, why) // a check that is cut off has no reason of its own
		if err != nil && (errors.Is(err, containers.ErrGone) || ctx.Err() != nil) {
			return why, err
		}
		select {
		case <-tick.C:
		case <-u.ended:
			return why, errClosing
		case <-ctx.Done():
			return why, context.Cause(ctx)
		}
	}
}

// isReady returns "" if a unit is ready, and the reason otherwise.
func (u *unit) isReady(ctx context.Context, n int) (why string, err error) {
	if u.service.Ready != "" {
		if why, err = u.check(ctx, n); why != "" || err != nil {
			return why, err
		}
	}
	if len(u.service.Ports) == 0 {
		ports, err := u.lease.Host.Ports(ctx)
		if err != nil || len(ports) == 0 {
			return "; it listens at no port", err
		}
		u.ports = usable(ports)
		return "", nil
	}
	for _, port := range u.service.Ports {
		conn, err := u.lease.Host.Dial(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Sprintf("; nothing listens at port %d of 127.0.0.1", port), nil
		}
		conn.Close()
	}
	u.ports = u.service.Ports
	return "", nil
}

// usable returns the ports that a container can be connected with.
func usable(ports []int) []int {
	var list []int
	for _, port := range ports {
		if port >= 1024 && len(list) < service.MaxPorts {
			list = append(list, port)
		}
	}
	return list
}

// check runs the Ready command once. It returns "" if the command succeeds.
func (u *unit) check(ctx context.Context, n int) (why string, err error) {
	id := readyID + "-" + strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.Itoa(n)
	p, err := u.lease.Host.Start(ctx,
		containers.Command{ID: id, Shell: u.service.Ready, Env: environ(u.service), Timeout: readyEach})
	if err != nil {
		return "", err
	}
	exit, err := p.Output(nil, nil)
	if err != nil {
		return "", err
	}
	_ = u.lease.Host.Forget(ctx, id) // the runner's memory ends with the container anyway
	if exit.Code != 0 || exit.Reason != "" {
		return fmt.Sprintf("; `%s` ended with %d", u.service.Ready, exit.Code), nil
	}
	return "", nil
}
