package ownership

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers/kube"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
	"golang.org/x/sync/errgroup"
)

// DefaultDuration is the default of [Cluster.Duration].
const DefaultDuration = 15 * time.Second

// Cluster keeps the ownership as Lease objects of a Kubernetes cluster. Its exported fields are its options, which may be
// changed until [Cluster.Open] is called. All methods are safe for concurrent use.
type Cluster struct {
	// Client asks the API server. The leases are in Namespace. Both are required.
	Client    *kube.Client
	Namespace string
	// Group names the installation, and Name this replica. Both are names of objects of Kubernetes, and required.
	Group, Name string
	// URL is the address at which other replicas reach this one.
	URL string
	// Data is the data folder. Its file "replica.json" has the epoch. Required.
	Data string
	// Shared are the names of repositories of which every replica has its own.
	Shared []string
	// Process names the kernel of this machine and the locked file of the data folder. A process with the same name that held
	// the lease has ended, because this one has the lock. Empty means that no such thing is known.
	Process string
	// Duration is how long a lease is valid after its last renewal. It has whole seconds. The default is 15 s.
	Duration time.Duration
	// Lost is called once when another process took the lease. It must return at once. Nil means that nobody is told.
	Lost func(error)
	// Log receives messages for the operator. Nil discards them.
	Log *slog.Logger
	// Now is the clock, which need not be that of other machines. Nil means time.Now.
	Now func() time.Time

	leases leases
	table  *table
	holder string // this process, in the lease
	stop   context.CancelFunc
	work   sync.WaitGroup
	before Before

	mu      sync.Mutex           // guards the fields below
	changed map[string]time.Time // of repositories
	held    lease
	epoch   uint64
	until   time.Time // changes are acknowledged until then
	lost    error
	mine    map[string]bool    // repositories that this process knows to own
	frozen  map[string]*freeze // repositories that are being given away
	doubt   map[string]bool    // repositories whose last [Cluster.Give] may still reach the cluster
}

// freeze is a repository that is being given away.
type freeze struct {
	is   lease         // its assignment, once it was read
	over chan struct{} // closed when it is over
}

var _ Owner = (*Cluster)(nil)

// Open waits until this process holds the lease of its replica, and begins to renew it.
func (c *Cluster) Open(ctx context.Context) error {
	c.Duration = max(cmp.Or(c.Duration, DefaultDuration).Truncate(time.Second), time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.leases = leases{c.Client, c.Namespace, c.Group}
	c.table, c.mine, c.frozen, c.doubt = newTable(), map[string]bool{}, map[string]*freeze{}, map[string]bool{}
	c.holder = c.Name + "_" + rand.Text()
	if err := c.open(ctx); err != nil {
		return fmt.Errorf("cannot be the replica %s: %w", c.Name, err)
	}
	return nil
}

func (c *Cluster) open(ctx context.Context) error {
	was, err := readEpoch(c.Data)
	if err == nil && was.Name != "" && was.Name != c.Name {
		err = fmt.Errorf("the data folder is that of the replica %s", was.Name)
	}
	if err == nil {
		err = c.acquire(ctx, was.Epoch)
	}
	if err == nil {
		err = writeEpoch(c.Data, epoch{c.Name, c.epoch})
	}
	var version string
	if err == nil {
		version, err = c.table.read(ctx, c.leases)
	}
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	c.work.Go(func() { c.renewAll(working) })
	c.work.Go(func() {
		c.table.follow(working, c.leases, version, func(err error) {
			c.Log.Warn("cannot follow the leases of replicas", "err", err)
		})
	})
	return nil
}

// Close ends the renewal, and gives the lease back. Nothing may be acknowledged any more.
func (c *Cluster) Close(ctx context.Context) error {
	if c == nil || c.stop == nil {
		return nil
	}
	c.stop()
	c.work.Wait()
	c.mu.Lock()
	is, lost := c.held, c.lost
	c.until = time.Time{}
	c.mu.Unlock()
	if lost != nil {
		return nil
	}
	is.Spec.Holder = ""
	ctx, cancel := context.WithTimeout(ctx, c.Duration)
	defer cancel()
	if _, err := c.leases.replace(ctx, is); err != nil {
		return fmt.Errorf("cannot give back the lease of the replica %s, which ends in %v: %w", c.Name, c.Duration, err)
	}
	return nil
}

// Epoch returns the epoch of this process.
func (c *Cluster) Epoch() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// acquire waits until this process holds the lease. after is an epoch that has been.
func (c *Cluster) acquire(ctx context.Context, after uint64) error {
	var seen string // the version of the lease of another process
	var since time.Time
	for told := false; ; {
		is, found, err := c.leases.get(ctx, c.leases.replicaName(c.Name))
		switch {
		case err != nil:
			c.Log.Warn("cannot read the lease of this replica", "err", err)
		case !found:
			is = lease{Metadata: metadata{Name: c.leases.replicaName(c.Name)}}
			if done, err := c.takeLease(ctx, is, after, c.leases.createReplica); done || err != nil {
				return err
			}
		default:
			if err := c.leases.check(is, kindOf, c.Name); err != nil {
				return err
			}
			if is.Metadata.ResourceVersion != seen {
				seen, since = is.Metadata.ResourceVersion, c.Now()
			}
			ended := is.Spec.Holder == "" || c.Process != "" && is.Metadata.Annotations[noteProcess] == c.Process
			life := max(c.Duration, time.Duration(is.Spec.Seconds)*time.Second)
			if ended || c.Now().Sub(since) >= life {
				if done, err := c.takeLease(ctx, is, after, c.leases.replace); done || err != nil {
					return err
				}
				continue
			}
			if !told {
				c.Log.Info("waiting for the lease of another process", "replica", c.Name, "holder", is.Spec.Holder, "at most", life)
				told = true
			}
		}
		if pause(ctx, c.Duration/15); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func (l leases) createReplica(ctx context.Context, is lease) (lease, error) {
	return l.create(ctx, kindOf, is)
}

// takeLease writes the lease for this process, and reports whether that was done. It was not if another process was faster.
func (c *Cluster) takeLease(ctx context.Context, is lease, after uint64,
	write func(context.Context, lease) (lease, error)) (done bool, err error) {
	begun := c.Now()
	next := max(is.Spec.Transitions, after) + 1
	c.readBefore(is)
	is.Spec = leaseSpec{Transitions: next, Acquired: stamp(begun)}
	c.fill(&is, begun)
	made, err := write(ctx, is)
	if kube.IsCode(err, http.StatusForbidden, http.StatusUnauthorized, http.StatusUnprocessableEntity, http.StatusBadRequest) {
		return false, fmt.Errorf("cannot take its lease: %w", err)
	}
	if err != nil { // without an answer, the next look shows whether it is there
		c.Log.Info("cannot take the lease of this replica yet", "err", err)
		return false, nil
	}
	c.noteRenewal(made, begun)
	c.epoch = made.Spec.Transitions
	return true, nil
}

// fill writes the fields of each renewal.
func (c *Cluster) fill(is *lease, now time.Time) {
	is.Spec.Holder, is.Spec.Seconds, is.Spec.Renewed = c.holder, int(c.Duration/time.Second), stamp(now)
	is.Metadata.Annotations = map[string]string{noteName: c.Name, noteURL: c.URL, noteProcess: c.Process,
		noteChanged: c.changes()}
}

// noteRenewal notes that the lease was renewed by a request that was begun at a time.
func (c *Cluster) noteRenewal(is lease, begun time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.until = is, begun.Add(c.Duration*2/3)
}

// renewAll renews the lease until ctx ends or it is lost.
func (c *Cluster) renewAll(ctx context.Context) {
	every := c.Duration / 5
	for failed := false; ; {
		wait := every
		if failed {
			wait = min(every, time.Second)
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return
		}
		err := c.renew(ctx, every)
		if ctx.Err() != nil || c.lostError() != nil {
			return
		}
		if err != nil && !failed {
			c.Log.Warn("cannot renew the lease of this replica", "err", err)
		} else if err == nil && failed {
			c.Log.Info("the lease of this replica is renewed again")
		}
		failed = err != nil
	}
}

func (c *Cluster) renew(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	c.mu.Lock()
	is := c.held
	c.mu.Unlock()
	for {
		begun := c.Now()
		c.fill(&is, begun)
		made, err := c.leases.replace(ctx, is)
		if err == nil {
			c.noteRenewal(made, begun)
			return nil
		}
		if !kube.IsCode(err, http.StatusConflict, http.StatusNotFound) {
			return err
		}
		now, found, err := c.leases.get(ctx, is.Metadata.Name)
		switch {
		case err != nil:
			return err
		case !found: // somebody removed it
			is.Metadata = metadata{Name: is.Metadata.Name}
			c.fill(&is, begun)
			if made, err = c.leases.createReplica(ctx, is); err != nil {
				return err
			}
			c.noteRenewal(made, begun)
			return nil
		case now.Spec.Holder != c.holder:
			c.lose(fenced("the replica %s is another process now, of epoch %d: this one, of epoch %d, acknowledges nothing", c.Name,
				now.Spec.Transitions, c.Epoch()))
			return nil
		}
		is = now
	}
}

// lose ends the ownership of this process.
func (c *Cluster) lose(err error) {
	c.mu.Lock()
	first := c.lost == nil
	if first {
		c.lost = err
	}
	c.mu.Unlock()
	if !first {
		return
	}
	c.Log.Error("this process has lost the lease of its replica", "err", err)
	if c.Lost != nil {
		c.Lost(err)
	}
}

func (c *Cluster) lostError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Check implements [Owner]. It waits while the repository is being given away.
func (c *Cluster) Check(ctx context.Context, repo string) error {
	if err := c.CheckLease(); err != nil {
		return err
	}
	if c.isShared(repo) {
		return nil
	}
	c.mu.Lock()
	frozen, mine := c.frozen[repo], c.mine[repo]
	c.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen.over:
			return c.Check(ctx, repo)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if mine {
		return nil
	}
	return c.learn(ctx, repo)
}

// CheckLease returns nil if this process may acknowledge changes of repositories that the replica owns.
func (c *Cluster) CheckLease() error {
	c.mu.Lock()
	lost, late, until, own := c.lost, c.Now().Sub(c.until), c.until, c.epoch
	c.mu.Unlock()
	switch {
	case lost != nil:
		return lost
	case until.IsZero():
		return elsewhere("the replica %s has ended", c.Name)
	case late >= 0:
		return elsewhere("the replica %s cannot renew its lease, and may be another process soon: try again in a moment", c.Name)
	}
	is, err := readEpoch(c.Data)
	if err != nil {
		return err
	}
	if is.Epoch > own {
		c.lose(fenced("the data folder of the replica %s is that of epoch %d now: this process, of epoch %d, acknowledges nothing",
			c.Name, is.Epoch, own))
		return c.lostError()
	}
	return nil
}

// learn asks the cluster who owns a repository that this process does not know to own.
func (c *Cluster) learn(ctx context.Context, repo string) error {
	is, found, err := c.leases.get(ctx, c.leases.repoName(repo))
	if err != nil {
		return elsewhere("cannot find out which replica owns %s: try again in a moment", repo)
	}
	if found {
		if err := c.leases.check(is, kindRepo, repo); err != nil {
			return err
		}
		c.table.set(is)
	}
	switch owner := is.Spec.Holder; owner {
	case c.Name:
		c.mu.Lock()
		doubt := c.doubt[repo]
		c.mu.Unlock()
		if doubt {
			// A change that still reaches the cluster fails after this one.
			if err := c.rewrite(ctx, is); err != nil {
				return elsewhere("cannot find out which replica owns %s: try again in a moment", repo)
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mine[repo] = true
		delete(c.doubt, repo)
		return nil
	case "":
		return elsewhere("no replica owns %s", repo)
	default:
		return elsewhere("the replica %s owns %s: try again", owner, repo)
	}
}

// Claim implements [Owner].
func (c *Cluster) Claim(ctx context.Context, repo string) error {
	if c.isShared(repo) {
		return nil
	}
	if err := c.CheckLease(); err != nil {
		return err
	}
	now := stamp(c.Now())
	is := lease{Metadata: metadata{Name: c.leases.repoName(repo), Annotations: map[string]string{noteName: repo}},
		Spec: leaseSpec{Holder: c.Name, Transitions: 1, Acquired: now, Renewed: now}}
	made, err := c.leases.create(ctx, kindRepo, is)
	if kube.IsCode(err, http.StatusConflict) {
		if err = c.learn(ctx, repo); errors.Is(err, gitd.ErrElsewhere) {
			err = fmt.Errorf("%w: the replica %s has a repository of this name", gitd.ErrExists, c.table.owner(repo))
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("cannot claim %s for the replica %s: %w", repo, c.Name, err)
	}
	c.table.set(made)
	c.mu.Lock()
	c.mine[repo] = true
	c.mu.Unlock()
	return nil
}

// Drop implements [Owner].
func (c *Cluster) Drop(ctx context.Context, repo string) error {
	if c.isShared(repo) {
		return nil
	}
	is, found, err := c.leases.get(ctx, c.leases.repoName(repo))
	if err == nil && found && is.Spec.Holder == c.Name && is.Metadata.Annotations[noteName] == repo {
		err = c.leases.remove(ctx, is)
	}
	if err != nil {
		return fmt.Errorf("cannot remove the assignment of %s: %w", repo, err)
	}
	c.mu.Lock()
	delete(c.mine, repo)
	c.mu.Unlock()
	c.table.drop(is.Metadata.Name)
	return nil
}

// settleAtOnce bounds the assignments that are rewritten at once.
const settleAtOnce = 8

// Settle compares the repositories of the data folder with the assignments. It claims those that nobody owns, and rewrites
// those of this replica, so that a [Cluster.Give] of an earlier process that still reaches the cluster fails. moved are
// those that another replica owns, and missing those of this replica that the folder does not have.
func (c *Cluster) Settle(ctx context.Context, have []string) (moved, missing []string, err error) {
	if err := c.rewriteOwn(ctx); err != nil {
		return nil, nil, err
	}
	there := map[string]bool{}
	for _, repo := range have {
		there[repo] = true
		if c.isShared(repo) {
			continue
		}
		switch c.table.owner(repo) {
		case c.Name:
			c.mu.Lock()
			c.mine[repo] = true
			c.mu.Unlock()
		case "":
			err := c.Claim(ctx, repo)
			if errors.Is(err, gitd.ErrExists) {
				moved = append(moved, repo)
			} else if err != nil {
				return nil, nil, err
			}
		default:
			moved = append(moved, repo)
		}
	}
	for _, repo := range c.table.ofReplica(c.Name) {
		if !there[repo] {
			missing = append(missing, repo)
		}
	}
	return moved, missing, nil
}

// rewriteOwn rewrites the assignments of this replica.
func (c *Cluster) rewriteOwn(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(settleAtOnce)
	for _, repo := range c.table.ofReplica(c.Name) {
		g.Go(func() error {
			is, found, err := c.leases.get(ctx, c.leases.repoName(repo))
			if err == nil && found && is.Spec.Holder == c.Name {
				err = c.rewrite(ctx, is)
			} else if err == nil && found {
				c.table.set(is)
			} else if err == nil {
				c.table.drop(c.leases.repoName(repo))
			}
			if err != nil {
				return fmt.Errorf("cannot confirm the assignment of %s: %w", repo, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// rewrite writes an assignment as it is. Its version in the cluster is another one then.
func (c *Cluster) rewrite(ctx context.Context, is lease) error {
	if err := c.CheckLease(); err != nil {
		return err
	}
	is.Spec.Renewed = stamp(c.Now())
	made, err := c.leases.replace(ctx, is)
	if err == nil {
		c.table.set(made)
	}
	return err
}

// Freeze has [Cluster.Check] of a repository of this replica wait until thaw is called, which may be called twice. Returns
// [gitd.ErrConflict] if it is frozen already.
func (c *Cluster) Freeze(ctx context.Context, repo string) (thaw func(), err error) {
	f := &freeze{over: make(chan struct{})}
	c.mu.Lock()
	taken := c.frozen[repo] != nil
	if !taken {
		c.frozen[repo] = f
	}
	c.mu.Unlock()
	if taken {
		return nil, fmt.Errorf("%s is being given away already: %w", repo, gitd.ErrConflict)
	}
	thaw = sync.OnceFunc(func() {
		c.mu.Lock()
		delete(c.frozen, repo)
		c.mu.Unlock()
		close(f.over)
	})
	is, found, err := c.leases.get(ctx, c.leases.repoName(repo))
	if err == nil && found {
		err = c.leases.check(is, kindRepo, repo)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("cannot read the assignment of %s: %w", repo, err)
	case !found || is.Spec.Holder != c.Name:
		err = elsewhere("this replica does not own %s", repo)
	}
	if err != nil {
		thaw()
		return nil, err
	}
	f.is = is
	return thaw, nil
}

// Give makes another replica the owner of a repository that is frozen, with a name for the copy that it takes into use.
// The assignment must not have changed since [Cluster.Freeze]. Without an answer of the cluster Give asks until ctx ends,
// as long as this process has the lease of its replica. If it returns an error of the kind [gitd.ErrElsewhere] then, it is
// not known who the owner is, and this replica is none until the cluster answers.
func (c *Cluster) Give(ctx context.Context, repo, to, copied string) error {
	c.mu.Lock()
	f := c.frozen[repo]
	c.mu.Unlock()
	if f == nil {
		return fmt.Errorf("cannot give %s away: it is not frozen", repo)
	}
	next := f.is
	now := stamp(c.Now())
	next.Spec.Holder, next.Spec.Acquired, next.Spec.Renewed = to, now, now
	next.Spec.Transitions++
	next.Metadata.Annotations = map[string]string{noteName: repo, noteCopy: copied}
	for tried := false; ; {
		err := c.CheckLease()
		if err != nil && (!tried || errors.Is(err, gitd.ErrFenced)) {
			return err
		}
		if err == nil {
			tried = true
			c.suspect(repo)
			made, err := c.replaceSoon(ctx, next)
			if err == nil {
				c.given(made)
				return nil
			}
			if kube.IsCode(err, http.StatusForbidden) {
				return fmt.Errorf("cannot change the assignment of %s: %w", repo, err)
			}
		}
		is, found, err := c.leases.get(ctx, next.Metadata.Name)
		switch {
		case err != nil:
		case !found:
			return elsewhere("no replica owns %s", repo)
		case is.Spec.Holder == to:
			c.given(is)
			return nil
		case is.Spec.Holder != c.Name:
			c.given(is)
			return elsewhere("the replica %s owns %s", is.Spec.Holder, repo)
		case is.Metadata.ResourceVersion != f.is.Metadata.ResourceVersion:
			return fmt.Errorf("the assignment of %s was changed meanwhile: %w", repo, gitd.ErrConflict)
		}
		if pause(ctx, c.Duration/50); ctx.Err() != nil {
			return elsewhere("it is not known whether %s or %s owns %s: the cluster does not answer", c.Name, to, repo)
		}
	}
}

// replaceSoon replaces a lease while no other process can be this replica. A lease that may still acknowledge changes is
// valid for another third of its duration.
func (c *Cluster) replaceSoon(ctx context.Context, next lease) (lease, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Duration/4)
	defer cancel()
	return c.leases.replace(ctx, next)
}

// suspect notes that the cluster may be about to make another replica the owner.
func (c *Cluster) suspect(repo string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mine, repo)
	c.doubt[repo] = true
}

// given notes that the cluster has another owner.
func (c *Cluster) given(is lease) {
	c.table.set(is)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mine, is.Metadata.Annotations[noteName])
	delete(c.doubt, is.Metadata.Annotations[noteName])
}

// Assigned asks the cluster whether this replica owns a repository since a [Cluster.Give] with the name of a copy.
func (c *Cluster) Assigned(ctx context.Context, repo, copied string) (bool, error) {
	is, found, err := c.leases.get(ctx, c.leases.repoName(repo))
	if err == nil && found {
		err = c.leases.check(is, kindRepo, repo)
	}
	if err != nil {
		return false, fmt.Errorf("cannot read the assignment of %s: %w", repo, err)
	}
	if found {
		c.table.set(is)
	}
	return found && is.Spec.Holder == c.Name && is.Metadata.Annotations[noteCopy] == copied, nil
}

// Copy returns the name of the copy that came with the last [Cluster.Give] of a repository, as it was last known.
func (c *Cluster) Copy(repo string) string { return c.table.copyOf(repo) }

// Find implements [Owner], from the last known state.
func (c *Cluster) Find(repo string) (Replica, bool) {
	if c.isShared(repo) {
		return c.Self(), true
	}
	owner := c.table.owner(repo)
	if owner == "" {
		return Replica{}, false
	}
	return c.mark(c.table.replica(owner)), true
}

// Look asks the cluster for the owner of a repository, and then is [Cluster.Find].
func (c *Cluster) Look(ctx context.Context, repo string) (Replica, bool) {
	_ = c.learn(ctx, repo)
	return c.Find(repo)
}

// Named returns a replica by its name. Returns false if there is none.
func (c *Cluster) Named(name string) (Replica, bool) {
	for _, r := range c.Replicas() {
		if r.Name == name {
			return r, true
		}
	}
	return Replica{}, false
}

// Self implements [Owner].
func (c *Cluster) Self() Replica {
	r := c.table.replica(c.Name)
	r.URL, r.Epoch, r.Live = c.URL, c.Epoch(), c.CheckLease() == nil
	return c.mark(r)
}

// Owned returns the names of the repositories that the cluster assigns to this replica, sorted.
func (c *Cluster) Owned() []string { return c.table.ofReplica(c.Name) }

// Replicas implements [Owner].
func (c *Cluster) Replicas() []Replica {
	list := c.table.all()
	for i := range list {
		list[i] = c.mark(list[i])
	}
	return list
}

func (c *Cluster) isShared(repo string) bool { return slices.Contains(c.Shared, repo) }

func (c *Cluster) mark(r Replica) Replica {
	r.Self = r.Name == c.Name
	return r
}

// epoch is the content of the file in the data folder.
type epoch struct {
	Name  string `json:"replica"`
	Epoch uint64 `json:"epoch"`
}

const epochFile = "replica.json"

func readEpoch(data string) (e epoch, err error) {
	b, err := os.ReadFile(filepath.Join(data, epochFile))
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &e)
	}
	if err != nil {
		return e, fmt.Errorf("cannot read the epoch of the data folder: %w", err)
	}
	return e, nil
}

// writeEpoch writes the epoch, and returns when it is on disk.
func writeEpoch(data string, e epoch) error {
	b, err := json.Marshal(e)
	if err == nil {
		err = durable.Replace(filepath.Join(data, epochFile), append(b, '\n'), true)
	}
	if err == nil {
		err = durable.Folder(data)
	}
	if err != nil {
		return fmt.Errorf("cannot record the epoch in the data folder: %w", err)
	}
	return nil
}
