package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/sealed"
	"github.com/ramus-dev/ramus/internal/durable"
)

// maxEarlier bounds a file of an earlier version, in bytes.
const maxEarlier = 128 << 20

// earlier is a secret in the file of an earlier version, which had all secrets of repositories in one file.
type earlier struct {
	Name      string    `json:"name"`
	Repo      string    `json:"repo"`
	Person    string    `json:"person"`
	Reference string    `json:"reference"`
	Hosts     []string  `json:"hosts"`
	Set       time.Time `json:"set"`
	By        string    `json:"by"`
	Sealed    []byte    `json:"sealed"` // nonce and encrypted value
}

// moveEarlier moves the secrets of EarlierFile into the box, and then removes EarlierFile and EarlierKey. A process that
// is killed meanwhile leaves the file, and the next one does it again. mu is held.
func (s *Store) moveEarlier() error {
	if s.EarlierFile == "" {
		return nil
	}
	list, values, err := readEarlier(s.EarlierFile, s.EarlierKey)
	if errors.Is(err, fs.ErrNotExist) {
		return removeDurably(s.EarlierKey) // nothing is encrypted with it
	}
	if err != nil {
		return fmt.Errorf("cannot move the secrets of %s: %w", s.EarlierFile, err)
	}
	have, _, err := s.Box.All()
	if err != nil {
		return err
	}
	ids := make(map[string]string)
	for _, r := range have {
		ids[r.Owner+"\x00"+r.Name] = r.ID
	}
	for i, e := range list {
		x := Secret{Name: e.Name, Owner: OfRepo(e.Repo), Reference: e.Reference, Hosts: e.Hosts, Set: e.Set, By: e.By}
		if e.Person != "" { // a token of a forge, by its name
			x.Owner, x.Type, x.Agent = OfPerson(e.Person), TypeForge, strings.ToLower(strings.TrimSuffix(e.Name, "_TOKEN"))
		}
		x = x.complete(values[i])
		x.ID = ids[string(x.Owner)+"\x00"+x.Name] // of a move that was interrupted
		x, err := s.write(x, values[i])
		if err != nil {
			return err
		}
		if _, c, err := s.read(x); err != nil || c.Value != values[i] {
			return fmt.Errorf("cannot move the secret %s of %s: it cannot be read again: %w", x.Name, s.EarlierFile, err)
		}
	}
	s.list = nil // Open reads all records
	if err := removeDurably(s.EarlierFile); err != nil {
		return err
	}
	return removeDurably(s.EarlierKey)
}

func removeDurably(name string) error {
	err := os.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.Folder(filepath.Dir(name))
	}
	return err
}

// readEarlier returns the secrets of a file of an earlier version, with their values.
func readEarlier(file, keyFile string) (list []earlier, values []string, err error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, err
	}
	if info.Size() > maxEarlier {
		return nil, nil, fmt.Errorf("it has more than %d bytes", maxEarlier)
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil || len(list) == 0 {
		return nil, nil, err
	}
	key, err := os.ReadFile(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("its key %s is missing; restore it from a backup, or remove both and store the secrets again", keyFile)
	}
	if err != nil {
		return nil, nil, err
	}
	if len(key) != sealed.KeyBytes {
		return nil, nil, fmt.Errorf("its key %s does not have %d bytes; restore it from a backup", keyFile, sealed.KeyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range list {
		value := ""
		if e.Reference == "" {
			n := gcm.NonceSize()
			if len(e.Sealed) < n {
				return nil, nil, fmt.Errorf("the secret %s is damaged", e.Name)
			}
			about := e.Repo + "\x00" + e.Name
			if e.Person != "" {
				about = "\x00" + e.Person + "\x00" + e.Name
			}
			plain, err := gcm.Open(nil, e.Sealed[:n], e.Sealed[n:], []byte(about))
			if err != nil {
				return nil, nil, fmt.Errorf("the secret %s is damaged, or its key %s is another one", e.Name, keyFile)
			}
			value = string(plain)
		}
		values = append(values, value)
	}
	return list, values, nil
}
