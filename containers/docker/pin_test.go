package docker

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// TestPin resolves a name once, and again at a refresh.
func TestPin(t *testing.T) {
	image := func(id string, from ...string) http.HandlerFunc {
		return body(map[string]any{"Id": id, "Os": "linux", "RepoDigests": from})
	}
	missing := status(404, "No such image")
	e, f := fakeEngine(t, "1.41", map[string]http.HandlerFunc{
		"GET /images/a:1/json": inTurn(image("sha256:1", "a@sha256:x"), image("sha256:1", "a@sha256:x"),
			image("sha256:2", "a@sha256:y")),
		"GET /images/sha256:1/json":        image("sha256:1", "a@sha256:x"),
		"GET /images/sha256:2/json":        inTurn(image("sha256:2", "a@sha256:y"), missing),
		"GET /images/built:1/json":         inTurn(image("sha256:3"), image("sha256:4")),
		"GET /images/sha256:4/json":        image("sha256:4"),
		"GET /images/new:1/json":           inTurn(missing, missing, image("sha256:5", "new@sha256:z")),
		"GET /images/sha256:5/json":        image("sha256:5", "new@sha256:z"),
		"GET /images/ramus/task:none/json": missing,
		"GET /images/gone:1/json":          missing,
		"POST /images/create": inTurn(body(map[string]any{"status": "Pulling"}),
			body(map[string]any{"errorDetail": map[string]string{"message": "denied"}, "error": "denied"}),
			body(map[string]any{"status": "done"})),
		"GET /images/pinned@sha256:1/json": missing,
	})
	e.Pin = true
	ask := func(name, want string) {
		t.Helper()
		n := len(f.asked())
		_, err := e.ImageProgram(t.Context(), name)
		if got := f.asked()[n]; got != "GET /images/"+want+"/json" {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	ask("a:1", "a:1")
	ask("a:1", "sha256:1")
	ask("built:1", "built:1")
	if _, err := e.ImageProgram(t.Context(), "new:1"); err == nil || !strings.Contains(err.Error(), "image_refresh") {
		t.Errorf("a missing image: %v", err)
	}
	// a:1 and new:1 are pulled. Images that were built here, missing images of this project, and images by digest are not.
	n := len(f.asked())
	err := e.Refresh(t.Context(), []string{"ramus/task:none", "pinned@sha256:1", "gone:1"})
	if err == nil || !strings.Contains(err.Error(), "gone:1: ") || strings.Contains(err.Error(), "new:1") {
		t.Errorf("%v", err)
	}
	pulls := slices.DeleteFunc(f.asked()[n:], func(call string) bool { return !strings.HasPrefix(call, "POST") })
	if len(pulls) != 3 || !strings.Contains(pulls[0], "a&tag=1") || !strings.Contains(pulls[1], "gone&tag=1") ||
		!strings.Contains(pulls[2], "new&tag=1") {
		t.Errorf("pulled: %q", pulls)
	}
	ask("a:1", "sha256:2")
	ask("built:1", "sha256:4")
	ask("new:1", "sha256:5")
	ask("a:1", "sha256:2") // it was removed, so that the name is asked for
	if got := f.asked(); got[len(got)-1] != "GET /images/a:1/json" {
		t.Errorf("a removed image: %q", got[len(got)-1])
	}
}

// imageRegistry is a registry of images with one repository. The tag "1" is the image of the last push.
type imageRegistry struct {
	*httptest.Server
	mu    sync.Mutex // guards all below
	blobs map[string][]byte
	tag   string // digest of its manifest
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

const manifestType = "application/vnd.docker.distribution.manifest.v2+json"

// push makes an image with one file.
func (r *imageRegistry) push(t *testing.T, text string) {
	t.Helper()
	var plain, packed bytes.Buffer
	w := tar.NewWriter(&plain)
	err := w.WriteHeader(&tar.Header{Name: "file", Mode: 0o644, Size: int64(len(text))})
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	z := gzip.NewWriter(&packed)
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		_, err = z.Write(plain.Bytes())
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	config := encode(map[string]any{"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Cmd": []string{"/file"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(plain.Bytes())}}})
	part := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": kind, "size": len(b), "digest": digestOf(b)}
	}
	manifest := encode(map[string]any{"schemaVersion": 2, "mediaType": manifestType,
		"config": part("application/vnd.docker.container.image.v1+json", config),
		"layers": []any{part("application/vnd.docker.image.rootfs.diff.tar.gzip", packed.Bytes())}})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range [][]byte{config, packed.Bytes(), manifest} {
		r.blobs[digestOf(b)] = b
	}
	r.tag = digestOf(manifest)
}

func (r *imageRegistry) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	kind, name := path.Split(strings.TrimPrefix(q.URL.Path, "/v2/"))
	switch kind {
	case "":
		return
	case "app/manifests/":
		if name == "1" {
			name = r.tag
		}
		w.Header().Set("Content-Type", manifestType)
	case "app/blobs/":
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	b, ok := r.blobs[name]
	if !ok {
		http.NotFound(w, q)
		return
	}
	w.Header().Set("Docker-Content-Digest", name)
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	if q.Method == http.MethodGet {
		_, _ = w.Write(b)
	}
}

// TestRefreshFromRegistry has a real engine pull an image that changes in its registry.
func TestRefreshFromRegistry(t *testing.T) {
	e := &Engine{Pin: true}
	t.Cleanup(func() { _ = e.Close() })
	if _, err := e.machine(t.Context()); err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	r := &imageRegistry{blobs: map[string][]byte{}}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve)) // engines speak HTTP to loopback
	t.Cleanup(r.Close)
	name := strings.TrimPrefix(r.URL, "http://") + "/app:1"
	var ids []string
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, id := range append(ids, name) {
			_ = e.ask(ctx, shortWait, "remove an image", func(ctx context.Context, api *client.Client) error {
				_, err := api.ImageRemove(ctx, id, client.ImageRemoveOptions{Force: true})
				return err
			})
		}
	})
	find := func() string {
		t.Helper()
		found, err := e.findImage(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, found.ID)
		return digested(name, found)
	}
	r.push(t, "one")
	if err := e.Refresh(t.Context(), []string{name}); err != nil {
		t.Fatal(err)
	}
	first := find()
	if !strings.HasSuffix(first, "@"+r.tag) {
		t.Errorf("the image is %s, the registry has %s", first, r.tag)
	}
	// Another process pulls a newer one. The name means the first until the next refresh.
	r.push(t, "two")
	other := &Engine{}
	t.Cleanup(func() { _ = other.Close() })
	if err := other.pull(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if got := find(); got != first && !strings.Contains(got, ids[0]) {
		t.Errorf("the image is %s before the refresh, was %s", got, first)
	}
	if err := e.Refresh(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := find(); !strings.HasSuffix(got, "@"+r.tag) {
		t.Errorf("the image is %s after the refresh, the registry has %s", got, r.tag)
	}
	r.Close()
	if err := e.Refresh(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "cannot pull") {
		t.Errorf("without its registry: %v", err)
	}
	if got := find(); !strings.HasSuffix(got, "@"+r.tag) {
		t.Errorf("without its registry the image is %s", got)
	}
}
