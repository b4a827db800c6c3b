package executor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

// Work trees are bound to containers from outside where the fleet has a Keeper: an
// overlay over a base layer, which is the checked-out work tree of one commit of the
// base with a repository of its own. Layers are made by a container that nobody else
// uses, of the base alone, so what one shows is no more than any caller of that base may
// read; they are never written to again. They are a cache: a caller for whom there is none
// goes the portable way (scripts/provision.sh, scripts/commit.sh), as all do
// without a Keeper, and nothing is lost with them.
//
// A layer lies in DATA/layers/REPO/COMMIT-UID: upper/ is its work tree, layer.json says what
// it is, users/ names the folders of containers that it is bound in. That of a branch (see
// layer_branch.go) lies in COMMIT-UID.CALLER over the one of a base, and is a user of it.
//
// What package managers have fetched of the base (see cache.go) is made a layer in the same
// way, DATA/layers/REPO/ECOSYSTEM-PLATFORM-LOCKS-UID, by unpacking a tarball of the dependency
// cache once: every container behind it has it at the cost of a mount, whatever its size.

// Bounds of the layers.
const (
	layersDefault   = 20 << 30 // bytes
	layersMax       = 200      // base layers of all repositories
	layerEntries    = 2 << 20  // files and folders of one
	layerWithin     = 30 * time.Minute
	layerPause      = 10 * time.Minute       // after one could not be made
	layerRoom       = 500 * time.Millisecond // between two looks for a place in the fleet
	layerRecord     = 64 << 10               // bytes of layer.json
	layerLook       = time.Second / 4        // at least, between two looks at one that is being filled
	layerLookAnyway = 10 * time.Second       // at most
	layerLookRest   = 19                     // and so many times as long as the last one took
)

// layers is the store of base layers.
type layers struct {
	x      *Executor
	keeper layer.Keeper
	dir    string
	max    int64
	made   atomic.Int64
	turn   chan struct{} // holds one token: layers are made one after another
	// branched counts the layers of branches that were made.
	branched atomic.Int64

	mu     sync.Mutex // guards all below
	all    []*baseLayer
	wishes []wish
	making bool                 // a goroutine works at wishes
	failed map[string]time.Time // by name: when one could not be made

	branches  map[record.Caller]*branchWish
	branching bool // a goroutine works at branches
}

// baseLayer is the work tree of a commit that other ones lie over, or the dependencies of
// one in an ecosystem.
type baseLayer struct {
	Repo string `json:"repo"`
	// Ecosystem and Locks, the hash of its lock files, say that it holds dependencies; "":
	// a work tree, and Commit, Head, Token and Signs are its.
	Ecosystem string    `json:"ecosystem,omitempty"`
	Locks     string    `json:"locks,omitempty"`
	Commit    gitd.Hash `json:"commit,omitempty"`
	// Head is the newest commit that its repository has.
	Head gitd.Hash `json:"head,omitempty"`
	// Token is what git is told of the layer's own index.
	Token string `json:"token,omitempty"`
	// Signs: git in the image that made it knows signatures by SSH keys.
	Signs bool      `json:"signs,omitempty"`
	UID   int       `json:"uid"` // who owns it, as the host counts
	Bytes int64     `json:"bytes"`
	Files int       `json:"files"`
	Made  time.Time `json:"made"`
	// Branch is the caller whose branch's layer it is, as a slug; empty: it is a base's. Over is the
	// commit of the layer that it lies over, Base where the base stood, Boot the machine's
	// boot that it was made in.
	Branch string    `json:"branch,omitempty"`
	Over   gitd.Hash `json:"over,omitempty"`
	Base   gitd.Hash `json:"base,omitempty"`
	Boot   string    `json:"boot,omitempty"`

	dir   string
	under *baseLayer // a base's; nil: it lies over none
	used  time.Time  // guarded by layers.mu
}

// tree is what is bound of it, of a branch's layer what it changes.
func (l *baseLayer) tree() string { return filepath.Join(l.dir, "upper") }

// trees are what work trees over it lie over, the topmost first.
func (l *baseLayer) trees() []string {
	if l.under == nil {
		return []string{l.tree()}
	}
	return []string{l.tree(), l.under.tree()}
}

// heads are the commits whose histories its repository has: who may not read one of them
// may not have the layer.
func (l *baseLayer) heads() []gitd.Hash {
	if l.under == nil {
		return []gitd.Hash{l.Head}
	}
	return []gitd.Hash{l.Head, l.Base, l.under.Head}
}

// name is of its folder below that of its repository.
func (l *baseLayer) name() string {
	what := string(l.Commit)
	if l.Ecosystem != "" {
		what = l.Ecosystem + "-" + platform + "-" + l.Locks
	}
	what += "-" + strconv.Itoa(l.UID)
	if l.Branch != "" {
		what += "." + l.Branch
	}
	return what
}

// wish is a layer that somebody could use.
type wish struct {
	repo   string
	branch string // that has the commit
	commit gitd.Hash
	// ecosystem and locks are those of dependencies, and the above but repo is empty.
	ecosystem, locks string
}

// wanted is the layer of a wish, with what is known of it before it is made.
func (s *layers) wanted(w wish) *baseLayer {
	l := &baseLayer{Repo: w.repo, Ecosystem: w.ecosystem, Locks: w.locks, Commit: w.commit, UID: s.x.Fleet.TaskUID()}
	l.dir = filepath.Join(s.dir, layerFolder(l.Repo), l.name())
	return l
}

// there tells whether a layer is made.
func (s *layers) there(l *baseLayer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.thereLocked(l)
}

func (s *layers) thereLocked(l *baseLayer) bool {
	return slices.ContainsFunc(s.all, func(o *baseLayer) bool { return o.dir == l.dir })
}

// layerFolder is where a repository's layers lie; names of repositories have no '%'.
func layerFolder(repo string) string { return strings.ReplaceAll(repo, "/", "%") }

// openLayers finds what earlier processes made, and removes what they did not finish.
func (x *Executor) openLayers() error {
	if x.Fleet.Keeper == nil {
		return nil
	}
	s := &layers{x: x, keeper: x.Fleet.Keeper, max: cmp.Or(x.Layers, layersDefault), turn: make(chan struct{}, 1), failed: make(map[string]time.Time)}
	var err error
	if s.dir, err = filepath.Abs(filepath.Join(x.Data, "layers")); err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err != nil {
		return fmt.Errorf("cannot open the base layers: %w", err)
	}
	folders, err := filepath.Glob(filepath.Join(s.dir, "*", "*"))
	if err != nil {
		return fmt.Errorf("cannot open the base layers: %w", err)
	}
	hidden, _ := filepath.Glob(filepath.Join(s.dir, "*", ".*"))
	folders = slices.Compact(slices.Sorted(slices.Values(append(folders, hidden...))))
	var branches []*baseLayer
	boot := string(durable.BootID())
	for _, dir := range folders {
		switch l := readLayer(dir); {
		case l != nil && l.Branch == "":
			s.all = append(s.all, l)
		case l != nil && l.Boot == boot:
			branches = append(branches, l)
		default:
			x.wg.Go(func() { s.remove(dir) })
		}
	}
	for _, l := range branches {
		if l.under = s.find(l.Repo, l.Over, l.UID); l.under != nil && s.holdLocked(l.under, l.dir) {
			s.all = append(s.all, l)
		} else {
			x.wg.Go(func() { s.remove(l.dir) })
		}
	}
	x.layers = s
	return nil
}

// readLayer reads what a layer is; nil when it is not whole.
func readLayer(dir string) *baseLayer {
	path := filepath.Join(dir, "layer.json")
	info, err := os.Stat(path)
	if err != nil || info.Size() > layerRecord {
		return nil
	}
	text, err := os.ReadFile(path)
	l := &baseLayer{dir: dir, used: info.ModTime()}
	if err != nil || json.Unmarshal(text, l) != nil || l.name() != filepath.Base(dir) || layerFolder(l.Repo) != filepath.Base(filepath.Dir(dir)) {
		return nil
	}
	return l
}

// remove deletes a folder in the background of everything else.
func (s *layers) remove(dir string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.x.ctx), housekeeping)
	defer cancel()
	if err := s.keeper.Remove(ctx, dir); err != nil {
		s.x.Log.Warn("a base layer that is not needed stays", "folder", dir, "err", err)
	}
}

// of lists the work trees of a repository's bases for a user, the newest first.
func (s *layers) of(repo string, uid int) []*baseLayer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*baseLayer
	for _, l := range s.all {
		if l.Repo == repo && l.UID == uid && l.Ecosystem == "" && l.Branch == "" {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *baseLayer) int { return b.Made.Compare(a.Made) })
	return list
}

// newest is the layer that was made last of those that match; nil when none does.
func (s *layers) newest(match func(*baseLayer) bool) *baseLayer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *baseLayer
	for _, l := range s.all {
		if match(l) && (newest == nil || newest.Made.Before(l.Made)) {
			newest = l
		}
	}
	return newest
}

// find returns the work tree of a base's commit; nil when it is not there.
func (s *layers) find(repo string, commit gitd.Hash, uid int) *baseLayer {
	return s.newest(func(l *baseLayer) bool {
		return l.Repo == repo && l.Commit == commit && l.UID == uid && l.Ecosystem == "" && l.Branch == ""
	})
}

// dependencies returns what is kept of an ecosystem with these lock files; nil when it is not there.
func (s *layers) dependencies(repo, ecosystem, locks string, uid int) *baseLayer {
	return s.newest(func(l *baseLayer) bool {
		return l.Repo == repo && l.Ecosystem == ecosystem && l.Locks == locks && l.UID == uid
	})
}

// hold keeps a layer for as long as the folder of a container is there; false when it
// has just gone.
func (s *layers) hold(l *baseLayer, place string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdLocked(l, place)
}

func (s *layers) holdLocked(l *baseLayer, place string) bool {
	if !slices.Contains(s.all, l) {
		return false
	}
	users := filepath.Join(l.dir, "users")
	if os.MkdirAll(users, 0o700) != nil || os.WriteFile(filepath.Join(users, filepath.Base(place)), []byte(place), 0o600) != nil {
		return false
	}
	l.used = s.x.Now()
	_ = os.Chtimes(filepath.Join(l.dir, "layer.json"), l.used, l.used) // only the order of eviction hangs on it
	return true
}

// held tells whether a container that a layer is bound in may still be there.
func (l *baseLayer) held() bool {
	users, err := os.ReadDir(filepath.Join(l.dir, "users"))
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	held := false
	for _, u := range users {
		path := filepath.Join(l.dir, "users", u.Name())
		place, err := os.ReadFile(path)
		if err == nil {
			_, err = os.Stat(string(place))
		}
		if errors.Is(err, os.ErrNotExist) {
			_ = os.Remove(path)
			continue
		}
		held = true
	}
	return held
}

// evict removes what was not used for the longest until the rest is small enough, but
// not the one that was just made.
func (s *layers) evict(made *baseLayer) {
	s.mu.Lock()
	var bytes int64
	count := make(map[bool]int) // branches' layers, and bases'
	for _, l := range s.all {
		bytes += l.Bytes
		count[l.under != nil]++
	}
	byUse := slices.SortedFunc(slices.Values(s.all), func(a, b *baseLayer) int { return a.used.Compare(b.used) })
	var gone []string
	for _, l := range byUse {
		most := layersMax
		if l.under != nil {
			most = branchesMax
		}
		if l == made || bytes <= s.max && count[l.under != nil] <= most {
			continue
		}
		if old, ok := s.takeLocked(l); ok {
			bytes -= l.Bytes
			count[l.under != nil]--
			gone = append(gone, old)
		}
	}
	s.mu.Unlock()
	for _, dir := range gone {
		s.remove(dir)
	}
}

// takeLocked takes a layer that no container needs out of the store; its folder is left
// to be removed.
func (s *layers) takeLocked(l *baseLayer) (dir string, ok bool) {
	if !slices.Contains(s.all, l) || l.held() {
		return "", false
	}
	// Under another name it is what a killed process left.
	dir = filepath.Join(filepath.Dir(l.dir), ".old-"+record.NewToken())
	if err := os.Rename(l.dir, dir); err != nil {
		s.x.Log.Warn("cannot remove a base layer", "repo", l.Repo, "commit", l.Commit, "err", err)
		return "", false
	}
	s.all = slices.DeleteFunc(s.all, func(o *baseLayer) bool { return o == l })
	return dir, true
}

// drop removes a layer that no container needs.
func (s *layers) drop(l *baseLayer) bool {
	s.mu.Lock()
	dir, ok := s.takeLocked(l)
	s.mu.Unlock()
	if ok {
		s.remove(dir)
	}
	return ok
}

// lastUse is when a layer was last bound in a container.
func (s *layers) lastUse(l *baseLayer) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.used
}

// unheld lists a repository's layers that no container needs.
func (s *layers) unheld(repo string) []*baseLayer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*baseLayer
	for _, l := range s.all {
		if l.Repo == repo && !l.held() {
			list = append(list, l)
		}
	}
	return list
}
