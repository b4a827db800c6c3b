package deps

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/worktree"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

// Dependencies of some ecosystems are not only fetched but installed, into a folder next to the lock file. For a base
// they are installed once, in a container that nobody uses, without a network and without scripts of dependencies. What
// that leaves in folders called node_modules is a layer. The work tree of a new caller whose lock files are the same is
// over this layer, so its first command finds them.

// Bounds of an installation.
const (
	sourceFiles = 200_000
	sourceBytes = 1 << 30
	ignoreBytes = 1 << 20
)

// installedFolder is the name of the folders that an installed layer has. worktree checks that it has no others.
const installedFolder = worktree.InstalledFolder

// installLayer is the ecosystem of a layer of installed dependencies.
func (l locked) installLayer() string { return l.name + worktree.InstalledSuffix }

// Install is a command that installs the dependencies of one lock file.
type Install struct {
	Shell string
	Dir   string   // of the lock file, below the work tree
	Env   []string // "K=V"
}

// installable returns the dependencies of a commit that can be installed for all callers: their tarball is in the cache,
// and the commit ignores the folders that they are installed in.
func (c *Cache) installable(ctx context.Context, repo *gitd.Repo, commit gitd.Hash, list []locked) ([]locked, error) {
	list = slices.DeleteFunc(slices.Clone(list), func(l locked) bool { return len(l.install) == 0 })
	if len(list) == 0 {
		return nil, nil
	}
	ignored, err := ignoresInstalled(ctx, repo, commit)
	if err != nil || !ignored {
		return nil, err
	}
	return list, nil
}

// ignoresInstalled reports whether the commit's .gitignore names the folders of installed dependencies.
func ignoresInstalled(ctx context.Context, repo *gitd.Repo, commit gitd.Hash) (bool, error) {
	text, err := repo.ReadFile(ctx, string(commit), ".gitignore", ignoreBytes)
	if errors.Is(err, gitd.ErrNotFound) || errors.Is(err, gitd.ErrInvalid) || errors.Is(err, gitd.ErrTooLarge) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ignored := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch strings.Trim(strings.TrimPrefix(line, "**/"), "/") {
		case installedFolder:
			ignored = !strings.HasPrefix(line, "/") // only the topmost folder
		case "!" + installedFolder:
			ignored = false
		}
	}
	return ignored, nil
}

// wishInstalled has the layers of installed dependencies of a base's commit made in the background.
func (c *Cache) wishInstalled(ctx context.Context, repo *gitd.Repo, commit gitd.Hash, there []locked) {
	list, err := c.installable(ctx, repo, commit, there)
	if err != nil {
		c.Log.Warn("the dependencies of a base are not installed", "repo", repo.Name(), "commit", commit, "err", err)
	}
	for _, l := range list {
		c.Trees.Wish(c.installWish(repo, commit, l))
	}
}

// installWish returns the wish for the layer of installed dependencies.
func (c *Cache) installWish(repo *gitd.Repo, commit gitd.Hash, l locked) worktree.Wish {
	return worktree.Wish{
		Repo:      l.repo,
		Ecosystem: l.installLayer(),
		Locks:     l.hash,
		Target:    containers.WorkDir,
		Fill:      func(ctx context.Context, h *containers.Host) error { return c.installIn(ctx, h, repo, commit, l) },
	}
}

// installIn installs dependencies in a container of nobody, whose work tree is empty.
func (c *Cache) installIn(ctx context.Context, h *containers.Host, repo *gitd.Repo, commit gitd.Hash, l locked) error {
	if err := c.unpack(ctx, h, l); err != nil {
		return err
	}
	tar := containers.Command{ID: worktree.NewScriptID(), Timeout: fetchWithin, Args: []string{"tar", "-C", containers.WorkDir, "-xf", "-"}}
	err := worktree.Untar(ctx, h, tar, func(ctx context.Context, w io.Writer) error { return writeTree(ctx, repo, commit, w) })
	if err != nil {
		return err
	}
	files, err := repo.Lockfiles(ctx, commit)
	if err != nil {
		return err
	}
	for _, name := range l.lockfiles(files) {
		if err := c.command(ctx, h, containers.Command{Args: l.install, Dir: path.Join(containers.WorkDir, path.Dir(name))}); err != nil {
			return err
		}
	}
	return c.command(ctx, h, containers.Command{Dir: containers.WorkDir, Shell: cleanInstalled})
}

// cleanInstalled removes all but the folders of installed dependencies.
const cleanInstalled = `find . -mindepth 1 -name ` + installedFolder + ` -type d -prune -o ! -type d -exec rm -f -- {} + &&
find . -mindepth 1 -depth -type d -empty ! -path '*/` + installedFolder + `/*' -delete`

// command runs a command to its end.
func (c *Cache) command(ctx context.Context, h *containers.Host, command containers.Command) error {
	command.ID, command.Timeout = worktree.NewScriptID(), fetchWithin
	command.Env = []string{"CI=1"}
	p, err := h.Start(ctx, command)
	if err != nil {
		return err
	}
	said := text.Tail{Limit: 2 << 10}
	exit, err := p.Output(&said, &said)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("%s ended with %d: %s", strings.Join(command.Args[:min(2, len(command.Args))], " "), exit.Code,
			strings.Join(strings.Fields(c.Trees.Secrets.String(said.String())), " "))
	}
	return err
}

// writeTree writes the files of a commit as a tarball. Submodules are left out.
func writeTree(ctx context.Context, repo *gitd.Repo, commit gitd.Hash, out io.Writer) error {
	entries, err := repo.Tree(ctx, string(commit), "", true)
	if err != nil {
		return err
	}
	if len(entries) > sourceFiles {
		return fmt.Errorf("%w: the base has more than %d files", ErrCannotFetch, sourceFiles)
	}
	w := tar.NewWriter(out)
	left := int64(sourceBytes)
	for _, e := range entries {
		mode, err := strconv.ParseInt(e.Mode, 8, 64)
		if err != nil || e.Type != "blob" {
			continue
		}
		content, err := repo.Blob(ctx, e.Hash, left)
		if err != nil {
			return err
		}
		left -= int64(len(content))
		h := &tar.Header{Name: "./" + e.Path, Mode: mode & 0o777, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if e.Mode == "120000" {
			h.Typeflag, h.Linkname, h.Size, content = tar.TypeSymlink, string(content), 0, nil
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}

// Installed returns the layers of installed dependencies that fit a commit, for work trees of a user. A layer fits if it was made
// of the same lock files.
func (c *Cache) Installed(ctx context.Context, repo *gitd.Repo, at gitd.Hash, uid int) ([]*worktree.Layer, error) {
	if !c.Trees.HasInstalled(repo.Name()) {
		return nil, nil
	}
	base, err := repo.LatestBase(ctx)
	if errors.Is(err, gitd.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	own, err := lockfilesLike(ctx, repo, base.Base.Lockfiles, at)
	if err != nil {
		return nil, err
	}
	var layers []*worktree.Layer
	for _, e := range ecosystems {
		l := locked{ecosystem: e, repo: repo.Name(), hash: e.lockHash(own)}
		if len(e.install) == 0 || l.hash == "" {
			continue
		}
		if layer := c.Trees.Dependencies(l.repo, l.installLayer(), l.hash, uid); layer != nil {
			layers = append(layers, layer)
		}
	}
	if len(layers) == 0 {
		return nil, nil
	}
	if ignored, err := ignoresInstalled(ctx, repo, at); err != nil || !ignored {
		return nil, err
	}
	return layers, nil
}

// Installs returns the commands that install the dependencies of a commit in a container that found those of some
// ecosystems in its cache. Dependencies that a layer has installed need none, and those of other lock files than the
// cache has get none.
func (c *Cache) Installs(ctx context.Context, repo *gitd.Repo, at gitd.Hash, found, done []string) ([]Install, error) {
	var list []Install
	for _, e := range ecosystems {
		if len(e.install) == 0 || !slices.Contains(found, e.name) || slices.Contains(done, e.name) {
			continue
		}
		files, err := repo.Lockfiles(ctx, at)
		if err != nil {
			return nil, err
		}
		l := locked{ecosystem: e, repo: repo.Name(), hash: e.lockHash(files)}
		if there, err := c.has(ctx, l); err != nil || !there {
			return list, err
		}
		if able, err := c.installable(ctx, repo, at, []locked{l}); err != nil || len(able) == 0 {
			return list, err
		}
		for _, name := range e.lockfiles(files) {
			list = append(list, Install{Shell: strings.Join(e.install, " "), Dir: path.Dir(name), Env: []string{"CI=1"}})
		}
	}
	return list, nil
}
