package attachment

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pkg/sftp"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/repotest"
)

// newFiles returns the files of a run in a repository. stored are the files that are too large for git.
func newFiles(t *testing.T, stored map[string]string) (Files, *gitd.Repo) {
	git := repotest.NewServer(t)
	repo, err := git.Create(t.Context(), "app")
	if err != nil {
		t.Fatal(err)
	}
	c, err := record.RunCaller("a")
	if err != nil {
		t.Fatal(err)
	}
	return Files{Run: record.Run{ID: "x", Caller: c, Repo: "app"}, Git: git, Output: t.TempDir(),
		Stored: func(_ context.Context, name string) (io.ReadCloser, error) {
			if content, ok := stored[name]; ok {
				return io.NopCloser(strings.NewReader(content)), nil
			}
			return nil, record.ErrNotFound
		}}, repo
}

// give attaches files to a prompt.
func give(t *testing.T, p Files, key string, files ...record.Attachment) record.Prompt {
	t.Helper()
	dir, discard, err := p.Keep(files)
	if err == nil {
		err = p.Place(dir, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	discard() // it removes nothing that has its place
	return record.Prompt{Key: key, Files: WithoutContent(files)}
}

func TestKeep(t *testing.T) {
	p, _ := newFiles(t, nil)
	if dir, discard, err := p.Keep(nil); dir != "" || discard == nil || err != nil {
		t.Errorf("of no files: %q, %v", dir, err)
	}
	dir, discard, err := p.Keep([]record.Attachment{{Name: "a", Content: []byte("1")}})
	if err != nil {
		t.Fatal(err)
	}
	discard()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("discarded files are there: %v", err)
	}
	if _, _, err := p.Keep([]record.Attachment{{Name: "a"}, {Name: "a"}}); err == nil {
		t.Error("two files have one name")
	}
	p.Output = filepath.Join(p.Output, "none")
	if _, discard, err := p.Keep([]record.Attachment{{Name: "a"}}); err == nil || discard == nil {
		t.Errorf("without a folder: %v", err)
	}
}

func TestRead(t *testing.T) {
	p, repo := newFiles(t, map[string]string{"files/" + record.FirstPrompt + "/large": "stored"})
	read := func(of record.Prompt, want ...string) {
		t.Helper()
		list, err := p.Read(t.Context(), of)
		if err != nil || len(list) != len(want) {
			t.Errorf("read %d files, %v", len(list), err)
			return
		}
		for i, f := range list {
			if string(f.Content) != want[i] || f.Name != of.Files[i].Name {
				t.Errorf("%s has %q, want %q", f.Name, f.Content, want[i])
			}
		}
	}
	two := []record.Attachment{{Name: "a", Content: []byte("1")}, {Name: "b", Content: []byte("2")}}
	read(give(t, p, "k1", two...), "1", "2")
	// A crash left the files of a prompt that is said again.
	read(give(t, p, "k1", record.Attachment{Name: "a", Content: []byte("3")}), "3")
	read(give(t, p, "../../../k", two...), "1", "2")
	if outside, err := filepath.Glob(filepath.Join(filepath.Dir(p.Output), "k*")); err != nil || len(outside) > 0 {
		t.Errorf("a key leads to %q, %v", outside, err)
	}

	// Those of the request are in the ref, and large ones elsewhere.
	h, err := repo.WriteCommit(t.Context(), gitd.NewCommit{Author: gitd.Person{Name: "Ada", Email: "ada@example.org"},
		Message: "x",
		Put:     []gitd.File{{Path: Folder + "/" + record.FirstPrompt + "/small", Content: []byte("sealed")}}})
	if err == nil {
		err = repo.Update(t.Context(), gitd.RefUpdate{Name: record.RunRef(p.Run.Caller, p.Run.ID), New: h})
	}
	if err != nil {
		t.Fatal(err)
	}
	first := record.Prompt{Key: record.FirstPrompt, Files: []record.Attachment{{Name: "small"}, {Name: "large"}}}
	read(first, "sealed", "stored")
	first.Files = append(first.Files, record.Attachment{Name: "none"})
	if _, err := p.Read(t.Context(), first); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a file that is none: %v", err)
	}
}

func TestOffer(t *testing.T) {
	p, _ := newFiles(t, nil)
	inside := newContainer(t)
	prompts := []record.Prompt{
		give(t, p, "k1", record.Attachment{Name: "a.txt", Content: []byte("1")}, record.Attachment{Name: "b", Content: []byte("2")}),
		{},
		give(t, p, "k2", record.Attachment{Name: "A.txt", Content: []byte("3")}),
	}
	names, err := p.Offer(t.Context(), inside, prompts)
	if err != nil {
		t.Fatal(err)
	}
	folder := FolderOf(p.Run)
	want := [][]string{{folder + "/a.txt", folder + "/b"}, nil, {folder + "/A-2.txt"}}
	if !slices.EqualFunc(names, want, slices.Equal) {
		t.Errorf("names are %q, want %q", names, want)
	}
	for i, name := range slices.Concat(want...) {
		f, err := inside.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(f)
		f.Close()
		if want := strconv.Itoa(i + 1); err != nil || string(content) != want {
			t.Errorf("%s has %q, want %q, %v", name, content, want, err)
		}
	}

	if names, err := p.Offer(t.Context(), inside, []record.Prompt{{Key: "k3", Files: []record.Attachment{{Name: "none"}}}}); err == nil {
		t.Errorf("a file that does not exist is offered as %q", names)
	}
	// A program in the container made a folder with the name of the file.
	if err := inside.MkdirAll(folder + "/c"); err != nil {
		t.Fatal(err)
	}
	taken := give(t, p, "k4", record.Attachment{Name: "c", Content: []byte("4")})
	if _, err := p.Offer(t.Context(), inside, []record.Prompt{taken}); err == nil || !strings.Contains(err.Error(), folder+"/c") {
		t.Errorf("a file whose name is a folder: %v", err)
	}
	inside.Close()
	if _, err := p.Offer(t.Context(), inside, nil); err == nil {
		t.Error("files are offered without a connection")
	}
}

// newContainer returns a connection to files in memory.
func newContainer(t *testing.T) *sftp.Client {
	here, there := net.Pipe()
	server := sftp.NewRequestServer(there, sftp.InMemHandler())
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve() // ends with the connection
	}()
	files, err := sftp.NewClientPipe(here, here)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		files.Close()
		server.Close()
		<-served
	})
	return files
}

func TestPictures(t *testing.T) {
	p, _ := newFiles(t, nil)
	png := []byte("\x89PNG\x0D\x0A\x1A\x0A and more")
	full := append(bytes.Clone(png), make([]byte, maxShownBytes-len(png))...)
	prompts := []record.Prompt{give(t, p, "k1",
		record.Attachment{Name: "a.txt", Content: png},
		record.Attachment{Name: "b.png", Content: []byte("no picture")},
		record.Attachment{Name: "full.png", Content: full},
		record.Attachment{Name: "larger.png", Content: append(bytes.Clone(full), 0)},
		record.Attachment{Name: "empty.png"}),
		give(t, p, "k2", record.Attachment{Name: "c.gif", Content: []byte("GIF89a and more")})}
	blocks, err := p.Pictures(t.Context(), prompts)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"image/png", "image/png", "image/gif"}
	if len(blocks) != len(want) {
		t.Fatalf("%d pictures are shown", len(blocks))
	}
	for i, b := range blocks {
		if b.Image == nil || b.Image.MimeType != want[i] {
			t.Errorf("picture %d is %+v", i, b.Image)
		}
	}
	if blocks[0].Image.Data != base64.StdEncoding.EncodeToString(png) {
		t.Error("the picture is another one")
	}
	many := record.Prompt{Key: "k2"}
	for range maxShown + 1 {
		many.Files = append(many.Files, record.Attachment{Name: "c.gif"})
	}
	if blocks, err := p.Pictures(t.Context(), []record.Prompt{many}); err != nil || len(blocks) != maxShown {
		t.Errorf("%d pictures of many, %v", len(blocks), err)
	}
	if _, err := p.Pictures(t.Context(), []record.Prompt{{Key: "k3", Files: many.Files}}); err == nil {
		t.Error("a picture that is gone is shown")
	}
}
