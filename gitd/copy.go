package gitd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/refview"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// A copy of a repository has two parts. The refs and the small files are read at one moment. The objects follow later,
// because an object that a ref has reached stays until [Repo.Prune].

// RepoState is the state of a repository at one moment, without its objects.
type RepoState struct {
	Repo *Repo
	Refs []Ref // sorted by name
	// Files are the small files of the repository by name, among them HEAD and config.
	Files map[string][]byte
}

const (
	// freezeTries bounds how often Freeze reads the refs again because a git received a push meanwhile.
	freezeTries = 200
	// copiedMax bounds a small file of a repository.
	copiedMax = 8 << 20
)

// copiedFiles are the small files of a repository that a copy needs.
var copiedFiles = []string{"HEAD", "config", "description", "shallow", "info/attributes", "info/exclude",
	"info/grafts", markName}

// Freeze returns the states of all repositories at one moment, sorted by name. It calls also at the same moment, for
// other files that have to fit to the refs. Meanwhile this server's own changes of refs wait. A git that receives a push
// does not wait. If it changes a ref meanwhile, Freeze begins again and calls also again. Returns [ErrConflict] if that
// happens too often.
func (s *Server) Freeze(ctx context.Context, also func() error) ([]RepoState, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	states, err := s.states(ctx)
	for try := 0; err == nil && try < freezeTries; try++ {
		if err := also(); err != nil {
			return nil, err
		}
		again, err := s.states(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot read the state of the repositories: %w", err)
		}
		if slices.EqualFunc(states, again, RepoState.sameRefs) {
			return states, nil
		}
		states = again
	}
	if err == nil {
		err = fmt.Errorf("pushes changed refs %d times meanwhile: %w", freezeTries, ErrConflict)
	}
	return nil, fmt.Errorf("cannot read the state of the repositories: %w", err)
}

// Copy makes the folder dir a bare repository in the present state of the repository. It returns the refs, which had names for
// the next copy into the same folder, see [RepoState.CopyTo].
func (r *Repo) Copy(ctx context.Context, dir string, had []Ref) ([]Ref, error) {
	states, err := r.server.Freeze(ctx, func() error { return nil })
	if err != nil {
		return nil, err
	}
	for _, st := range states {
		if st.Repo == r {
			return st.Refs, st.CopyTo(ctx, dir, had)
		}
	}
	return nil, fmt.Errorf("cannot copy the repository %s: %w", r.name, ErrNoRepository)
}

func (a RepoState) sameRefs(b RepoState) bool {
	return a.Repo == b.Repo && slices.Equal(a.Refs, b.Refs) && string(a.Files["HEAD"]) == string(b.Files["HEAD"])
}

func (s *Server) states(ctx context.Context) ([]RepoState, error) {
	repos, err := s.Repos(ctx)
	if err != nil {
		return nil, err
	}
	var states []RepoState
	for _, r := range repos {
		st := RepoState{Repo: r, Files: make(map[string][]byte)}
		if st.Refs, err = r.allRefs(ctx); err != nil {
			return nil, fmt.Errorf("refs of %s: %w", r.name, err)
		}
		for _, name := range copiedFiles {
			b, err := readBounded(filepath.Join(r.dir, name), copiedMax)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, fmt.Errorf("repository %s: %w", r.name, err)
			}
			st.Files[name] = b
		}
		states = append(states, st)
	}
	return states, nil
}

// allRefs lists all refs, from memory if they are there.
func (r *Repo) allRefs(ctx context.Context) ([]Ref, error) {
	if err := r.view.Refresh(ctx); errors.Is(err, refview.ErrNative) {
		return r.listRefs(ctx, "refs")
	} else if err != nil {
		return nil, err
	}
	var refs []Ref
	r.view.Each(Grant{}, []string{"refs/"}, func(ref *refview.Ref) {
		refs = append(refs, Ref{Name: strings.Clone(ref.Name), Hash: Hash(strings.Clone(string(ref.Hash)))})
	})
	return refs, nil
}

// CopyTo makes the folder dir a bare repository in the state of st. Everything that the refs of had reach is in the packs
// of dir already, or had is empty. Refs of had whose objects the repository has no longer do not count. dir is durable
// only after a sync of its file system.
func (st RepoState) CopyTo(ctx context.Context, dir string, had []Ref) error {
	if err := st.copyTo(ctx, dir, had); err != nil {
		return fmt.Errorf("cannot copy the repository %s: %w", st.Repo.name, gitcmd.ExplainFullDisk(err, dir))
	}
	return nil
}

func (st RepoState) copyTo(ctx context.Context, dir string, had []Ref) error {
	for _, name := range []string{"refs", "info", pack.Folder} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(name)), 0o755); err != nil {
			return err
		}
	}
	for name, b := range st.Files {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), b, 0o644); err != nil {
			return err
		}
	}
	if refview.HasReftable(st.Repo.dir) { // the copy has its refs in a file
		if err := st.unsetStorage(ctx, dir); err != nil {
			return err
		}
	}
	var packed strings.Builder
	packed.WriteString("# pack-refs with: sorted \n")
	for _, ref := range st.Refs {
		fmt.Fprintf(&packed, "%s %s\n", ref.Hash, ref.Name)
	}
	if err := os.WriteFile(filepath.Join(dir, "packed-refs"), []byte(packed.String()), 0o644); err != nil {
		return err
	}
	return st.copyObjects(ctx, dir, had)
}

// unsetStorage removes the key from the copy's configuration that names another storage of refs.
func (st RepoState) unsetStorage(ctx context.Context, dir string) error {
	return st.Repo.server.git.Run(ctx, gitcmd.Command{
		Args: []string{"config", "--file", filepath.Join(dir, "config"), "--unset-all", "extensions.refstorage"},
	})
}

// copyObjects writes one pack with the objects that are not in dir yet.
func (st RepoState) copyObjects(ctx context.Context, dir string, had []Ref) error {
	r := st.Repo
	old := make(map[Hash]bool, len(had))
	for _, ref := range had {
		old[ref.Hash] = true
	}
	var revs strings.Builder
	wanted := make(map[Hash]bool)
	for _, ref := range st.Refs {
		if !old[ref.Hash] && !wanted[ref.Hash] {
			wanted[ref.Hash] = true
			revs.WriteString(string(ref.Hash) + "\n")
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	for h := range old {
		_, err := r.objects.Kind(ctx, h)
		if errors.Is(err, object.ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		revs.WriteString("^" + string(h) + "\n")
	}
	done, err := takeTurn(ctx, r.maintaining) // no packs are removed meanwhile
	if err != nil {
		return err
	}
	defer done()
	return r.pipePack(ctx, dir, revs.String())
}

// pipePack packs objects for another repository, which checks each of them.
func (r *Repo) pipePack(ctx context.Context, dir, revs string) error {
	from, to, err := os.Pipe()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	packed := make(chan error, 1)
	go func() {
		err := r.server.git.Run(ctx, gitcmd.Command{
			Repo: r.dir, Args: []string{"pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"},
			Config: []string{"pack.threads=1"}, In: strings.NewReader(revs), Out: to,
		})
		packed <- errors.Join(err, to.Close())
	}()
	err = r.server.git.Run(ctx, gitcmd.Command{
		Repo: dir, Args: []string{"index-pack", "--stdin"}, Config: []string{"pack.threads=1"}, In: from,
	})
	from.Close() // ends a packer whose output nobody reads
	if perr := <-packed; perr != nil {
		return perr // the reason of a pack that ends early
	}
	return err
}

// readBounded reads a file of at most a number of bytes.
func readBounded(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > most {
		return nil, fmt.Errorf("%s has more than %d bytes: %w", filepath.Base(path), most, ErrTooLarge)
	}
	return os.ReadFile(path)
}
