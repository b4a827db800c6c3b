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

// labelFolder is the label that names the folder of a container below Fleet.Dir. It serves later processes too.
const labelFolder = "ramus.folder"

// labelPool marks a container that was made for the pool. Its [record] names the caller, if it got one.
const labelPool = "ramus.pool"

func newFolderName() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// folderLabel returns the value of labelFolder. Returns false if the value is not a name that newFolderName makes.
// Labels come from the engine, which others may use too, so they are not trusted.
func folderLabel(labels map[string]string) (string, bool) {
	name := labels[labelFolder]
	b, err := hex.DecodeString(name)
	return name, err == nil && len(b) == 6 && name == hex.EncodeToString(b)
}

// OwnerOf returns the id of the installation whose [Fleet] has dir. Its containers have the id as a label. The first
// call makes the id.
func OwnerOf(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot keep the owner's id: %w", err)
	}
	return keepOwner(filepath.Join(dir, "owner"))
}

// keepOwner returns the installation's id from a file. The first call makes it.
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

// keepClientKey returns the SSH key that runners let in. The first call makes it.
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

// Store fails if the folder does not exist. The container is gone then too, and the program that answers in its place
// is not trusted.
func (p filePin) Store(key []byte) error {
	if err := durable.Replace(string(p), key, false); err != nil {
		return fmt.Errorf("cannot keep the runner's host key: %w", err)
	}
	return nil
}
