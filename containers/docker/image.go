package docker

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/ramus-dev/ramus/containers"
)

// ImageProgram returns the program of an image. See [containers.Images].
func (e *Engine) ImageProgram(ctx context.Context, image string) (containers.ImageProgram, error) {
	found, err := e.findImage(ctx, image)
	if err != nil {
		return containers.ImageProgram{}, fmt.Errorf("docker: %w", err)
	}
	if found.Config == nil {
		return containers.ImageProgram{}, nil
	}
	return containers.ImageProgram{Entry: found.Config.Entrypoint, Args: found.Config.Cmd}, nil
}

// SetNames writes the names into the hosts file of a container. See [containers.Names].
func (e *Engine) SetNames(ctx context.Context, id string, names map[string]netip.Addr) error {
	id, err := e.running(ctx, id)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	dir, err := e.socketDir(ctx, id)
	if err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	if err := containers.WriteNames(filepath.Join(filepath.Dir(dir), hostsName), names); err != nil {
		return fmt.Errorf("docker: %w", err)
	}
	return nil
}
