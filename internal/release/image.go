package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// packages are the Debian packages of this machine that the image has files of.
var packages = []string{"git", "openssh-client", "bubblewrap", "ca-certificates", "dash", "libc-bin"}

// needless are parts of packages that no program opens.
var needless = []string{"/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/lintian",
	"/usr/share/bash-completion", "/usr/share/bug", "/usr/share/perl5"}

// made is the time of all files, so that equal content makes equal layers.
var made = time.Unix(1767225600, 0)

// writeImage writes an image as a tarball, both as an OCI layout and as docker load has read it since its beginning.
func writeImage(binary, runner, arch, version, file string) error {
	paths, err := machineFiles()
	if err != nil {
		return err
	}
	var system, program bytes.Buffer
	if err := writeSystem(&system, paths); err != nil {
		return err
	}
	if err := writeProgram(&program, binary, runner); err != nil {
		return err
	}
	im := &image{blobs: make(map[string][]byte)}
	layers := []string{im.add(system.Bytes()), im.add(program.Bytes())}
	var diffs []string
	var descriptors []map[string]any
	for _, l := range layers {
		diffs = append(diffs, "sha256:"+l)
		descriptors = append(descriptors, im.descriptor("application/vnd.oci.image.layer.v1.tar", l))
	}
	config := im.addJSON(map[string]any{
		"architecture": arch, "os": "linux", "created": made.UTC().Format(time.RFC3339),
		"config": map[string]any{"Entrypoint": []string{"/usr/bin/ramus"}, "Cmd": []string{"serve"}, "WorkingDir": "/",
			"Env": []string{"PATH=/usr/bin", "HOME=/root", "RAMUS_DATA=/var/lib/ramus",
				"RAMUS_LISTEN=0.0.0.0:8080"},
			"ExposedPorts": map[string]any{"8080/tcp": struct{}{}}, "Volumes": map[string]any{"/var/lib/ramus": struct{}{}}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
	manifest := im.addJSON(map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": im.descriptor("application/vnd.oci.image.config.v1+json", config), "layers": descriptors})
	top := im.descriptor("application/vnd.oci.image.manifest.v1+json", manifest)
	top["annotations"] = map[string]string{"io.containerd.image.name": "docker.io/ramus/server:latest",
		"org.opencontainers.image.ref.name": "latest",
		"org.opencontainers.image.version":  version}
	top["platform"] = map[string]string{"os": "linux", "architecture": arch}
	files := map[string]any{
		"oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"},
		"index.json": map[string]any{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
			"manifests": []any{top}},
		"manifest.json": []any{map[string]any{"Config": blobName(config), "RepoTags": []string{"ramus/server:latest"},
			"Layers": []string{blobName(layers[0]), blobName(layers[1])}}},
	}
	return im.write(file, files)
}

// image has the blobs of an image by their SHA-256.
type image struct{ blobs map[string][]byte }

func (im *image) add(b []byte) string {
	sum := sha256.Sum256(b)
	name := hex.EncodeToString(sum[:])
	im.blobs[name] = b
	return name
}

func (im *image) addJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and strings only
	}
	return im.add(b)
}

func (im *image) descriptor(media, sum string) map[string]any {
	return map[string]any{"mediaType": media, "digest": "sha256:" + sum, "size": len(im.blobs[sum])}
}

func blobName(sum string) string { return "blobs/sha256/" + sum }

func (im *image) write(file string, files map[string]any) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	for _, name := range []string{"oci-layout", "index.json", "manifest.json"} {
		b, err := json.Marshal(files[name])
		if err == nil {
			err = addFile(w, name, 0o644, b)
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
	}
	sums := make([]string, 0, len(im.blobs))
	for sum := range im.blobs {
		sums = append(sums, sum)
	}
	slices.Sort(sums)
	for _, sum := range sums {
		if err := addFile(w, blobName(sum), 0o644, im.blobs[sum]); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(w.Close(), f.Close())
}

func addFile(w *tar.Writer, name string, mode int64, b []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(b)), ModTime: made, Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

// machineFiles returns the files of the packages and the libraries that their programs need, below /usr.
func machineFiles() ([]string, error) {
	set := make(map[string]bool)
	for _, p := range packages {
		out, err := exec.Command("dpkg", "-L", p).Output()
		if err != nil {
			return nil, fmt.Errorf("cannot list the files of the package %s: %w", p, err)
		}
		for _, path := range strings.Fields(string(out)) {
			path = merged(path)
			info, err := os.Lstat(path)
			if err != nil || info.IsDir() || !strings.HasPrefix(path, "/usr/") ||
				slices.ContainsFunc(needless, func(n string) bool { return strings.HasPrefix(path, n) }) {
				continue
			}
			set[path] = true
		}
	}
	for path := range set {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			out, _ := exec.Command("ldd", path).Output() // scripts and static programs need nothing
			for _, word := range strings.Fields(string(out)) {
				if strings.HasPrefix(word, "/") {
					set[merged(word)] = true
				}
			}
		}
	}
	for path := range set { // libraries are links to their versions
		if to, err := filepath.EvalSymlinks(path); err == nil && strings.HasPrefix(to, "/usr/") {
			set[to] = true
		}
	}
	var list []string
	for path := range set {
		list = append(list, path)
	}
	slices.Sort(list)
	return list, nil
}

// merged returns the path of a file in a system whose /bin and /lib are links into /usr.
func merged(path string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(path, dir) {
			return "/usr" + path
		}
	}
	return path
}

// writeSystem writes the layer with the files of the machine.
func writeSystem(out io.Writer, paths []string) error {
	w := tar.NewWriter(out)
	for _, dir := range []string{"dev", "etc", "etc/ssl", "etc/ssl/certs", "proc", "root", "run", "sys", "tmp", "usr",
		"var", "var/lib", "var/lib/ramus"} {
		mode := int64(0o755)
		if dir == "tmp" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Mode: mode, ModTime: made, Typeflag: tar.TypeDir}); err != nil {
			return err
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := w.WriteHeader(&tar.Header{Name: link, Linkname: "usr/" + link, Mode: 0o777, ModTime: made,
			Typeflag: tar.TypeSymlink}); err != nil {
			return err
		}
	}
	certs, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	if err != nil {
		return fmt.Errorf("cannot read the certificates: %w", err)
	}
	for _, f := range []struct{ name, text string }{
		{"etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
		{"etc/group", "root:x:0:\nnogroup:x:65534:\n"},
		{"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"},
		{"etc/ssl/certs/ca-certificates.crt", string(certs)},
	} {
		if err := addFile(w, f.name, 0o644, []byte(f.text)); err != nil {
			return err
		}
	}
	first := make(map[uint64]string) // git has one file under many names
	for _, path := range paths {
		if err := addMachineFile(w, path, first); err != nil {
			return err
		}
	}
	return w.Close()
}

func addMachineFile(w *tar.Writer, path string, first map[uint64]string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(path, "/")
	if info.Mode()&os.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Name: name, Linkname: to, Mode: 0o777, ModTime: made, Typeflag: tar.TypeSymlink})
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		if other, known := first[st.Ino]; known {
			return w.WriteHeader(&tar.Header{Name: name, Linkname: other, Mode: int64(info.Mode().Perm()),
				ModTime: made, Typeflag: tar.TypeLink})
		}
		first[st.Ino] = name
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return addFile(w, name, int64(info.Mode().Perm()), b)
}

// writeProgram writes the layer with ramus, and with ramus-runner, which pods of Kubernetes start.
func writeProgram(out io.Writer, binary, runner string) error {
	w := tar.NewWriter(out)
	for _, f := range []struct{ name, from string }{{"usr/bin/ramus", binary}, {"ramus-runner", runner}} {
		b, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		if err := addFile(w, f.name, 0o755, b); err != nil {
			return err
		}
	}
	return w.Close()
}
