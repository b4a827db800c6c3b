package services

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/tasks/service"
)

// KeyPrefix begins the keys of the containers of services.
const KeyPrefix = "service:"

// Failed is the error of a service that does not become ready.
type Failed struct {
	Name string
	Why  string // with the end of its output
}

func (f *Failed) Error() string { return fmt.Sprintf("the service %s %s", f.Name, f.Why) }

// Starter starts services. Its exported fields are its options, and may be changed until the first Set is made. Methods are safe for
// concurrent use.
type Starter struct {
	Fleet *containers.Fleet
	// Image is that of services that run a command on an engine with images.
	Image string
	// Limits are those of one service. A service may ask for less Memory. The defaults are 512 MiB, 1 CPU, 256 processes, 64 MiB of
	// /tmp and 2 GiB of disk.
	Limits containers.Limits
	// Secrets are removed from the output of services in messages. Nil means that there are none.
	Secrets *redact.Secrets
	Log     *slog.Logger

	ctx   context.Context
	close context.CancelFunc
	owned sync.WaitGroup // the goroutines of all sets
}

// Open prepares the starter. Its work in the background ends with ctx.
func (s *Starter) Open(ctx context.Context) { s.ctx, s.close = context.WithCancel(ctx) }

// Close ends the work in the background. The services go on.
func (s *Starter) Close() {
	s.close()
	s.owned.Wait()
}

// limits returns the limits of a service.
func (s *Starter) limits(v service.Service) containers.Limits {
	l := s.Limits
	l.Memory = cmp.Or(l.Memory, 512<<20)
	if v.Memory > 0 {
		l.Memory = min(l.Memory, v.Memory)
	}
	l.CPUs = cmp.Or(l.CPUs, 1)
	l.PIDs = cmp.Or(l.PIDs, 256)
	l.Tmp = cmp.Or(l.Tmp, 64<<20)
	l.Disk = cmp.Or(l.Disk, 2<<30)
	l.Output = keptOutput
	return l
}

// program is the program of a service's container.
type program struct {
	image string
	own   bool     // the program of the image
	args  []string // if own is true
	shell string
}

// program returns the program of a service, for the engine of the fleet.
func (s *Starter) program(ctx context.Context, v service.Service) (program, error) {
	images, err := containers.AsImages(s.Fleet.Engine)
	switch {
	case err != nil && v.Command == "":
		return program{}, &Failed{v.Name, fmt.Sprintf("needs command: the engine %s has no images", s.Fleet.Engine.Name())}
	case err != nil || v.Image == "":
		return program{image: s.Image, shell: v.Command}, nil
	}
	p, err := images.ImageProgram(ctx, v.Image)
	switch {
	case errors.Is(err, containers.ErrLacks) && v.Command == "":
		return program{}, &Failed{v.Name, fmt.Sprintf("needs command: the engine %s does not know the programs of images", s.Fleet.Engine.Name())}
	case errors.Is(err, containers.ErrLacks):
		return program{image: v.Image, shell: v.Command}, nil
	case err != nil:
		return program{}, err
	}
	args := slices.Concat(p.Entry, p.Args)
	if len(v.Args) > 0 {
		args = slices.Concat(p.Entry, v.Args)
	}
	if len(args) == 0 {
		return program{}, &Failed{v.Name, fmt.Sprintf("needs args: the image %s has no program", v.Image)}
	}
	return program{image: v.Image, own: true, args: args}, nil
}

// environ returns the environment of a service.
func environ(v service.Service) []string {
	var env []string
	for _, k := range slices.Sorted(maps.Keys(v.Env)) {
		env = append(env, k+"="+v.Env[k])
	}
	return env
}

// key returns the key of the container of a service next to container id of caller. Each definition of a service has its own.
func key(caller, id string, v service.Service) string {
	text, _ := json.Marshal(v) // a value of texts and numbers
	sum := sha256.Sum256(append(text, id...))
	return KeyPrefix + caller + ":" + v.Name + "-" + hex.EncodeToString(sum[:6])
}

// commandID names the program of a service in its runner. readyID names a check.
const (
	commandID = "service"
	readyID   = "ready"
)

// Bounds of services.
const (
	keptOutput = 16 << 20 // bytes of a service's output that its runner keeps
	toldOutput = 4 << 10  // bytes of it in a message
	readyEach  = 10 * time.Second
	readyAgain = 100 * time.Millisecond
	dialWithin = 10 * time.Second
)

// said returns the end of a service's output, for a message.
func (s *Starter) said(u *unit) string {
	text := strings.TrimSpace(s.Secrets.String(u.said.String()))
	if text == "" {
		return "; it printed nothing"
	}
	return "; the end of its output:\n" + text
}

// errClosing is the reason for which a service is not followed any more.
var errClosing = errors.New("it is not followed any more")
