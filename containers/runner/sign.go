package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// git with gpg.format=ssh has commits signed by a program that it takes for ssh-keygen. It calls PROGRAM -Y sign -n git
// -f KEY FILE, and expects the signature in FILE.sig. Inside a container that program is this one. It has no key. It
// sends the content of FILE to the door, and writes the answer.

// SignPath is the path of the door that signs. The method is POST, and the body is the data to sign. The answer is the
// signature in OpenSSH's armour, or the reason why there is none.
const SignPath = "/sign"

const (
	// signMax bounds the data to sign, and signatureMax the answer, in bytes.
	signMax      = 1 << 20
	signatureMax = 64 << 10
	signWait     = time.Minute
)

// Sign is `ramus -Y …` as git calls it inside a container. It returns the exit status. It leaves everything but signing
// to the real ssh-keygen, if there is one.
func Sign(args []string) int {
	file, ours := toSign(args)
	if !ours {
		return keygen(args)
	}
	ctx, cancel := context.WithTimeout(context.Background(), signWait)
	defer cancel()
	if err := sign(ctx, "http://"+doorDefault+SignPath, file); err != nil {
		fmt.Fprintf(os.Stderr, "ramus: cannot sign the commit: %v; `git commit --no-gpg-sign` makes an unsigned one\n", err)
		return 1
	}
	return 0
}

// toSign returns the file that git wants to have signed. Returns false for all other calls of ssh-keygen.
func toSign(args []string) (file string, ours bool) {
	space := ""
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-Y" && i+1 < len(args):
			i++
			ours = args[i] == "sign"
		case args[i] == "-n" && i+1 < len(args):
			i++
			space = args[i]
		case args[i] == "-f" && i+1 < len(args):
			i++ // the key is not in the container
		case args[i] == "-U":
		case strings.HasPrefix(args[i], "-"):
			return "", false
		default:
			file = args[i]
		}
	}
	return file, ours && space == "git" && file != ""
}

func keygen(args []string) int {
	path, err := exec.LookPath("ssh-keygen")
	if err == nil {
		err = unix.Exec(path, append([]string{"ssh-keygen"}, args...), os.Environ())
	}
	fmt.Fprintf(os.Stderr, "ramus: cannot run ssh-keygen: %v\n", err)
	return 1
}

// sign has a file signed at the door.
func sign(ctx context.Context, door, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, signMax+1))
	if err != nil {
		return err
	}
	if len(data) > signMax {
		return fmt.Errorf("it has more than %d bytes", signMax)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, door, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := doorClient().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, signatureMax))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimPrefix(strings.TrimSpace(string(answer)), "ramus: "))
	}
	return os.WriteFile(file+".sig", answer, 0o600)
}
