package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/internal/largefile"
	"golang.org/x/sys/unix"
)

// git with the filter lfs has the content of a large file replaced by a pointer. It calls PROGRAM with the content as standard
// input, and expects the pointer on standard output. ramus's own commits do so even if the image has no git-lfs. The content goes
// to the server before, by the protocol of Git LFS.

const (
	largeWait   = 15 * time.Minute // one file
	largeAnswer = 64 << 10         // bytes of an answer
	largeType   = "application/vnd.git-lfs+json"
)

// CleanLarge is `ramus lfs-clean [REMOTE PATH]` as git calls it inside a container. It prints the pointer to the content of
// standard input. With REMOTE, the URL of the repository, it sends the content there, which it reads from the file PATH. A pointer
// and an empty content are printed as they are. It returns the exit status.
func CleanLarge(args []string) int {
	if len(args) != 0 && len(args) != 2 {
		return 2
	}
	ctx, cancel := context.WithTimeout(context.Background(), largeWait)
	defer cancel()
	if err := cleanLarge(ctx, os.Stdin, os.Stdout, args); err != nil {
		fmt.Fprintf(os.Stderr, "ramus: cannot keep a large file: %v\n", err)
		return 1
	}
	return 0
}

func cleanLarge(ctx context.Context, in io.Reader, out io.Writer, to []string) error {
	head := make([]byte, largefile.MaxSize+1)
	n, err := io.ReadFull(in, head)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	if _, pointer := largefile.Parse(head); pointer || n == 0 {
		_, err := out.Write(head)
		return err
	}
	sum := sha256.New()
	size, err := io.Copy(sum, io.MultiReader(bytes.NewReader(head), in))
	if err != nil {
		return err
	}
	p := largefile.Pointer{OID: hex.EncodeToString(sum.Sum(nil)), Size: size}
	if len(to) > 0 {
		if err := sendLarge(ctx, to[0]+"/info/lfs", to[1], p); err != nil {
			return err
		}
	}
	_, err = out.Write(p.Text())
	return err
}

// sendLarge sends the content of a file, unless the server has it.
func sendLarge(ctx context.Context, server, file string, p largefile.Pointer) error {
	type object struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	}
	question, err := json.Marshal(map[string]any{
		"operation": "upload",
		"transfers": []string{"basic"},
		"objects":   []object{{p.OID, p.Size}},
	})
	if err != nil {
		return err
	}
	text, err := askLarge(ctx, http.MethodPost, server+"/objects/batch", bytes.NewReader(question), int64(len(question)))
	if err != nil {
		return err
	}
	var answer struct {
		Objects []struct {
			Error   *struct{ Message string }
			Actions map[string]struct{ Href string }
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Objects) != 1 {
		return fmt.Errorf("the server answers %.200q", text)
	}
	offer := answer.Objects[0]
	if offer.Error != nil {
		return errors.New(offer.Error.Message)
	}
	upload, wanted := offer.Actions["upload"]
	if !wanted {
		return nil
	}
	// The content is that of a work tree, in which a command may have put anything.
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// The server compares it with its name.
	_, err = askLarge(ctx, http.MethodPut, upload.Href, io.LimitReader(f, p.Size), p.Size)
	return err
}

// askLarge sends a request, and returns the answer of a success.
func askLarge(ctx context.Context, method, url string, body io.Reader, size int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = size
	req.Header.Set("Accept", largeType)
	req.Header.Set("Content-Type", largeType)
	if method == http.MethodPut {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := doorClient().Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, largeAnswer))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		var said struct{ Message string }
		if json.Unmarshal(text, &said) != nil || said.Message == "" {
			said.Message = strings.TrimSpace(string(text))
		}
		return nil, fmt.Errorf("the server answers %s: %.300s", resp.Status, said.Message)
	}
	return text, nil
}
