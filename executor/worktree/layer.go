package worktree

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

// Bounds of the layers.
const (
	layersDefault   = 20 << 30 // bytes
	layersMax       = 200      // layers of bases and dependencies, of all repositories
	layerEntries    = 2 << 20  // files and folders of one
	layerWithin     = 30 * time.Minute
	layerPause      = 10 * time.Minute       // after one could not be made
	layerRoom       = 500 * time.Millisecond // between two looks for a place in the fleet
	layerRecord     = 64 << 10               // bytes of layer.json
	layerLook       = time.Second / 4        // at least, between two looks at one that is being filled
	layerLookAnyway = 10 * time.Second       // at most
	layerLookRest   = 19                     // and this many times the duration of the last look
)

// layerSet is the layers of a Store that has a Keeper.
//
// A layer is in DIR/REPO/COMMIT-UID. upper/ is its work tree, layer.json describes it, and users/ names the folders
// of containers that it is bound in. The layer of a branch is in COMMIT-UID.CALLER over the layer of a base, and is a
// user of that layer. Dependencies are in DIR/REPO/ECOSYSTEM-PLATFORM-LOCKS-UID.
type layerSet struct {
	store  *Store
	keeper layer.Keeper
	dir    string
	turn   chan struct{} // holds one token, because one layer is made at a time
	// made counts the layers that were made of bases and dependencies, branched those of branches.
	made, branched atomic.Int64

	mu     sync.Mutex // guards all below
	all    []*Layer
	wishes []Wish
	making bool                 // a goroutine works at wishes
	failed map[string]time.Time // by folder, the time of the last failure to make a layer

	branches  map[record.Caller]*branchWish
	branching bool // a goroutine works at branches
}

// Layer is the work tree of a commit that other work trees are over, or the dependencies of a commit in an ecosystem. It is never
// written to again.
type Layer struct {
	Repo string `json:"repo"`
	// Ecosystem and Locks, the hash of its lock files, are set for a layer of dependencies. If they are empty the
	// layer holds a work tree, and Commit, Head, Token and Signs belong to that.
	Ecosystem string    `json:"ecosystem,omitempty"`
	Locks     string    `json:"locks,omitempty"`
	Commit    gitd.Hash `json:"commit,omitempty"`
	// Head is the newest commit that its repository has.
	Head gitd.Hash `json:"head,omitempty"`
	// Token is the token that git gets for the layer's own index.
	Token string `json:"token,omitempty"`
	// Signs is set if git in the image that made the layer knows signatures by SSH keys.
	Signs bool      `json:"signs,omitempty"`
	UID   int       `json:"uid"` // of its owner, as the host counts
	Bytes int64     `json:"bytes"`
	Files int       `json:"files"`
	Made  time.Time `json:"made"`
	// Branch is the caller whose branch the layer is of, as a slug. It is empty for a layer of a base. Over is the
	// commit of the layer below, Base the commit of the base, Boot the boot of the machine that made the layer.
	Branch string    `json:"branch,omitempty"`
	Over   gitd.Hash `json:"over,omitempty"`
	Base   gitd.Hash `json:"base,omitempty"`
	Boot   string    `json:"boot,omitempty"`

	dir   string
	under *Layer    // a base's; nil if there is none below
	used  time.Time // guarded by layerSet.mu
}

// files returns the number of files of the layer and of that below it. Files that a branch changed count twice.
func (l *Layer) files() int {
	n := l.Files
	if l.under != nil {
		n += l.under.Files
	}
	return n
}

// tree returns the folder that is bound. Of a branch's layer it holds only the changes.
func (l *Layer) tree() string { return filepath.Join(l.dir, "upper") }

// trees returns the folders that work trees over the layer are over, the topmost first.
func (l *Layer) trees() []string {
	if l.under == nil {
		return []string{l.tree()}
	}
	return []string{l.tree(), l.under.tree()}
}

// heads returns the commits whose histories the layer's repository has. A caller that may not read one of them may not have the layer.
func (l *Layer) heads() []gitd.Hash {
	if l.under == nil {
		return []gitd.Hash{l.Head}
	}
	return []gitd.Hash{l.Head, l.Base, l.under.Head}
}

// Platform is for which dependencies are fetched. Engines work on this machine.
const Platform = runtime.GOOS + "-" + runtime.GOARCH

// Name returns the name of the layer's folder, which is below that of its repository.
func (l *Layer) Name() string {
	what := string(l.Commit)
	if l.Ecosystem != "" {
		what = l.Ecosystem + "-" + Platform + "-" + l.Locks
	}
	what += "-" + strconv.Itoa(l.UID)
	if l.Branch != "" {
		what += "." + l.Branch
	}
	return what
}

// Wish is a layer that could be used: the work tree of Commit, which Branch has, or the dependencies of an Ecosystem with Locks.
type Wish struct {
	Repo   string
	Branch string
	Commit gitd.Hash

	Ecosystem, Locks string
	// Target is where dependencies are in containers, and Fill puts them there.
	Target string
	Fill   func(context.Context, *containers.Host) error
}

// same reports whether w and o are of the same layer, on the same branch.
func (w Wish) same(o Wish) bool {
	return w.Repo == o.Repo && w.Branch == o.Branch && w.Commit == o.Commit && w.Ecosystem == o.Ecosystem &&
		w.Locks == o.Locks
}

// wanted returns the layer of a wish, with the properties that are known before it is made.
func (s *layerSet) wanted(w Wish) *Layer {
	l := &Layer{Repo: w.Repo, Ecosystem: w.Ecosystem, Locks: w.Locks, Commit: w.Commit, UID: s.store.Fleet.TaskUID()}
	l.dir = filepath.Join(s.dir, layerFolder(l.Repo), l.Name())
	return l
}

// there reports whether a layer is made.
func (s *layerSet) there(l *Layer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.thereLocked(l)
}

func (s *layerSet) thereLocked(l *Layer) bool {
	return slices.ContainsFunc(s.all, func(o *Layer) bool { return o.dir == l.dir })
}

// layerFolder returns the folder of a repository's layers. Names of repositories have no '%'.
func layerFolder(repo string) string { return strings.ReplaceAll(repo, "/", "%") }

// openLayers finds the layers that earlier processes made, and removes those that they did not finish.
func (st *Store) openLayers() error {
	if st.Fleet.Keeper == nil {
		return nil
	}
	s := &layerSet{store: st, keeper: st.Fleet.Keeper, turn: make(chan struct{}, 1), failed: make(map[string]time.Time)}
	var err error
	if s.dir, err = filepath.Abs(st.Layers.Dir); err == nil {
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
	var branches []*Layer
	boot := string(durable.BootID())
	for _, dir := range folders {
		switch l := readLayer(dir); {
		case l != nil && l.Branch == "":
			s.all = append(s.all, l)
		case l != nil && l.Boot == boot:
			branches = append(branches, l)
		default:
			st.background(func() { s.remove(dir) })
		}
	}
	for _, l := range branches {
		if l.under = s.find(l.Repo, l.Over, l.UID); l.under != nil && s.holdLocked(l.under, l.dir) {
			s.all = append(s.all, l)
		} else {
			st.background(func() { s.remove(l.dir) })
		}
	}
	st.layers = s
	return nil
}

// readLayer reads the record of a layer. It returns nil if the layer is not whole.
func readLayer(dir string) *Layer {
	path := filepath.Join(dir, "layer.json")
	info, err := os.Stat(path)
	if err != nil || info.Size() > layerRecord {
		return nil
	}
	text, err := os.ReadFile(path)
	l := &Layer{dir: dir, used: info.ModTime()}
	if err != nil || json.Unmarshal(text, l) != nil || l.Name() != filepath.Base(dir) ||
		layerFolder(l.Repo) != filepath.Base(filepath.Dir(dir)) {
		return nil
	}
	return l
}

// remove deletes a folder, also if the Store is closing.
func (s *layerSet) remove(dir string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.store.ctx), Housekeeping)
	defer cancel()
	if err := s.keeper.Remove(ctx, dir); err != nil {
		s.store.Log.Warn("a base layer that is not needed stays", "folder", dir, "err", err)
	}
}

// of returns the work trees of a repository's bases for a user, the newest first.
func (s *layerSet) of(repo string, uid int) []*Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*Layer
	for _, l := range s.all {
		if l.Repo == repo && l.UID == uid && l.Ecosystem == "" && l.Branch == "" {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *Layer) int { return b.Made.Compare(a.Made) })
	return list
}

// newest returns the layer that was made last of those that match, or nil.
func (s *layerSet) newest(match func(*Layer) bool) *Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest *Layer
	for _, l := range s.all {
		if match(l) && (newest == nil || newest.Made.Before(l.Made)) {
			newest = l
		}
	}
	return newest
}

// find returns the work tree of a base's commit, or nil.
func (s *layerSet) find(repo string, commit gitd.Hash, uid int) *Layer {
	return s.newest(func(l *Layer) bool {
		return l.Repo == repo && l.Commit == commit && l.UID == uid && l.Ecosystem == "" && l.Branch == ""
	})
}

// holdLayer keeps a layer as long as the folder of a container is there. It returns false if the layer has just gone.
func (s *layerSet) holdLayer(l *Layer, place string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdLocked(l, place)
}

func (s *layerSet) holdLocked(l *Layer, place string) bool {
	if !slices.Contains(s.all, l) {
		return false
	}
	users := filepath.Join(l.dir, "users")
	if os.MkdirAll(users, 0o700) != nil || os.WriteFile(filepath.Join(users, filepath.Base(place)), []byte(place), 0o600) != nil {
		return false
	}
	l.used = s.store.Now()
	_ = os.Chtimes(filepath.Join(l.dir, "layer.json"), l.used, l.used) // only the order of eviction depends on it
	return true
}

// held reports whether a container that the layer is bound in may still be there.
func (l *Layer) held() bool {
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

// evict removes the layers that were not used for the longest until the rest is small enough, but not the one that was just made.
func (s *layerSet) evict(made *Layer) {
	most := cmp.Or(s.store.Layers.Bytes, layersDefault)
	s.mu.Lock()
	var bytes int64
	count := make(map[bool]int) // branches' layers, and bases'
	for _, l := range s.all {
		bytes += l.Bytes
		count[l.under != nil]++
	}
	byUse := slices.SortedFunc(slices.Values(s.all), func(a, b *Layer) int { return a.used.Compare(b.used) })
	var gone []string
	for _, l := range byUse {
		mostOf := layersMax
		if l.under != nil {
			mostOf = branchesMax
		}
		if l == made || bytes <= most && count[l.under != nil] <= mostOf {
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

// takeLocked takes a layer that no container needs out of the set. The caller removes its folder. mu is held.
func (s *layerSet) takeLocked(l *Layer) (dir string, ok bool) {
	if !slices.Contains(s.all, l) || l.held() {
		return "", false
	}
	// Under another name it is the remains of a killed process.
	dir = filepath.Join(filepath.Dir(l.dir), ".old-"+record.NewToken())
	if err := os.Rename(l.dir, dir); err != nil {
		s.store.Log.Warn("cannot remove a base layer", "repo", l.Repo, "commit", l.Commit, "err", err)
		return "", false
	}
	s.all = slices.DeleteFunc(s.all, func(o *Layer) bool { return o == l })
	return dir, true
}

// drop removes a layer, unless a container needs it.
func (s *layerSet) drop(l *Layer) bool {
	s.mu.Lock()
	dir, ok := s.takeLocked(l)
	s.mu.Unlock()
	if ok {
		s.remove(dir)
	}
	return ok
}

// Unheld returns a repository's layers that no container needs. Without a Keeper there are none.
func (st *Store) Unheld(repo string) []*Layer {
	if st.layers == nil {
		return nil
	}
	return st.layers.unheld(repo)
}

func (s *layerSet) unheld(repo string) []*Layer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*Layer
	for _, l := range s.all {
		if l.Repo == repo && !l.held() {
			list = append(list, l)
		}
	}
	return list
}

// LastUse returns when a layer was last bound in a container.
func (st *Store) LastUse(l *Layer) time.Time {
	st.layers.mu.Lock()
	defer st.layers.mu.Unlock()
	return l.used
}

// Drop removes a layer. It returns false if a container needs the layer.
func (st *Store) Drop(l *Layer) bool { return st.layers.drop(l) }
