package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// servePeer runs `ramus-bench peer KIND FOLDER`, a server to compare with ramus. It serves until its standard input ends, so that
// no peer outlives the bench. The kinds are
//
//	cgi     git http-backend below net/http/cgi, as git ships it
//	spawn   a git child for each request, like most forges
//	static  files, by sendfile, which is as fast as HTTP gets
func servePeer(kind string, args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("cannot serve %s: one folder is wanted", kind)
	}
	root, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	var h http.Handler
	switch kind {
	case "cgi":
		path, err := exec.Command("git", "--exec-path").Output()
		if err != nil {
			return fmt.Errorf("cannot find git's programs: %w", err)
		}
		h = &cgi.Handler{
			Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
			Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=bench",
				"GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent"},
			Stderr: io.Discard,
		}
	case "spawn":
		h = spawn(root)
	case "static":
		h = http.FileServer(http.Dir(root))
	default:
		return fmt.Errorf("there is no peer %q", kind)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "serving http://%s\n", l.Addr())
	go func() {
		io.Copy(io.Discard, in)
		l.Close()
	}()
	http.Serve(l, h) // ends with the listener
	return nil
}

// spawn serves git's smart HTTP with one child per request.
func spawn(root string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repo, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), ".git/")
		dir := filepath.Join(root, filepath.Base(repo)+".git")
		service := strings.TrimPrefix(r.URL.Query().Get("service"), "git-")
		args := []string{"--stateless-rpc", "--advertise-refs", dir}
		if rest != "info/refs" {
			service, args = strings.TrimPrefix(rest, "git-"), []string{"--stateless-rpc", dir}
		}
		if service != "upload-pack" && service != "receive-pack" {
			http.NotFound(w, r)
			return
		}
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		cmd := exec.CommandContext(r.Context(), "git", append([]string{service}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_PROTOCOL="+r.Header.Get("Git-Protocol"))
		cmd.Stdout = w
		if rest == "info/refs" {
			w.Header().Set("Content-Type", "application/x-git-"+service+"-advertisement")
			if r.Header.Get("Git-Protocol") != "version=2" || service == "receive-pack" {
				fmt.Fprintf(w, "%04x# service=git-%s\n0000", len(service)+19, service)
			}
		} else {
			w.Header().Set("Content-Type", "application/x-git-"+service+"-result")
			cmd.Stdin = body
		}
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil && r.Context().Err() == nil {
			fmt.Fprintf(os.Stderr, "git %s: %v: %s\n", service, err, said.Bytes())
			panic(http.ErrAbortHandler)
		}
	})
}
