package containers

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"github.com/ramus-dev/ramus/internal/durable"
)

// labelFolder is the label that leads from a container to its folder below
// Fleet.Dir, also for a later process.
const labelFolder = "ramus.folder"

// labelPool marks a container that was made for the pool; whose it became, if anybody's,
// tells its [record].
const labelPool = "ramus.pool"

func newFolderName() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// folderLabel reads labelFolder. Labels come from the engine, which others may
// use too, so the name is not trusted to be one of ours.
func folderLabel(labels map[string]string) (string, bool) {
	name := labels[labelFolder]
	b, err := hex.DecodeString(name)
	return name, err == nil && len(b) == 6 && name == hex.EncodeToString(b)
}

// OwnerOf is the id of the installation whose [Fleet] has dir: its containers bear it. It
// is made at the first call.
func OwnerOf(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot keep the owner's id: %w", err)
	}
	return keepOwner(filepath.Join(dir, "owner"))
}

// keepOwner reads the installation's id, made at the first call.
func keepOwner(name string) (string, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		id := rand.Text()
		if err := durable.Replace(name, []byte(id+"\n"), true); err != nil {
			return "", fmt.Errorf("cannot keep the owner's id: %w", err)
		}
		return id, nil
	} else if err != nil {
		return "", fmt.Errorf("cannot read the owner's id: %w", err)
	}
	id := string(b)
	for len(id) > 0 && id[len(id)-1] == '\n' {
		id = id[:len(id)-1]
	}
	if len(id) < 8 || len(id) > 64 {
		return "", fmt.Errorf("cannot read the owner's id: %s holds none", name)
	}
	return id, nil
}

// keepClientKey reads the SSH key that runners let in, made at the first call.
func keepClientKey(name string) (ssh.Signer, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("cannot make the client key: %w", err)
		}
		block, err := ssh.MarshalPrivateKey(key, "ramus")
		if err != nil {
			return nil, fmt.Errorf("cannot make the client key: %w", err)
		}
		if err := durable.Replace(name, pem.EncodeToMemory(block), true); err != nil {
			return nil, fmt.Errorf("cannot keep the client key: %w", err)
		}
		return ssh.NewSignerFromKey(key)
	} else if err != nil {
		return nil, fmt.Errorf("cannot read the client key: %w", err)
	}
	fi, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the client key: %w", err)
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("cannot use the client key: others may read it; `chmod 600 %s` and remove all containers", name)
	}
	signer, err := ssh.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("cannot read the client key %s: %w", name, err)
	}
	return signer, nil
}

// filePin is a [Pin] in a file.
type filePin string

func (p filePin) Key() []byte {
	b, err := os.ReadFile(string(p))
	if err != nil {
		return nil
	}
	return b
}

// Store fails where the folder is gone: the container is gone then, too, and whoever answers in its
// place is not trusted.
func (p filePin) Store(key []byte) error {
	if err := durable.Replace(string(p), key, false); err != nil {
		return fmt.Errorf("cannot keep the runner's host key: %w", err)
	}
	return nil
}
