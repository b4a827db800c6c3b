package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/internal/text"
	"github.com/ramus-dev/ramus/tasks/service"
)

// Set has the services of one caller's container. Methods are safe for concurrent use.
type Set struct {
	starter *Starter
	caller  string
	tell    func(text string)

	mu    sync.Mutex       // held while services start and end; guards all below
	host  *containers.Host // of the container with which the units are connected; nil at first
	units []*unit
}

// unit is a service at work.
type unit struct {
	service service.Service
	program program
	key     string
	addr    netip.Addr
	lease   *containers.Lease
	stop    []func() // ends a forward each
	ports   []int
	said    *text.Tail
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the program has ended, or is not followed any more
	how     error         // why it ended, once ended is closed
	failed  bool          // it did not become ready, which was reported; set before follow may tell
}

// NewSet returns the empty set of a caller. tell gets sentences about services that end by themselves, for the run at work. There must
// be one Set of a caller at a time.
func (s *Starter) NewSet(caller string, tell func(text string)) *Set {
	return &Set{starter: s, caller: caller, tell: tell}
}

// Ensure has exactly the listed services run next to the container of a lease, connected and ready. It starts those that do not run,
// and ends others. Returns a sentence about those that it started or connected, or "" if there were none. The error is a [*Failed]
// if a service is at fault, and then none of the missing ones runs.
func (s *Set) Ensure(ctx context.Context, lease *containers.Lease, list []service.Service) (did string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host != lease.Host {
		// Another container, or another connection to it. The services, if there are any, are found by their keys.
		s.disconnectLocked()
		s.host = lease.Host
	}
	var missing []*unit
	for _, v := range list {
		if !slices.ContainsFunc(s.units, func(u *unit) bool { return u.is(v) && !u.hasEnded() }) {
			missing = append(missing, &unit{service: v, key: key(s.caller, s.host.Container().ID, v)})
		}
	}
	var obsolete []*unit
	for _, u := range s.units {
		if u.hasEnded() || !slices.ContainsFunc(list, u.is) {
			obsolete = append(obsolete, u)
		}
	}
	if err := s.endLocked(ctx, obsolete); err != nil {
		return "", err
	}
	if len(missing) == 0 {
		if len(obsolete) > 0 {
			return "", s.nameLocked(ctx)
		}
		return "", nil
	}
	s.placeLocked(missing)
	if err := s.startLocked(ctx, lease, missing); err != nil {
		return "", err
	}
	return describe(missing), nil
}

// Drop ends the listed services.
func (s *Set) Drop(ctx context.Context, list []service.Service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ending []*unit
	for _, u := range s.units {
		if slices.ContainsFunc(list, u.is) {
			ending = append(ending, u)
		}
	}
	if len(ending) == 0 {
		return nil
	}
	if err := s.endLocked(ctx, ending); err != nil {
		return err
	}
	if err := s.nameLocked(ctx); !errors.Is(err, containers.ErrGone) {
		return err
	}
	return nil // a container that is gone needs no names
}

// is reports whether a unit is of a service.
func (u *unit) is(v service.Service) bool { return reflect.DeepEqual(u.service, v) }

func (u *unit) hasEnded() bool {
	select {
	case <-u.ended:
		return true
	default:
		return false
	}
}

// placeLocked gives addresses to units that have none.
func (s *Set) placeLocked(missing []*unit) {
	taken := make(map[netip.Addr]bool)
	for _, u := range s.units {
		taken[u.addr] = true
	}
	for _, u := range missing {
		u.addr = netip.AddrFrom4([4]byte{127, 0, 1, 1})
		for taken[u.addr] {
			u.addr = u.addr.Next()
		}
		taken[u.addr] = true
	}
}

// startLocked starts units, waits until they are ready, and connects them. If one fails, it ends them.
func (s *Set) startLocked(ctx context.Context, lease *containers.Lease, missing []*unit) (err error) {
	requests := make([]containers.Request, len(missing))
	for i, u := range missing {
		if u.program, err = s.starter.program(ctx, u.service); err != nil {
			return err
		}
		requests[i] = containers.Request{Key: u.key, Image: u.program.image, Limits: s.starter.limits(u.service),
			Program: u.program.own}
	}
	leases, err := s.starter.Fleet.AcquireCompanions(ctx, lease, requests)
	if err != nil {
		s.abandon(ctx, requests)
		return err
	}
	var group sync.WaitGroup
	errs := make([]error, len(missing))
	for i, u := range missing {
		u.lease = leases[i]
		u.said = &text.Tail{Limit: toldOutput}
		u.ended = make(chan struct{})
		s.units = append(s.units, u)
		group.Go(func() { errs[i] = s.start(ctx, u) })
	}
	group.Wait()
	for _, err = range errs {
		if err != nil {
			break
		}
	}
	if err == nil {
		err = s.connectLocked(ctx, missing)
	}
	if err != nil {
		for _, u := range missing {
			u.disconnect()
		}
		s.units = slices.DeleteFunc(s.units, func(u *unit) bool { return slices.Contains(missing, u) })
		s.abandon(ctx, requests)
	}
	return err
}

// abandon removes the containers of services that could not be started.
func (s *Set) abandon(ctx context.Context, requests []containers.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyEach)
	defer cancel()
	for _, r := range requests {
		if err := s.starter.Fleet.Remove(ctx, r.Key); err != nil {
			s.starter.Log.Warn("the container of a service is not removed; it ends with the caller's", "key",
				r.Key, "err", err)
		}
	}
}

// connectLocked has the container reach units by their names.
func (s *Set) connectLocked(ctx context.Context, missing []*unit) error {
	for _, u := range missing {
		for _, port := range u.ports {
			host, inside := u.lease.Host, "127.0.0.1:"+strconv.Itoa(port)
			stop, err := s.host.Forward(ctx, netip.AddrPortFrom(u.addr, uint16(port)).String(),
				func(ctx context.Context) (net.Conn, error) {
					ctx, cancel := context.WithTimeout(ctx, dialWithin)
					defer cancel()
					return host.Dial(ctx, inside)
				})
			if err != nil {
				return fmt.Errorf("cannot connect the service %s: %w", u.service.Name, err)
			}
			u.stop = append(u.stop, stop)
		}
	}
	return s.nameLocked(ctx)
}

// nameLocked writes the names of all units into the container's hosts file.
func (s *Set) nameLocked(ctx context.Context) error {
	engine, err := containers.AsNames(s.starter.Fleet.Engine)
	if err != nil {
		return err
	}
	names := make(map[string]netip.Addr)
	for _, u := range s.units {
		names[u.service.Name] = u.addr
	}
	return engine.SetNames(ctx, s.host.Container().ID, names)
}

// endLocked ends units and removes their containers.
func (s *Set) endLocked(ctx context.Context, ending []*unit) error {
	for _, u := range ending {
		s.units = slices.DeleteFunc(s.units, func(other *unit) bool { return other == u })
		u.disconnect()
		if err := s.starter.Fleet.Remove(ctx, u.key); err != nil {
			return fmt.Errorf("cannot end the service %s: %w", u.service.Name, err)
		}
	}
	return nil
}

// disconnectLocked forgets all units, which go on.
func (s *Set) disconnectLocked() {
	for _, u := range s.units {
		u.disconnect()
	}
	s.units = nil
}

// disconnect ends the connections of a unit. Its program goes on.
func (u *unit) disconnect() {
	for _, stop := range u.stop {
		stop()
	}
	u.stop = nil
	if u.cancel != nil {
		u.cancel()
		<-u.ended
	}
	u.lease.Release()
}

// describe returns a sentence about units that are ready.
func describe(units []*unit) string {
	var names []string
	for _, u := range units {
		name := u.service.Name
		for i, port := range u.ports {
			sep := ","
			if i == 0 {
				sep = ":"
			}
			name += sep + strconv.Itoa(port)
		}
		names = append(names, name)
	}
	return "services are ready: " + strings.Join(names, ", ")
}
