package standby

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// Have is the state of a follower that asks for the next round.
type Have struct {
	// Name names the follower for people.
	Name string `json:"name"`
	// URL is where the follower serves when it is promoted, or empty.
	URL string `json:"url,omitempty"`
	// Session and Round are those of the last round that is on the follower's disk. Empty asks for everything.
	Session string `json:"session,omitempty"`
	Round   uint64 `json:"round,omitempty"`
	// Epoch is the epoch of the follower's data. A leader of a lower one refuses all work from then on.
	Epoch   uint64 `json:"epoch,omitempty"`
	EpochID string `json:"epoch_id,omitempty"`
}

// Round has the changes from one moment to another.
type Round struct {
	Session string `json:"session"`
	Round   uint64 `json:"round"`
	Epoch   uint64 `json:"epoch"` // of the leader
	EpochID string `json:"epoch_id,omitempty"`
	// Waited is the time from the request to the moment of the round.
	Waited time.Duration `json:"waited_ns,omitempty"`
	// Full is set if the round has everything. The follower removes all other files, refs and repositories.
	Full bool `json:"full,omitempty"`
	// Keys reports whether the keys of the server are among the files.
	Keys bool `json:"keys,omitempty"`
	// Elsewhere reports whether artifacts are in a store outside of the leader's data folder.
	Elsewhere bool   `json:"artifacts_elsewhere,omitempty"`
	Repos     []Repo `json:"repos,omitempty"`
	Files     []File `json:"files,omitempty"`
	// GoneRepos and GoneFiles were removed.
	GoneRepos []string `json:"gone_repos,omitempty"`
	GoneFiles []string `json:"gone_files,omitempty"`
}

// Repo has the changes of one repository.
type Repo struct {
	Name string `json:"name"`
	// Full is set if Refs has all refs.
	Full bool `json:"full,omitempty"`
	// Refs are the refs that changed. An empty hash means that the ref is gone.
	Refs []gitd.Ref `json:"refs,omitempty"`
	// Files are the small files of the repository, all of them, or nil if none has changed.
	Files map[string][]byte `json:"files,omitempty"`
}

// File is a file that is new or has changed.
type File struct {
	Path string      `json:"path"` // in the data folder, with slashes
	Size int64       `json:"size"`
	Mode fs.FileMode `json:"mode"`
	// From is set if the file has only grown: its first From bytes are those that the follower has.
	From int64 `json:"from,omitempty"`
}

// empty reports whether the round changes nothing.
func (r *Round) empty() bool {
	return !r.Full && len(r.Repos)+len(r.Files)+len(r.GoneRepos)+len(r.GoneFiles) == 0
}

// check returns [record.ErrInvalid] for a round with a name that leads out of a data folder.
func (r *Round) check() error {
	bad := func(what, name string) error {
		return fmt.Errorf("%w answer of the leader: the %s %.200q is wrong", record.ErrInvalid, what, name)
	}
	for _, repo := range r.Repos {
		if gitd.CheckName(repo.Name) != nil {
			return bad("repository", repo.Name)
		}
	}
	for _, name := range r.GoneRepos {
		if gitd.CheckName(name) != nil {
			return bad("repository", name)
		}
	}
	for _, f := range r.Files {
		if !isPlace(f.Path) || f.Size < 0 || f.From < 0 || f.From > f.Size || f.Mode != f.Mode.Perm() {
			return bad("file", f.Path)
		}
	}
	for _, path := range r.GoneFiles {
		if !isPlace(path) {
			return bad("file", path)
		}
	}
	return nil
}

// isPlace reports whether a follower may have a file of a path. The folders of repositories and its own are not among
// them.
func isPlace(path string) bool {
	top, _, _ := strings.Cut(path, "/")
	return filepath.IsLocal(path) && path == filepath.ToSlash(filepath.Clean(path)) && !strings.HasPrefix(top, ".") &&
		top != "repos" && top != Folder && top != configName && !strings.HasPrefix(top, "ramus.")
}

// configName is the configuration in a data folder. A follower has its own.
const configName = "ramus.yaml"

// Times of rounds.
const (
	// Tick is the longest time between two rounds of a follower that is connected.
	Tick = time.Second
	// goneAfter is the time after which a follower that has not asked again does not count as connected.
	goneAfter = 10 * time.Second
)
