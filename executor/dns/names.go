package dns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libdns/libdns"
	"github.com/ramus-dev/ramus/internal/durable"
)

// Zone is where a provider has the records of a domain. Both methods are those of libdns.
type Zone interface {
	libdns.RecordSetter
	libdns.RecordDeleter
}

// Source returns names below the zone, and their addresses. An error means that its names stay as they are.
type Source func(ctx context.Context) (map[string][]netip.Addr, error)

// Names are the names of a server. Its exported fields are its options, which may be changed until Start or Sync.
type Names struct {
	// Zone has the records. Required.
	Zone Zone
	// Name is the name of the zone, such as "example.org". Required.
	Name string
	// File has the names that were set. Required.
	File string
	// TTL is the time for which others may remember an address. The default is a minute.
	TTL time.Duration
	// Sources have the names, by the name of the source.
	Sources map[string]Source
	// Every is the time between two looks at the sources. The default is two seconds. Names that
	// do not change cost no request.
	Every time.Duration
	// Now is the clock. Nil means time.Now.
	Now func() time.Time
	// Log gets errors. Nil means that nothing is logged.
	Log *slog.Logger

	mu     sync.Mutex // guards set and faults, and lets one Sync run
	set    map[string]record
	read   bool             // set is what File has
	faults map[string]fault // of names, and of sources with a space before their names

	stop context.CancelFunc
	done chan struct{}
}

// record is a name that is set, or may be.
type record struct {
	Source string       `json:"source"`
	Addrs  []netip.Addr `json:"addrs"`
	// Sure means that DNS has it.
	Sure bool `json:"sure"`
}

// fault is a name or a source that failed.
type fault struct {
	pause time.Duration
	again time.Time // it is tried again then
}

// Bounds of names.
const (
	maxNames = 5000
	atOnce   = 100 // changes of one Sync, because providers limit requests
	syncTime = time.Minute
	nameTime = 15 * time.Second // of one change
	// againAfter is the pause after a failure of a name or a source, doubled each time up to againMost.
	againAfter, againMost = 2 * time.Second, 10 * time.Minute
)

// Start follows the sources until Close. Names that are set stay after Close, and the next process takes them over.
func (n *Names) Start() {
	if n == nil {
		return
	}
	if n.Log == nil {
		n.Log = slog.New(slog.DiscardHandler)
	}
	if n.Every == 0 {
		n.Every = 2 * time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	n.stop, n.done = stop, make(chan struct{})
	go func() {
		defer close(n.done)
		for {
			once, end := context.WithTimeout(ctx, syncTime)
			err := n.Sync(once)
			end()
			if err != nil && ctx.Err() == nil {
				n.Log.Warn("cannot keep some names in DNS; they are tried again", "err", err)
			}
			select {
			case <-time.After(n.Every):
			case <-ctx.Done():
				return
			}
		}
	}()
}

// Close ends Start's work and waits for it.
func (n *Names) Close() {
	if n == nil || n.stop == nil {
		return
	}
	n.stop()
	<-n.done
}

// Sync makes DNS have the names of the sources, up to a hundred changes. The next one goes on. A name or a source that fails
// is left out for a growing pause, and delays no other.
func (n *Names) Sync(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.load(); err != nil {
		return err
	}
	want, known := make(map[string]record), make(map[string]bool)
	var errs []error
	for _, source := range slices.Sorted(maps.Keys(n.Sources)) {
		if !n.isDue(" " + source) {
			continue
		}
		names, err := n.Sources[source](ctx)
		n.noteFault(" "+source, err)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		known[source] = true
		for name, addrs := range names {
			if len(addrs) > 0 && len(want) < maxNames {
				want[strings.TrimSuffix(name, ".")] = record{Source: source, Addrs: oneOfEach(addrs)}
			}
		}
	}
	changes := 0
	for _, name := range slices.Sorted(maps.Keys(n.set)) {
		_, stays := want[name]
		if r := n.set[name]; !stays && (known[r.Source] || n.Sources[r.Source] == nil) && changes < atOnce && n.isDue(name) {
			changes++
			errs = append(errs, n.try(ctx, name, func(ctx context.Context) error { return n.remove(ctx, name, r) }))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		r := want[name]
		if old, there := n.set[name]; (!there || !old.Sure || !slices.Equal(old.Addrs, r.Addrs)) && changes < atOnce && n.isDue(name) {
			changes++
			errs = append(errs, n.try(ctx, name, func(ctx context.Context) error { return n.add(ctx, name, old, r) }))
		}
	}
	return errors.Join(errs...)
}

// try changes a name within nameTime.
func (n *Names) try(ctx context.Context, name string, change func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, nameTime)
	defer cancel()
	err := change(ctx)
	n.noteFault(name, err)
	return err
}

func (n *Names) now() time.Time {
	if n.Now == nil {
		return time.Now()
	}
	return n.Now()
}

// isDue reports whether a name or a source may be tried now. mu is held.
func (n *Names) isDue(key string) bool { return !n.now().Before(n.faults[key].again) }

// noteFault keeps the result of a try. mu is held.
func (n *Names) noteFault(key string, err error) {
	if err == nil {
		delete(n.faults, key)
		return
	}
	if n.faults == nil || len(n.faults) >= 2*maxNames {
		n.faults = make(map[string]fault)
	}
	pause := min(max(2*n.faults[key].pause, againAfter), againMost)
	n.faults[key] = fault{pause, n.now().Add(pause)}
}

// oneOfEach returns the first address of IPv4 and of IPv6. Some providers take no more.
func oneOfEach(addrs []netip.Addr) []netip.Addr {
	var list []netip.Addr
	for _, v4 := range []bool{true, false} {
		if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == v4 }); i >= 0 {
			list = append(list, addrs[i])
		}
	}
	return list
}

func (n *Names) load() error {
	if n.read {
		return nil
	}
	n.set = make(map[string]record)
	b, err := os.ReadFile(n.File)
	if err == nil {
		err = json.Unmarshal(b, &n.set)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot read the names in DNS: %w", err)
	}
	n.read = true
	return nil
}

// keep writes the file. The names are on disk when keep returns.
func (n *Names) keep() error {
	b, err := json.Marshal(n.set)
	if err == nil {
		err = durable.Replace(n.File, b, true)
	}
	if err != nil {
		return fmt.Errorf("cannot write the names in DNS: %w", err)
	}
	return nil
}

// add sets a name. Addresses of an earlier record that it no longer has are removed by the provider, if they are of the
// same kind, and otherwise here.
func (n *Names) add(ctx context.Context, name string, old, r record) error {
	both := r
	for _, a := range old.Addrs {
		if !slices.Contains(both.Addrs, a) {
			both.Addrs = append(slices.Clone(both.Addrs), a)
		}
	}
	n.set[name] = both
	if err := n.keep(); err != nil {
		return err
	}
	if gone := lost(old.Addrs, r.Addrs); len(gone) > 0 {
		if _, err := n.Zone.DeleteRecords(ctx, n.zone(), n.records(name, gone)); err != nil {
			return fmt.Errorf("cannot remove addresses of %s from DNS: %w", name, err)
		}
	}
	if _, err := n.Zone.SetRecords(ctx, n.zone(), n.records(name, r.Addrs)); err != nil {
		return fmt.Errorf("cannot set %s in DNS: %w", name, err)
	}
	r.Sure = true
	n.set[name] = r
	return n.keep()
}

// lost returns the addresses of a kind that no address of now has.
func lost(before, now []netip.Addr) []netip.Addr {
	var gone []netip.Addr
	for _, a := range before {
		if !slices.ContainsFunc(now, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			gone = append(gone, a)
		}
	}
	return gone
}

// remove removes a name.
func (n *Names) remove(ctx context.Context, name string, r record) error {
	if _, err := n.Zone.DeleteRecords(ctx, n.zone(), n.records(name, r.Addrs)); err != nil {
		return fmt.Errorf("cannot remove %s from DNS: %w", name, err)
	}
	delete(n.set, name)
	return n.keep()
}

func (n *Names) zone() string { return strings.TrimSuffix(n.Name, ".") + "." }

func (n *Names) records(name string, addrs []netip.Addr) []libdns.Record {
	ttl := n.TTL
	if ttl == 0 {
		ttl = time.Minute
	}
	list := make([]libdns.Record, len(addrs))
	for i, a := range addrs {
		list[i] = libdns.Address{Name: libdns.RelativeName(name+".", n.zone()), TTL: ttl, IP: a}
	}
	return list
}

// Below reports whether a name is below the zone.
func (n *Names) Below(name string) bool {
	return strings.HasSuffix(strings.ToLower(strings.TrimSuffix(name, ".")), "."+strings.TrimSuffix(n.Name, "."))
}
