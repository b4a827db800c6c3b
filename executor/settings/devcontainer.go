package settings

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/tasks/devcontainer"
	"github.com/ramus-dev/ramus/tasks/environment"
)

// Container is the image that files of the base describe, and what its developers want in a container of it.
type Container struct {
	File devcontainer.File
	// Dockerfile means that File is about a Dockerfile alone.
	Dockerfile bool
}

// describe adds the image that files of the base describe. A devcontainer.json at its usual place counts if the file names no image.
func (s *Settings) describe(ctx context.Context, b Bounds, repo *gitd.Repo, commit gitd.Hash, f environment.File) error {
	if s.Dockerfile != "" {
		s.Container = &Container{Dockerfile: true, File: devcontainer.File{
			Path: s.Dockerfile, Build: &devcontainer.Build{Dockerfile: s.Dockerfile, Context: "."}}}
		return nil
	}
	if f.Image != "" || f.Dockerfile != "" || f.Devcontainer != "" && s.Devcontainer == "" || commit == "" {
		return nil
	}
	at := devcontainer.Path
	if f.Devcontainer != "" {
		at = f.Devcontainer
	}
	text, err := repo.ReadFile(ctx, string(commit), at, devcontainer.MaxBytes)
	switch {
	case errors.Is(err, gitd.ErrNotFound) && f.Devcontainer == "", errors.Is(err, gitd.ErrInvalid) && f.Devcontainer == "":
		return nil
	case errors.Is(err, gitd.ErrNotFound), errors.Is(err, gitd.ErrInvalid), errors.Is(err, gitd.ErrTooLarge):
		s.Warnings = append(s.Warnings,
			fmt.Sprintf("%s:1:1: this must be a file of at most %d bytes", at, devcontainer.MaxBytes))
		return nil
	case err != nil:
		return err
	}
	dev, err := devcontainer.Parse(at, text)
	if err != nil {
		s.Warnings = append(s.Warnings, err.Error())
		return nil
	}
	if why := b.refuses(s.Repo, dev); why != "" {
		s.Warnings = append(s.Warnings, at+":1:1: "+why)
		return nil
	}
	if len(dev.Refused) > 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s:1:1: %s: a container keeps its walls, so they are refused", at,
			strings.Join(dev.Refused, ", ")))
	}
	if len(dev.Ignored) > 0 {
		s.Warnings = append(s.Warnings,
			fmt.Sprintf("%s:1:1: %s: they have no effect here", at, strings.Join(dev.Ignored, ", ")))
	}
	s.Container = &Container{File: dev}
	if !dev.Builds() {
		s.Image = dev.Image
	}
	s.Env = s.under(b, dev.Env)
	s.Values = append(s.Values, Value{Key: "container", Value: at, Origin: at + ":1:1"})
	return nil
}

// refuses returns the reason for which the image of a devcontainer.json is not used, or "".
func (b Bounds) refuses(repo string, dev devcontainer.File) string {
	switch {
	case b.Image == "":
		return "it is not used: the engine of this server has no images"
	case dev.Builds() && !b.allow(repo).Build:
		return "its image is not built: the server's `allow.build` does not allow it"
	case !dev.Builds() && !b.AllowsImage(repo, dev.Image):
		return fmt.Sprintf("the image %s is not used: the server's `allow.images` does not list it", dev.Image)
	}
	return ""
}

// under returns the environment with variables of a devcontainer.json below it. The repository's own and the server's stay.
func (s *Settings) under(b Bounds, env []string) []string {
	set := make(map[string]bool)
	for _, list := range [][]string{b.Env, s.Env} {
		for _, kv := range list {
			name, _, _ := strings.Cut(kv, "=")
			set[name] = true
		}
	}
	var all []string
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !set[name] {
			all = append(all, kv)
		}
	}
	return append(all, s.Env...)
}
