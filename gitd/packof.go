package gitd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/history"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// PackOf packs the objects that the commits want reach and the commits have do not. It returns nil if there
// are none. The pack may hold an object that a commit of have reaches by another path only.
func (r *Repo) PackOf(ctx context.Context, want, have []Hash) (*pack.Pack, error) {
	p, err := r.packOf(ctx, want, have)
	if err != nil {
		return nil, fmt.Errorf("cannot pack the objects of %d commits in %s: %w", len(want), r.name,
			gitcmd.ExplainFullDisk(err, r.dir))
	}
	return p, nil
}

func (r *Repo) packOf(ctx context.Context, want, have []Hash) (*pack.Pack, error) {
	for _, h := range slices.Concat(want, have) {
		if kind, err := r.objects.Kind(ctx, h); err != nil {
			return nil, err
		} else if kind != "commit" {
			return nil, fmt.Errorf("object %s is a %s, not a commit: %w", h, kind, ErrInvalid)
		}
	}
	if len(want) == 0 {
		return nil, nil
	}

	if history.IsComplete(r.dir, want[0]) {
		p, err := r.packSection(ctx, want, have)
		switch {
		case err == nil:
			return p, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, history.ErrLarge):
			return nil, err
		}
	}
	return r.nativePack(ctx, want, have)
}

// nativePack is PackOf by native git.
func (r *Repo) nativePack(ctx context.Context, want, have []Hash) (_ *pack.Pack, err error) {
	var revs strings.Builder
	for _, h := range want {
		revs.WriteString(string(h) + "\n")
	}
	for _, h := range have {
		revs.WriteString("^" + string(h) + "\n")
	}
	packer := pack.NativePacker{Scratch: r.server.scratchFolder(), Run: r.runLimited}
	dir, err := packer.Pack(ctx, gitcmd.Command{Args: []string{"--revs"}, In: strings.NewReader(revs.String())})
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := pack.OpenNative(dir)
	if err != nil || p.Objects > 0 {
		return p, err
	}
	return nil, p.Close()
}

// packSection is PackOf in process. Returns [history.ErrLarge] if git should make the pack.
func (r *Repo) packSection(ctx context.Context, want, have []Hash) (*pack.Pack, error) {
	commits, err := history.Between(ctx, &r.objects, want, have, history.MaxCommits)
	if err != nil {
		return nil, err
	}
	c := history.Collector{Objects: &r.objects}
	if err := c.CollectRange(ctx, commits); err != nil || c.Section.Len() == 0 {
		return nil, err
	}
	return c.Section.WritePack(r.dir)
}

// runLimited runs git on the repository within the limits of a child that a client asked for.
func (r *Repo) runLimited(ctx context.Context, c gitcmd.Command) error {
	limits := r.server.limits
	ctx, stop := context.WithTimeoutCause(ctx, limits.Time, errChildTime)
	defer stop()
	c.Repo, c.CPU, c.Memory = r.dir, limits.CPU, limits.Memory
	return r.server.git.Run(ctx, c)
}

// scratchFolder returns the folder for files that are not part of a repository yet.
func (s *Server) scratchFolder() string { return filepath.Join(s.Root, newFolder) }

// makeScratch makes the scratch folder.
func (s *Server) makeScratch() (string, error) {
	dir := s.scratchFolder()
	return dir, os.MkdirAll(dir, 0o755)
}
