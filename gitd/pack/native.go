package pack

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// NativePrefix begins the names of the files that [NativePacker.Pack] writes.
const NativePrefix = "made-"

// NativePacker makes packs with git pack-objects. The packs are temporary files outside of the
// repository, where readers of the repository do not find them.
type NativePacker struct {
	// Scratch is the folder below which the packs are made. It is made if it is missing.
	Scratch string
	// Run runs git on the repository, within limits.
	Run func(ctx context.Context, c gitcmd.Command) error
}

// Pack runs pack-objects with the input and the further arguments of c. It returns the folder of the pack,
// which the caller removes.
func (p NativePacker) Pack(ctx context.Context, c gitcmd.Command) (_ string, err error) {
	if err := os.MkdirAll(p.Scratch, 0o755); err != nil {
		return "", err
	}
	if c.File, err = gitcmd.FreeSpace(p.Scratch); err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(p.Scratch, "pack-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()

	c.Args = slices.Concat([]string{"pack-objects", "-q", "--delta-base-offset"}, c.Args,
		[]string{"--end-of-options", filepath.Join(dir, strings.TrimSuffix(NativePrefix, "-"))})
	c.Config = []string{
		"pack.threads=1", // the other cores serve clients that wait
		"pack.packSizeLimit=0", "pack.indexVersion=2", "pack.writeReverseIndex=false",
		"core.fsync=none", // the pack need not survive the process
	}
	if err = p.Run(ctx, c); err != nil {
		return "", err
	}
	return dir, nil
}

// OpenNative opens the pack in a folder that [NativePacker.Pack] returned.
func OpenNative(dir string) (*Pack, error) {
	names, err := filepath.Glob(filepath.Join(dir, NativePrefix+"*.pack"))
	if err != nil || len(names) != 1 {
		return nil, fmt.Errorf("git pack-objects made %d packs: %w", len(names), errors.Join(err, object.ErrInvalid))
	}
	name := strings.TrimSuffix(names[0], ".pack")
	p := &Pack{Name: strings.TrimPrefix(filepath.Base(name), NativePrefix)}
	if p.Pack, err = os.Open(name + ".pack"); err != nil {
		return nil, err
	}
	if p.Index, err = os.Open(name + ".idx"); err != nil {
		p.Pack.Close()
		return nil, err
	}

	var head [HeaderLength]byte
	if _, err := p.Pack.ReadAt(head[:], 0); err != nil || !bytes.HasPrefix(Header(0), head[:8]) {
		p.Close()
		return nil, fmt.Errorf("git pack-objects made no pack of version 2: %w", errors.Join(err, object.ErrInvalid))
	}
	p.Objects = int(binary.BigEndian.Uint32(head[8:]))
	return p, nil
}

// UnnamedFile writes parts to a new file in dir and removes its name. The file is gone when it is closed,
// also by a crash.
func UnnamedFile(dir string, parts ...[]byte) (*os.File, error) {
	f, err := os.CreateTemp(dir, TempName)
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	at := int64(0)
	for _, part := range parts {
		if err != nil {
			break
		}
		_, err = f.WriteAt(part, at)
		at += int64(len(part))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
