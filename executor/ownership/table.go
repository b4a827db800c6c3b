package ownership

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
)

// table is the last known state of all leases of a group. Other replicas may have changed it since.
type table struct {
	mu       sync.Mutex // guards the fields below
	replicas map[string]lease
	repos    map[string]lease
	names    map[string]string // of objects, to names of replicas and repositories
	change   chan struct{}     // closed and replaced when it changes
}

func newTable() *table {
	t := &table{change: make(chan struct{})}
	t.reset(nil)
	return t
}

// reset replaces the whole table.
func (t *table) reset(all []lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replicas, t.repos, t.names = map[string]lease{}, map[string]lease{}, map[string]string{}
	for _, l := range all {
		t.put(l)
	}
	t.wakeAll()
}

// set takes one lease over.
func (t *table) set(l lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(l)
	t.wakeAll()
}

// put takes one lease over. mu is held.
func (t *table) put(l lease) {
	name := l.Metadata.Annotations[noteName]
	switch l.Metadata.Labels[labelKind] {
	case kindOf:
		t.replicas[name] = l
	case kindRepo:
		t.repos[name] = l
	default:
		return
	}
	t.names[l.Metadata.Name] = name
}

// drop forgets a lease by the name of its object.
func (t *table) drop(object string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.names[object]
	if l, ok := t.replicas[name]; ok && l.Metadata.Name == object {
		delete(t.replicas, name)
	}
	if l, ok := t.repos[name]; ok && l.Metadata.Name == object {
		delete(t.repos, name)
	}
	delete(t.names, object)
	t.wakeAll()
}

// wakeAll wakes everybody who waits for a change. mu is held.
func (t *table) wakeAll() {
	close(t.change)
	t.change = make(chan struct{})
}

// owner returns the name of the replica that owns a repository, or "".
func (t *table) owner(repo string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.repos[repo].Spec.Holder
}

// copyOf returns the name of the copy that an owner took into use, or "".
func (t *table) copyOf(repo string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.repos[repo].Metadata.Annotations[noteCopy]
}

// replica describes a replica, without the number of its repositories.
func (t *table) replica(name string) Replica {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.describe(name)
}

// describe describes a replica. mu is held.
func (t *table) describe(name string) Replica {
	l := t.replicas[name]
	r := Replica{Name: name, Epoch: l.Spec.Transitions, Live: l.Spec.Holder != ""}
	if r.Live {
		r.URL = l.Metadata.Annotations[noteURL]
	}
	return r
}

func (t *table) all() []Replica {
	t.mu.Lock()
	defer t.mu.Unlock()
	repos := map[string]int{}
	for _, l := range t.repos {
		repos[l.Spec.Holder]++
	}
	list := make([]Replica, 0, len(t.replicas))
	for name := range t.replicas {
		r := t.describe(name)
		r.Repos = repos[name]
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Replica) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// ofReplica returns the names of the repositories of a replica.
func (t *table) ofReplica(name string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []string
	for repo, l := range t.repos {
		if l.Spec.Holder == name {
			list = append(list, repo)
		}
	}
	slices.Sort(list)
	return list
}

// read reads all leases, and returns the version of the list.
func (t *table) read(ctx context.Context, l leases) (version string, err error) {
	var list leaseList
	if err := l.client.Do(ctx, http.MethodGet, l.path(""), l.selector(), nil, &list); err != nil {
		return "", err
	}
	t.reset(append([]lease{}, list.Items...))
	return list.Metadata.ResourceVersion, nil
}

// againAfter is the wait after a failure to follow the leases.
const againAfter = time.Second

// follow keeps the table up to date until ctx ends.
func (t *table) follow(ctx context.Context, l leases, version string, failed func(error)) {
	for ctx.Err() == nil {
		query := l.selector()
		query.Set("resourceVersion", version)
		err := l.client.Watch(ctx, l.path(""), query, func(c kube.Change) error {
			var is lease
			if err := json.Unmarshal(c.Object, &is); err != nil {
				return err
			}
			version = is.Metadata.ResourceVersion
			switch c.Type {
			case kube.Added, kube.Modified:
				t.set(is)
			case kube.Deleted:
				t.drop(is.Metadata.Name)
			}
			return nil
		})
		if err == nil { // servers end watches after some minutes
			continue
		}
		for ctx.Err() == nil {
			if !errors.Is(err, kube.ErrExpired) {
				failed(err)
				pause(ctx, againAfter)
			}
			if version, err = t.read(ctx, l); err == nil {
				break
			}
		}
	}
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
