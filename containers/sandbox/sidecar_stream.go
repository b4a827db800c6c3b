package sandbox

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// sidecarPipes are the standard streams of a sidecar: the ends of ramus, and those of the sidecar.
type sidecarPipes struct {
	stdin, stdout, stderr *os.File
	theirs                []*os.File
}

// pipes connects the standard streams of a command. They belong to the user of the command, so that it may open /dev/stdout.
func (b *box) pipes(cmd *exec.Cmd) (_ *sidecarPipes, err error) {
	p := &sidecarPipes{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil && b.spot != "" {
			err = r.Chown(b.uid, b.uid)
		}
		return r, w
	}
	var in, out, errOut *os.File
	in, p.stdin = pipe()
	p.stdout, out = pipe()
	p.stderr, errOut = pipe()
	p.theirs = []*os.File{in, out, errOut}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errOut
	return p, err
}

// closeTheirs closes the ends of the sidecar in ramus, so that the streams end with the last process of the sidecar.
func (p *sidecarPipes) closeTheirs() {
	for _, f := range p.theirs {
		f.Close()
	}
}

func (p *sidecarPipes) close() {
	p.closeTheirs()
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		f.Close()
	}
}

// sidecarOutput passes on the output of a sidecar.
type sidecarOutput struct {
	mu   sync.Mutex   // guards the field below, and the writers
	said bytes.Buffer // the beginning of stderr, for an error message
}

// sidecarStream is one of the streams of a sidecarOutput.
type sidecarStream struct {
	out    *sidecarOutput
	w      io.Writer // nil drops it
	stderr bool
}

func (k sidecarStream) Write(p []byte) (int, error) {
	k.out.mu.Lock()
	defer k.out.mu.Unlock()
	if k.stderr {
		k.out.said.Write(p[:min(len(p), 2000-k.out.said.Len())])
	}
	if k.w == nil {
		return len(p), nil
	}
	return k.w.Write(p)
}

func (o *sidecarOutput) beginning() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(strings.ToValidUTF8(o.said.String(), "?"))
}
