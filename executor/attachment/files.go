package attachment

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"

	sdk "github.com/coder/acp-go-sdk"
	"github.com/pkg/sftp"
	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/durable"
)

// Folder is the folder for the files of prompts in the folder of a run's outputs and in its ref. A file is at
// files/PROMPT/NAME.
const Folder = "files"

// promptDir returns the folder of a prompt's files. A key may hold anything.
func promptDir(key string) string {
	if key == record.FirstPrompt {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}

// Files are the files of a run's prompts. Methods are safe for concurrent use.
type Files struct {
	Run record.Run
	Git *gitd.Server
	// Output is the folder of the run's outputs while it works.
	Output string
	// Stored opens a file of the run's evidence that is too large for git. The run must have ended or wait for a
	// person.
	Stored func(ctx context.Context, name string) (io.ReadCloser, error)
}

// Keep writes a prompt's files to a folder of their own in the run's live folder, durably. [Files.Place] makes them the
// prompt's. discard is never nil.
func (p Files) Keep(files []record.Attachment) (dir string, discard func(), err error) {
	if len(files) == 0 {
		return "", func() {}, nil
	}
	dir, err = os.MkdirTemp(p.Output, "given-")
	if err != nil {
		return "", func() {}, fmt.Errorf("cannot keep the files: %w", err)
	}
	discard = func() { _ = os.RemoveAll(dir) } // the rest is removed with the live folder
	for _, f := range files {
		if err := writeDurable(filepath.Join(dir, f.Name), f.Content); err != nil {
			return "", discard, fmt.Errorf("cannot keep the file %q: %w", f.Name, err)
		}
	}
	return dir, discard, nil
}

// Place makes the files in dir those of the prompt with a key, durably.
func (p Files) Place(dir, key string) error {
	to := filepath.Join(p.Output, Folder, promptDir(key))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("cannot keep the files: %w", err)
	}
	// A crash may have left them there without the prompt.
	if err := errors.Join(os.RemoveAll(to), os.Rename(dir, to), durable.Folder(to), durable.Folder(filepath.Dir(to))); err != nil {
		return fmt.Errorf("cannot keep the files: %w", err)
	}
	return nil
}

func writeDurable(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// Open opens a file of a prompt. While the run works the file is in the live folder, and in the ref if it came with
// the request. Once the run has ended the ref has all files.
func (p Files) Open(ctx context.Context, of record.Prompt, name string) (io.ReadCloser, error) {
	at := path.Join(Folder, promptDir(of.Key), name)
	f, err := os.Open(filepath.Join(p.Output, filepath.FromSlash(at)))
	if err == nil {
		return f, nil
	}
	repo, err := p.Git.Repo(p.Run.Repo)
	if err != nil {
		return nil, err
	}
	in, _, err := repo.OpenFile(ctx, record.RunRef(p.Run.Caller, p.Run.ID), at)
	if !errors.Is(err, gitd.ErrNotFound) {
		return in, err
	}
	return p.Stored(ctx, at) // too large for git
}

// Read reads the files of a prompt.
func (p Files) Read(ctx context.Context, of record.Prompt) ([]record.Attachment, error) {
	var list []record.Attachment
	for _, f := range of.Files {
		in, err := p.Open(ctx, of, f.Name)
		if err != nil {
			return nil, fmt.Errorf("cannot read the file %q of a prompt: %w", f.Name, err)
		}
		f.Content, err = io.ReadAll(io.LimitReader(in, agent.MaxFileBytes))
		in.Close()
		if err != nil {
			return nil, fmt.Errorf("cannot read the file %q of a prompt: %w", f.Name, err)
		}
		list = append(list, f)
	}
	return list, nil
}

// FolderOf returns the folder in which a run's agent finds the files. It is outside the work tree, so that they
// are not committed.
func FolderOf(r record.Run) string { return path.Join(containers.CacheDir, "files", r.ID) }

// Offer puts the files of prompts into the container and returns their names there, by prompt.
func (p Files) Offer(ctx context.Context, files *sftp.Client, prompts []record.Prompt) (names [][]string, err error) {
	if err := files.MkdirAll(FolderOf(p.Run)); err != nil {
		return nil, err
	}
	taken := make(map[string]bool)
	for _, of := range prompts {
		var own []string
		for _, f := range of.Files {
			in, err := p.Open(ctx, of, f.Name)
			if err != nil {
				return nil, err
			}
			name := path.Join(FolderOf(p.Run), fileNamed(f.Name, taken))
			own = append(own, name)
			err = agent.WriteFile(files, name, in, 0o644)
			in.Close()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		names = append(names, own)
	}
	return names, nil
}

// Bounds of the pictures that an agent is shown in its prompt. It finds the others as files. Models take pictures of up to 5 MB
// each, in base64.
const (
	maxShown      = 5
	maxShownBytes = 3_700_000
)

// Pictures returns the pictures among the files of prompts, which the agent sees at once. It recognizes a picture by
// its content, because a stranger chose its name.
func (p Files) Pictures(ctx context.Context, prompts []record.Prompt) (blocks []sdk.ContentBlock, err error) {
	for _, of := range prompts {
		for _, f := range of.Files {
			content, media, err := p.picture(ctx, of, f.Name)
			if err != nil {
				return nil, fmt.Errorf("cannot show the agent the file %q: %w", f.Name, err)
			}
			if media == "" {
				continue
			}
			blocks = append(blocks, sdk.ImageBlock(base64.StdEncoding.EncodeToString(content), media))
			if len(blocks) == maxShown {
				return blocks, nil
			}
		}
	}
	return blocks, nil
}

// picture reads a file of a prompt if it is a picture that can be shown. Otherwise media is empty.
func (p Files) picture(ctx context.Context, of record.Prompt, name string) (content []byte, media string, err error) {
	in, err := p.Open(ctx, of, name)
	if err != nil {
		return nil, "", err
	}
	defer in.Close()
	head := bufio.NewReader(in)
	begin, err := head.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	switch media = http.DetectContentType(begin); media {
	case "image/png", "image/jpeg", "image/gif", "image/webp":
	default:
		return nil, "", nil
	}
	content, err = io.ReadAll(io.LimitReader(head, maxShownBytes+1))
	if err != nil || len(content) > maxShownBytes {
		return nil, "", err
	}
	return content, media, nil
}
