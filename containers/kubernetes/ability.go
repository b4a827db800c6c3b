package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/kubernetes/way"
	"github.com/ramus-dev/ramus/containers/layer"
)

// Volumes returns the folders of every container that are volumes of its pod. They are on the disk of a node. See
// [containers.Volumes].
func (e *Engine) Volumes(context.Context) (inside []string, storage string) {
	return []string{containers.WorkDir, containers.ArtifactsDir, containers.CacheDir}, ""
}

// Usage has the first container of a pod measure folders. It sees the volumes at the same paths. See
// [containers.Usages].
func (e *Engine) Usage(ctx context.Context, id string, inside []string, most int64) (layer.Usage, error) {
	args := append([]string{way.Program, "way", "usage", strconv.FormatInt(max(most, 1), 10)}, inside...)
	out, err := e.perform(ctx, id, wayName, nil, maxReport, args...)
	var sum layer.Usage
	if err == nil {
		err = json.Unmarshal(out, &sum)
	}
	if err != nil {
		return layer.Usage{}, fmt.Errorf("cannot measure the disk space of container %s: %w", id, err)
	}
	return sum, nil
}

// SetNames writes the names into the hosts file that the containers of the pod share. See [containers.Names].
func (e *Engine) SetNames(ctx context.Context, id string, names map[string]netip.Addr) error {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(&b, "%s\t%s\n", names[name], name)
	}
	if _, err := e.perform(ctx, id, wayName, b.Bytes(), maxReport, way.Program, "way", "names"); err != nil {
		return fmt.Errorf("kubernetes: cannot name addresses in container %s: %w", id, err)
	}
	return nil
}

// ImageProgram returns an error that is [containers.ErrLacks], because only a node reads images. See
// [containers.Images].
func (e *Engine) ImageProgram(_ context.Context, image string) (containers.ImageProgram, error) {
	return containers.ImageProgram{}, fmt.Errorf("kubernetes: cannot read the program of image %s: %w", image,
		containers.ErrLacks)
}

// describeImage returns the name of an image with the digest in its id. The id is the name with the digest, or the
// digest alone for an image without a registry.
func describeImage(name, id string) string {
	if strings.Contains(name, "@") {
		return name
	}
	digest := id
	if _, after, ok := strings.Cut(id, "@"); ok {
		digest = after
	}
	if !strings.HasPrefix(digest, "sha256:") {
		return name
	}
	return name + "@" + digest
}
