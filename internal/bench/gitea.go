package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/internal/giteaserver"
)

// nobody is the user as which Gitea runs if the bench runs as root. Gitea changes git's global configuration wherever
// that is, and must not reach anything outside its own folder.
const nobody = 65534

// startGitea serves a copy of r by Gitea. Its API makes the repository, which then gets our bytes. Clients sign in with
// a token, because each check of a password takes 100 ms.
func (b *bench) startGitea(ctx context.Context, program string, r *repository) (*gitServer, error) {
	p, err := giteaserver.At(program)
	if err != nil {
		return nil, err
	}
	p.Static = cmp.Or(os.Getenv("BENCH_GITEA_STATIC"), p.Static)
	if os.Geteuid() == 0 {
		p.User = nobody
	}
	home, err := os.MkdirTemp(b.dir, "gitea-")
	if err != nil {
		return nil, err
	}
	b.onExit(func(context.Context) error { return os.RemoveAll(home) })
	if err := own(home, p.User); err != nil {
		return nil, err
	}
	g, web, err := giteaserver.Prepare(p, home)
	if err != nil {
		return nil, err
	}
	s, err := b.startCommand(ctx, sideGitea, web, nil)
	if err != nil {
		return nil, err
	}
	s.url = g.URL
	if err := g.Await(ctx, s.ended); err != nil {
		return nil, err
	}
	err = g.Do(ctx, g.Token, http.MethodPost, "/user/repos",
		map[string]any{"name": r.name, "default_branch": "main", "auto_init": false}, nil)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(home, "repos", g.Admin, r.name+".git")
	// Its hooks stay, because they belong to Gitea. All other files are replaced.
	for _, name := range []string{"objects", "refs", "packed-refs", "HEAD"} {
		to := filepath.Join(dir, name)
		if err := os.RemoveAll(to); err != nil {
			return nil, err
		}
		if err := copyPath(filepath.Join(r.dir, name), to); err != nil {
			return nil, err
		}
	}
	if err := own(home, p.User); err != nil {
		return nil, err
	}
	return &gitServer{server: s, repo: s.url + "/" + g.Admin + "/" + r.name + ".git", user: g.Admin + ":" + g.Token,
		dir: dir}, nil
}

// own gives all files below dir to a user. Zero means that they stay as they are.
func own(dir string, user int) error {
	if user == 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return joined(err, os.Lchown(path, user, user))
	})
}

func copyPath(from, to string) error {
	info, err := os.Stat(from)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
